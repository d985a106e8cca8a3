package distributor_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
)

// A processor that cannot read an envelope puts it back for a minute, so none is written that not
// all processors read (P4.6).
func TestP46EnvelopesAreOfTheFormatThatAllProcessorsRead(t *testing.T) {
	const traced = 3 // a distributor writes nothing that is newer
	for name, c := range map[string]struct {
		reads []int
		want  uint8
	}{
		"all new":    {[]int{codec.Version, codec.Version}, traced},
		"one old":    {[]int{codec.Version, 1}, 1},
		"one before": {[]int{codec.Version, 2}, 2},
		"one newer":  {[]int{codec.Version + 1}, traced},
		"damaged":    {[]int{0}, 1},
		"none":       {nil, traced},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				for i, reads := range c.reads {
					w.Joined(fmt.Sprint("p", i), cluster.RoleProcessor, cluster.Report{Accounts: []string{"accounta"}, Reads: reads})
				}
				w.Joined("other", cluster.RoleDistributor, cluster.Report{Reads: 1}) // reads nothing
				cfg := w.Cfg
				cfg.Instance = "d"
				cfg.TracerProvider = sdk.NewTracerProvider() // a traced task needs that format
				d, err := distributor.New(cfg, source.FromSeq(func(yield func(source.Record, error) bool) {
					time.Sleep(5 * time.Second) // it has joined
					yield(source.Record{Key: []byte("key"), Body: []byte("body")}, nil)
				}), distributor.Options{})
				proof.Must(t, err)
				proof.Must(t, proof.ErrOf(d.Run(t.Context())))
				ms, err := w.Queue("accounta", "work-00").Peek(t.Context(), storage.MaxGet)
				if err != nil || len(ms) != 1 {
					t.Fatalf("%d messages, %v", len(ms), err)
				}
				h, err := codec.ReadHeader(ms[0].Text)
				if err != nil || h.Version != c.want || h.Sealed.IsZero() != (c.want == 1) {
					t.Errorf("version %d, sealed at %v, want version %d; %v", h.Version, h.Sealed, c.want, err)
				}
			})
		})
	}
}

func TestMaxRateOfADistributorIsOfItsSource(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 101}
		began := time.Now()
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{MaxRate: 10}).Run(t.Context())
		if took := time.Since(began); err != nil || took < 10*time.Second || took > 12*time.Second {
			t.Errorf("101 tasks at 10 a second took %v, %v", took, err)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 101, 101)
	})
}

// The election's row goes, or comes back as it was, in the middle of a run. The run goes on, by who
// knows how far it came or, if that process dies, from its start: with the same identities.
func TestTheRunOfAnElectionRowThatIsNoMoreGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		before  time.Duration // the row comes back as it was then; 0: it is gone
		dies    bool          // the leader does, at the same time
		handled int           // at most, in mode at-least-once
	}{
		"gone":                                 {0, false, 3000 + 50},
		"gone, and its leader dies":            {0, true, 2*3000 + 200},
		"of before the first run":              {time.Second, false, 3000 + 50},
		"of a minute before":                   {70 * time.Second, false, 3000 + 50},
		"of a minute before, the leader dies":  {70 * time.Second, true, 2*3000 + 200},
		"of an earlier beat, the leader lives": {100 * time.Second, false, 3000 + 50},
	} {
		for _, delivery := range []string{string(pump.Once), ""} {
			t.Run(name+" "+delivery, func(t *testing.T) {
				testworld.In(t, workload.Spec{Delivery: delivery}, 2, 2, nil, func(t *testing.T, w *testworld.World) {
					h := &testworld.Seen{}
					p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
					w.Settled(1)
					began := time.Now()
					var kept *azsim.Snapshot
					after := time.AfterFunc(c.before, func() { kept = w.Sim.Snapshot("accounta", row.TableName, workload.ElectionPartition("work")) })
					defer after.Stop()
					o := distributor.Options{SealAge: time.Second, Every: time.Minute}
					first := testworld.Begun(w, distributor.New, "c", &testworld.ListSource{Print: "a", N: 100}, o) // one run before, of a term of its own
					time.Sleep(30 * time.Second)
					first.Stop()
					<-first.Done
					before := h.Deliveries()
					s := &testworld.ListSource{Print: "a", N: 3000, Pace: 20 * time.Millisecond}
					o.Every = time.Hour
					d := testworld.Begun(w, distributor.New, "d", s, o)
					e := testworld.Begun(w, distributor.New, "e", s, o)
					time.Sleep(time.Until(began.Add(115 * time.Second)))
					epoch := lookRow(w).Epoch
					leader, other := d, e
					if lookRow(w).Leader == "e" {
						leader, other = e, d
					}
					if c.before > 0 {
						kept.Restore()
					} else {
						w.Sim.DropRows("accounta", row.TableName, workload.ElectionPartition("work"), func(string) bool { return true })
					}
					if c.dies {
						w.Sim.Inject(azsim.Rule{Instance: elected(w)[0].Instance, Fault: azsim.FailBefore})
					}
					time.Sleep(110 * time.Second)
					runs := elected(w)
					if len(runs) != 2 || runs[0].Tasks != 3000 || runs[0].Epoch <= epoch {
						t.Errorf("the last term was %d; %d runs, the newest of %d tasks and of term %d", epoch, len(runs), runs[0].Tasks, runs[0].Epoch)
					}
					if n := w.Logged("the election row was gone, or had come back"); n != 1 && c.before < time.Minute {
						t.Errorf("it is said %d times", n)
					}
					most := c.handled
					if delivery == string(pump.Once) {
						most = 3000
					}
					if n := h.Deliveries() - before; n < 3000 || n > most {
						t.Errorf("%d handlings of 3000 tasks, want %d at most", n, most)
					}
					proof.Same(t, h.Tasks(), 3100, "identities")
					leader.Stop()
					<-leader.Done
					other.Stop()
					<-other.Done
					p.End()
				})
			})
		}
	}
}

// W5: a processor that handles 20 tasks a second gets envelopes of 100, which take envelopeFor. A
// fast one gets full ones.
func TestThePackerFollowsTheMeasuredTimeOfHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int64 // envelopes of the run of 1,000 tasks
	}{"slow": {200 * time.Millisecond, 10}, "fast": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, c.takes) }}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 4})
				w.Spread(1, 20)
				time.Sleep(20 * time.Second) // measured, and said in a beat
				s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond, Key: func(int) string { return "one" }}
				summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{}).Run(t.Context())
				proof.Must(t, err)
				// The handlers' time is measured to a few thousandths, so the last envelope may hold little.
				if n := summary.Envelopes; n < c.want || n > c.want+1 {
					t.Errorf("%d envelopes of 1,000 tasks, want %d", n, c.want)
				}
				p.End()
			})
		})
	}
}

// P8.2: a guest knows whom to nudge, also after a processor has taken another's place.
func TestASenderThatIsAGuestNudges(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		var processors sync.Map // by instance
		carry := func(ctx context.Context, n pump.Nudge) error {
			p, ok := processors.Load(n.Instance)
			if err := testworld.Pause(ctx, 5*time.Millisecond); err != nil || !ok {
				return cmp.Or(err, testworld.ErrFlop)
			}
			p.(*processor.Processor).Nudged(n)
			return nil
		}
		h := &testworld.Seen{}
		start := func(name string) *testworld.Started[*processor.Processor, processor.Summary] {
			cfg := w.Config(name, 4)
			cfg.Admin, cfg.Nudge = name+":1", carry
			p, err := processor.New(cfg, h, processor.Options{})
			proof.Must(t, err)
			processors.Store(name, p)
			return testworld.Start(t, p)
		}
		p := start("p")
		w.Settled(1)
		cfg := w.Config("d", 4)
		cfg.Nudge, sim.In(&cfg).Lanes = carry, 1
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
		proof.Must(t, err)
		slow := 0
		send := func(n int) {
			for i := range n {
				time.Sleep(5 * time.Minute) // until the queues are asked least
				before, began := h.Deliveries(), time.Now()
				proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprint(i))))
				for h.Deliveries() == before {
					time.Sleep(time.Millisecond)
				}
				if time.Since(began) > 200*time.Millisecond {
					slow++
				}
			}
		}
		send(5)
		if slow > 0 {
			t.Errorf("%d of 5 tasks were begun late", slow)
		}
		q := start("q")
		p.End()
		send(5)
		if slow > 2 { // the first after the change, whose nudge goes to who left
			t.Errorf("%d of 5 tasks were begun late after the change", slow)
		}
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
		q.End()
	})
}
