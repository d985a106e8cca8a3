package distributor

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
)

// slowLimit is what a queue takes in these tests, and all that a process asks of it.
const slowLimit = 100

func slowWorld(t *testing.T, queues int, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, 1, queues, func(c *azsim.Config) { c.Limits = azsim.Limits{Queue: slowLimit} }, test)
}

func (w *world) slowDistributor(s source.Source, o Options) *Distributor {
	w.T.Helper()
	c := w.Config("d", w.Cfg.Accounts[0].Queues)
	c.Budget.Queue = slowLimit
	d, err := New(c, s, o)
	if err != nil {
		w.T.Fatal(err)
	}
	return d
}

// Requests to a queue that answers nothing have short deadlines, until it answers one.
func TestAQueueThatAnswersNothingIsNotWaitedForAsLong(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		f := queues.Open(&w.Cfg, "")
		s, err := f.Queue("accounta", "work-00")
		if err != nil {
			t.Fatal(err)
		}
		takes := func() time.Duration {
			began := time.Now()
			_ = s.Put(context.Background(), []byte("text"), 0)
			return time.Since(began)
		}
		w.Sim.Hang("accounta", true)
		for range queues.SilentAfter {
			if d := takes(); d != backoff.RequestTimeout {
				t.Errorf("given up after %v", d)
			}
		}
		if d := takes(); d != queues.TroubledTimeout {
			t.Errorf("given up after %v", d)
		}
		w.Sim.Hang("accounta", false)
		takes()
		w.Sim.Hang("accounta", true)
		if d := takes(); d != backoff.RequestTimeout {
			t.Errorf("given up after %v, though the one before was answered", d)
		}
	})
}

// What waits when a distributor is told to stop is sent before its grace is over.
func TestNoMoreWaitsThanIsPutBeforeAStopsGraceIsOver(t *testing.T) {
	verify.Only(t)
	slowWorld(t, 2, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 1 << 30}
		d := w.startDistributor(w.slowDistributor(s, Options{Pack: 10, Every: time.Hour}))
		time.Sleep(30 * time.Second)
		began := time.Now()
		d.Stop()
		if err := d.Wait(); err != nil {
			t.Fatal(err)
		}
		// What waits in the sinks, what is in flight, and the bounded queues of the lanes.
		if took := time.Since(began); took < lineFor/2 || took > 15*time.Second {
			t.Errorf("stopping took %v", took)
		}
		w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, int(d.Summary.Tasks), int(d.Summary.Tasks))
	})
}

// A distribution that ends at once leaves nothing waiting.
func TestWhatWaitsInASinkEndsWithItsDistribution(t *testing.T) {
	slowWorld(t, 1, func(t *testing.T, w *world) {
		dist := w.slowDistributor(&testworld.ListSource{Print: "a", N: 1 << 30}, Options{Pack: 1, Grace: time.Second})
		d := w.startDistributor(dist)
		time.Sleep(20 * time.Second)
		began := time.Now()
		d.Stop()
		if err := d.Wait(); err == nil {
			t.Error("a run that was cut short is no error")
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("stopping took %v", took)
		}
		for _, s := range dist.router.Current().sinks {
			if len(s.waiting) > 0 || s.workers > 0 {
				t.Errorf("%d messages wait for %d workers at %s", len(s.waiting), s.workers, s.name)
			}
		}
	})
}

// A queue that is far away has as many messages in flight as its limit needs, one that is near no more than that.
func TestMessagesInFlightFitHowLongPutsTake(t *testing.T) {
	for name, c := range map[string]struct {
		latency     time.Duration
		least, most int
	}{
		"near": {time.Millisecond, inFlightLeast, inFlightLeast},
		"far":  {40 * time.Millisecond, 150, 230},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 1, func(s *azsim.Config) { s.Latency = c.latency }, func(t *testing.T, w *world) {
				d := w.distributor("d", &testworld.ListSource{Print: "a", N: 5000}, Options{Pack: 1})
				if _, err := d.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := d.router.Current().sinks[0].inFlight; n < c.least || n > c.most {
					t.Errorf("%d in flight, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}
