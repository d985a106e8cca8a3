package engine

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/source"
)

// slowLimit is what a queue takes in these tests, and all that a process asks of it.
const slowLimit = 100

func slowWorld(t *testing.T, queues int, test func(t *testing.T, w *distWorld)) {
	t.Helper()
	distInWorld(t, 1, queues, func(c *azsim.Config) { c.Limits = azsim.Limits{Queue: slowLimit} }, test)
}

func (w *distWorld) slowDistributor(s source.Source, o DistributorOptions) *Distributor {
	w.t.Helper()
	c := w.config("d", w.cfg.Accounts[0].Queues)
	c.Budget.Queue = slowLimit
	d, err := NewDistributor(c, s, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// Requests to a queue that answers nothing have short deadlines, until it answers one.
func TestAQueueThatAnswersNothingIsNotWaitedForAsLong(t *testing.T) {
	distInWorld(t, 1, 1, nil, func(t *testing.T, w *distWorld) {
		f := queues.Open(&w.cfg, "")
		s, err := f.Queue("accounta", "work-00")
		if err != nil {
			t.Fatal(err)
		}
		takes := func() time.Duration {
			began := time.Now()
			_ = s.Put(context.Background(), []byte("text"), 0)
			return time.Since(began)
		}
		w.sim.Hang("accounta", true)
		for range queues.SilentAfter {
			if d := takes(); d != backoff.RequestTimeout {
				t.Errorf("given up after %v", d)
			}
		}
		if d := takes(); d != queues.TroubledTimeout {
			t.Errorf("given up after %v", d)
		}
		w.sim.Hang("accounta", false)
		takes()
		w.sim.Hang("accounta", true)
		if d := takes(); d != backoff.RequestTimeout {
			t.Errorf("given up after %v, though the one before was answered", d)
		}
	})
}

// What stands in line when a distributor is told to stop is sent before its grace is over.
func TestALineIsNoLongerThanAStopWaits(t *testing.T) {
	verify.Only(t)
	slowWorld(t, 2, func(t *testing.T, w *distWorld) {
		s := &listSource{print: "a", n: 1 << 30}
		d := w.startDistributor(w.slowDistributor(s, DistributorOptions{Pack: 10, Every: time.Hour}))
		time.Sleep(30 * time.Second)
		began := time.Now()
		d.stop()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		// The line, the slots of the outbox, and the bounded queues of the lanes.
		if took := time.Since(began); took < lineFor/2 || took > 15*time.Second {
			t.Errorf("stopping took %v", took)
		}
		w.collect().expect(t, w.segments(), d.summary.Run, s, int(d.summary.Tasks), int(d.summary.Tasks))
	})
}

// A distribution that ends at once leaves nothing in line.
func TestWhatStandsInLineEndsWithItsDistribution(t *testing.T) {
	slowWorld(t, 1, func(t *testing.T, w *distWorld) {
		dist := w.slowDistributor(&listSource{print: "a", n: 1 << 30}, DistributorOptions{Pack: 1, Grace: time.Second})
		d := w.startDistributor(dist)
		time.Sleep(20 * time.Second)
		began := time.Now()
		d.stop()
		if err := d.wait(); err == nil {
			t.Error("a run that was cut short is no error")
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("stopping took %v", took)
		}
		for _, o := range dist.router.now().boxes {
			if n := len(o.waiting); n > 0 {
				t.Errorf("%d parcels stand in line at %s", n, o.name)
			}
			if taken := len(o.slots) - (cap(o.slots) - int(o.width.Load())); taken != 0 {
				t.Errorf("%d slots of %s are taken", taken, o.name)
			}
		}
	})
}

// A queue that is far away gets as many slots as its limit needs, one that is near no more than that.
func TestAnOutboxFitsHowLongPutsTake(t *testing.T) {
	for name, c := range map[string]struct {
		latency     time.Duration
		least, most int64
	}{
		"near": {time.Millisecond, outboxLeast, outboxLeast},
		"far":  {40 * time.Millisecond, 150, 230},
	} {
		t.Run(name, func(t *testing.T) {
			distInWorld(t, 1, 1, func(s *azsim.Config) { s.Latency = c.latency }, func(t *testing.T, w *distWorld) {
				d := w.distributor("d", &listSource{print: "a", n: 5000}, DistributorOptions{Pack: 1})
				if _, err := d.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := d.router.now().boxes[0].width.Load(); n < c.least || n > c.most {
					t.Errorf("%d slots, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}
