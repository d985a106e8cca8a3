package engine

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// noted is what all processors have noted of the world's run.
func (w *world) noted() (sum workload.Tally, rows int) {
	w.t.Helper()
	all, err := workload.Tallies(w.t.Context(), queues.Open(&w.cfg, row.TableName).Control, "work", w.run)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, t := range all {
		sum = sum.Add(t)
	}
	return sum, len(all)
}

// TestTalliesSayWhatWasDoneOfARun (origins B1): while it goes on, a beat late,
// and at its end exactly; also by a processor that is started again under its old name.
func TestTalliesSayWhatWasDoneOfARun(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(2, 10)
		h := &seen{work: func(ctx context.Context, task *pump.Task) error {
			switch {
			case task.N%10 == 3:
				return pump.Reject(errFlop)
			case task.N%10 == 4 && task.Attempt == 1:
				return errFlop
			}
			return pause(ctx, time.Second)
		}}
		p := w.start(w.processor(h, ProcessorOptions{Concurrency: 1}))
		time.Sleep(40 * time.Second)
		under := h.deliveries()
		time.Sleep(7 * time.Second) // a beat and its jitter
		if sum, rows := w.noted(); rows != 1 || int(sum.Handled+sum.Failed) < under-10 || int(sum.Handled) >= tasks {
			t.Errorf("after %d tasks: %+v in %d rows", under, sum, rows)
		}
		first := p.end()
		sum, _ := w.noted()
		if int64(sum.Handled) != first.Handled || int64(sum.Failed) != first.Failed+first.Rejected || int64(sum.Retried) != first.Retried || int64(sum.Quarantined) != first.Quarantined {
			t.Errorf("stopped: %+v of %+v", sum, first)
		}
		second := w.drain(h, ProcessorOptions{})
		want := workload.Tally{
			Handled: uint64(first.Handled + second.Handled), Failed: uint64(first.Failed + second.Failed + first.Rejected + second.Rejected),
			Retried: uint64(first.Retried + second.Retried), Quarantined: uint64(first.Quarantined + second.Quarantined),
		}
		sum, rows := w.noted()
		sum.Met, sum.Hides = 0, 0
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
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(time.Minute)
		w.put("accountb", "work-00", 1, 1)
		time.Sleep(10 * time.Second) // the run is known
		w.fault(azsim.Rule{Account: "accounta", Service: "table", Fault: azsim.HangBefore})
		w.put("accountb", "work-00", 20, 10)
		time.Sleep(20 * time.Second)
		if n := w.count("accountb", "work-00"); n != 0 {
			t.Errorf("%d messages are not settled", n)
		}
		began := time.Now()
		p.end()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the end took %v", took)
		}
		h.expect(t, 201, 201)
	})
}
