package worlds

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// However long a task takes, a lone processor gets through: nothing is fetched
// only to be given back, and the handlers are kept busy.
func TestSlowHandlersAreKeptBusyAndNothingIsFetchedInVain(t *testing.T) {
	proof.Only(t)
	for _, took := range []time.Duration{time.Second, 20 * time.Second, 60 * time.Second, 10 * time.Minute} {
		for _, each := range []int{1, 10, 200} {
			t.Run(fmt.Sprintf("%v, %d a message", took, each), func(t *testing.T) {
				inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
					const rounds = 6
					tasks := w.Spread(64*rounds/each/4+1, each)
					h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, took) }}
					s := w.drain(h, processor.Options{Concurrency: 64, Timeout: -1, UntilIdle: 10 * time.Second})
					h.Expect(t, tasks, tasks)
					ideal := time.Duration((tasks+63)/64) * took
					spent := time.Duration(s.Seconds*float64(time.Second)) - 10*time.Second
					t.Logf("%d tasks in %v, at best %v; %d messages taken, %d tasks released", tasks, spent, ideal, s.Envelopes, s.Released)
					if s.Released > 0 || s.Lost > 0 || s.Envelopes != int64(tasks/each) {
						t.Errorf("%d messages of %d tasks: %+v", tasks/each, tasks, s)
					}
					if spent > ideal+ideal/10+took+5*time.Second {
						t.Errorf("%d tasks of %v took %v, at best %v", tasks, took, spent, ideal)
					}
				})
			})
		}
	}
}

// Memory is bounded also where the handlers are not what holds things up: what
// waits to be settled is in memory as well.
func TestMemoryForWhatWaitsToBeSettledIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		text func(w *world) []byte
	}{
		{"failed tasks that cannot be put back", func(*world) []byte { return testworld.Incompressible(40 << 10) }},
		{"messages that cannot be quarantined", func(w *world) []byte {
			return w.Sealed(codec.Header{Workload: "other", Run: w.Run}, codec.Task{Body: testworld.Incompressible(40 << 10)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
				text := c.text(w)
				for range 50 {
					for _, s := range setup.Shards(w.Cfg) {
						w.PutText(s.Account, s.Queue, text)
					}
				}
				w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "PutMessage", "UpdateMessage", "DeleteMessage")
				h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return testworld.ErrFlop }}
				p := w.start(w.processor(h, processor.Options{MaxBytes: 4 << 20, Grace: time.Second}))
				time.Sleep(20 * time.Second)
				// None was settled, so all that were taken are held.
				taken := int(p.End().Envelopes)
				if most := (4 << 20) / (40 << 10); taken > most || taken < 20 {
					t.Errorf("%d messages of 40 KiB or more were held, at most %d may be", taken, most)
				}
			})
		})
	}
}

func TestWhatOneAccountCannotSettleLeavesMemoryForTheOthers(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		text := testworld.Incompressible(40 << 10)
		for range 60 {
			for _, s := range setup.Shards(w.Cfg) {
				w.PutText(s.Account, s.Queue, text)
			}
		}
		w.Fault(azsim.Rule{Account: "accounta", Fault: azsim.FailBefore}, "PutMessage", "UpdateMessage", "DeleteMessage")
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return testworld.ErrFlop }}
		p := w.start(w.processor(h, processor.Options{MaxBytes: 4 << 20, Grace: time.Second, Retry: pump.RetryPolicy{Base: time.Hour}}))
		time.Sleep(30 * time.Second)
		left := 0
		for _, q := range []string{"work-00", "work-01"} {
			left += w.Visible("accountb", q)
		}
		if left > 0 {
			t.Errorf("%d or more messages of the healthy account are left after 30 s", left)
		}
		p.End()
	})
}
