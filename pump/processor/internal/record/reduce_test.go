package record_test

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
)

// taskCounter counts tasks; some fail at first.
func taskCounter(fails func(t *pump.Task) bool) *reduce.Reducer[uint64, uint64] {
	return &reduce.Reducer[uint64, uint64]{
		Name: "counting/1",
		Map: func(_ context.Context, t *pump.Task) (uint64, error) {
			if fails != nil && fails(t) {
				return 0, pump.RetryAfter(time.Second, testworld.ErrFlop)
			}
			return 1, nil
		},
		Fold: func(state *uint64, d uint64) { *state += d },
	}
}

// counted is the sum of all segments' states.
func counted(w *testworld.World, r *reduce.Reducer[uint64, uint64]) (n uint64) {
	w.T.Helper()
	for state, err := range r.States(w.T.Context(), w.Cfg) {
		proof.Must(w.T, err)
		n += state
	}
	return n
}

// P3.3 holds for contributions in both modes: committed, and then the message goes. A
// message that is delivered again counts again at least once, and is recognised in once.
func TestP33ContributionsAreCommittedBeforeTheirMessageIsGone(t *testing.T) {
	proof.Only(t)
	for _, delivery := range []pump.Delivery{pump.AtLeastOnce, pump.Once} {
		t.Run(string(delivery), func(t *testing.T) {
			testworld.In(t, workload.Spec{Delivery: string(delivery)}, 1, 4, nil, func(t *testing.T, w *testworld.World) {
				r := taskCounter(func(t *pump.Task) bool { return t.N == 3 && t.Attempt == 1 })
				p := testworld.Begun(w, processor.New, "p", r.Handler(), processor.Options{})
				w.Settled(1)
				time.Sleep(2 * time.Second)
				undeleted := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage", "UpdateMessage")
				tasks := w.PutHome(w.EverySegment(), 5)
				first := tasks / 5 * 4 // the fourth of each has failed
				w.Within(time.Minute, "all but what failed counts", func() bool { return counted(w, r) == uint64(first) })
				w.Crash("p")
				q := testworld.Begun(w, processor.New, "q", r.Handler(), processor.Options{})
				w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
				s := q.End()
				p.Stop()
				<-p.Done
				want, duplicates := tasks+first, 0
				if delivery == pump.Once {
					want, duplicates = tasks, first
				}
				if got := counted(w, r); got != uint64(want) || s.Duplicates != int64(duplicates) || undeleted.Hits() == 0 {
					t.Errorf("%d counted, want %d; %+v", got, want, s)
				}
			})
		})
	}
}

// asked is what the simulator has been asked of each service.
func asked(w *testworld.World) (r sampling.Requests) {
	for _, c := range w.Sim.Stats().Requests {
		if c.Service == "table" {
			r.Table += uint64(c.Count)
		} else {
			r.Queue += uint64(c.Count)
		}
	}
	return r
}

// What a middleware calls done without the reducer, or although the reducer failed, is done and
// adds nothing to the state.
func TestWhatAMiddlewareCallsDoneByItselfIsNotFolded(t *testing.T) {
	for _, spec := range []workload.Spec{testworld.Once, testworld.Plain} {
		testworld.In(t, spec, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			r := taskCounter(func(t *pump.Task) bool { return t.N == 1 })
			r.Fold = func(state *uint64, _ uint64) { *state++ }
			account, queue := w.Home(testworld.Greeted)
			w.PutText(account, queue, testworld.Greeting)
			w.PutTasks(testworld.Greeted, 0, 1, 2)
			s := testworld.Ran(w, processor.New, "p", r.Handler(), processor.Options{
				UntilIdle: 5 * time.Second,
				Use: []processor.Middleware{func(ctx context.Context, tasks []*pump.Task, next processor.Next) (errs []error) {
					own := tasks[0].Foreign == ""
					if !own || tasks[0].N > 0 {
						errs = next(ctx, tasks)
					}
					if own && tasks[0].N < 2 {
						return nil
					}
					return errs
				}},
			})
			if n := counted(w, r); n != 2 || s.Handled != 4 || w.Left() != 0 {
				t.Errorf("%d counted, %d left, %+v", n, w.Left(), s)
			}
		})
	}
}
