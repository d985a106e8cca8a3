package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// noted is what all processors have noted of the world's run.
func (w *world) noted() (sum workload.Tally, rows int) {
	w.T.Helper()
	all, err := workload.Tallies(w.T.Context(), queues.Open(&w.Cfg).Control, "work", w.Run)
	must(w.T, err)
	for _, t := range all {
		sum = sum.Add(t)
	}
	return sum, len(all)
}

// TestTalliesSayWhatWasDoneOfARun (origins B1): while it goes on, a beat late,
// and at its end exactly; also by a processor that is started again under its old name.
func TestTalliesSayWhatWasDoneOfARun(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(2, 10)
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
			switch {
			case task.N%10 == 3:
				return pump.Reject(testworld.ErrFlop)
			case task.N%10 == 4 && task.Attempt == 1:
				return testworld.ErrFlop
			}
			return testworld.Pause(ctx, time.Second)
		}}
		p := w.start(w.processor(h, processor.Options{Concurrency: 1}))
		time.Sleep(40 * time.Second)
		under := h.Deliveries()
		time.Sleep(7 * time.Second) // a beat and its jitter
		if sum, rows := w.noted(); rows != 1 || int(sum.Handled+sum.Failed) < under-10 || int(sum.Handled) >= tasks {
			t.Errorf("after %d tasks: %+v in %d rows", under, sum, rows)
		}
		first := p.End()
		sum, _ := w.noted()
		if int64(sum.Handled) != first.Handled || int64(sum.Failed) != first.Failed+first.Rejected || int64(sum.Retried) != first.Retried || int64(sum.Quarantined) != first.Quarantined {
			t.Errorf("stopped: %+v of %+v", sum, first)
		}
		second := w.drain(h, processor.Options{})
		want := workload.Tally{
			Handled: uint64(first.Handled + second.Handled), Failed: uint64(first.Failed + second.Failed + first.Rejected + second.Rejected),
			Retried: uint64(first.Retried + second.Retried), Quarantined: uint64(first.Quarantined + second.Quarantined),
		}
		sum, rows := w.noted()
		sum.Met, sum.Spent, sum.Hides = 0, 0, 0
		if sum != want || rows != 2 {
			t.Errorf("in the end %+v in %d rows, want %+v", sum, rows, want)
		}
		if done := int(want.Handled + want.Quarantined); done != tasks {
			t.Errorf("%d tasks are done, want %d", done, tasks)
		}
	})
}

// TestTalliesDelayNothing: a control account that hangs keeps no task from being
// settled and no processor from ending.
func TestTalliesDelayNothing(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		time.Sleep(time.Minute)
		w.Put("accountb", "work-00", 1, 1)
		time.Sleep(10 * time.Second) // the run is known
		w.Fault(azsim.Rule{Account: "accounta", Service: "table", Fault: azsim.HangBefore})
		w.Put("accountb", "work-00", 20, 10)
		time.Sleep(20 * time.Second)
		if n := w.Count("accountb", "work-00"); n != 0 {
			t.Errorf("%d messages are not settled", n)
		}
		began := time.Now()
		p.End()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the end took %v", took)
		}
		h.Expect(t, 201, 201)
	})
}
