package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/member"
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

// TestWhatHasNotChangedIsNotWrittenAgain, or an idle cluster would not be one.
func TestWhatHasNotChangedIsNotWrittenAgain(t *testing.T) {
	wrote := map[pump.RunID]int{}
	ts := newTallies(func(_ context.Context, tallies []workload.RunTally) error {
		for _, t := range tallies {
			wrote[t.Run]++
		}
		return nil
	})
	a, b := pump.RunID{1}, pump.RunID{2}
	ts.add(a, workload.Tally{Handled: 1})
	ts.add(b, workload.Tally{Handled: 1})
	ts.add(pump.RunID{}, workload.Tally{Handled: 1}) // foreign
	ts.add(b, workload.Tally{})
	for range 3 {
		ts.flush(t.Context())
	}
	ts.add(b, workload.Tally{Failed: 1})
	ts.flush(t.Context())
	if len(wrote) != 2 || wrote[a] != 1 || wrote[b] != 2 {
		t.Errorf("written: %v", wrote)
	}
}

// TestATallyThatCannotBeWrittenIsWrittenLater, and costs one request a beat until then.
func TestATallyThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	var requests, written int
	broken := true
	var last workload.Tally
	ts := newTallies(func(_ context.Context, tallies []workload.RunTally) error {
		requests++
		if broken {
			return errors.New("dark")
		}
		written += len(tallies)
		last = tallies[len(tallies)-1].Tally
		return nil
	})
	for i := range 300 {
		ts.add(pump.RunID{byte(i), byte(i >> 8), 1}, workload.Tally{Handled: 1})
	}
	ts.flush(t.Context())
	ts.flush(t.Context())
	if requests != 2 {
		t.Errorf("%d requests in two beats", requests)
	}
	broken, requests = false, 0
	ts.add(pump.RunID{0, 0, 1}, workload.Tally{Handled: 1}) // changes last, so it comes last
	for range 5 {
		ts.flush(t.Context())
	}
	if requests != 3 || written != 300 || last.Handled != 2 {
		t.Errorf("%d were written in %d requests, the last: %+v", written, requests, last)
	}
}

// TestOfManyRunsTheOldAreForgotten: first those that are written, then the others, or a control plane that is
// dark would let them fill the memory.
func TestOfManyRunsTheOldAreForgotten(t *testing.T) {
	ts := newTallies(func(context.Context, []workload.RunTally) error { return nil })
	unwritten := codec.NewRunID()
	for i := range 3 * talliesKept {
		run := pump.RunID{byte(i >> 8), byte(i), 1}
		ts.add(run, workload.Tally{Handled: 1})
		ts.runs[run].written = ts.runs[run].now
		if i == 0 {
			ts.add(unwritten, workload.Tally{Handled: 1})
		}
	}
	if n := len(ts.runs); n > talliesKept+1 || n < talliesKept/2 || ts.runs[unwritten] == nil {
		t.Errorf("%d are kept, what was not written: %v", n, ts.runs[unwritten])
	}
	for i := range 3 * talliesKept {
		ts.add(pump.RunID{byte(i >> 8), byte(i), 2}, workload.Tally{Handled: 1})
	}
	if n := len(ts.runs); n > talliesKept+1 || n < talliesKept/2 {
		t.Errorf("%d are kept of which nothing was written", n)
	}
}

// TestTalliesKeepUpWithTheRuns (A1): 100 runs a second are written of as fast as they are made.
func TestTalliesKeepUpWithTheRuns(t *testing.T) {
	written := 0
	ts := newTallies(func(_ context.Context, tallies []workload.RunTally) error { written += len(tallies); return nil })
	const aBeat = 100 * int(member.DefaultBeat/time.Second)
	for beat := range 200 {
		for i := range aBeat {
			ts.add(pump.RunID{byte(i), byte(i >> 8), byte(beat), 1}, workload.Tally{Handled: 1})
		}
		ts.flush(t.Context())
		if made := (beat + 1) * aBeat; written != made || len(ts.runs) > talliesKept+1 {
			t.Fatalf("after %d beats %d of %d are written, %d kept", beat+1, written, made, len(ts.runs))
		}
	}
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
