package processor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
)

// TestWhatHasNotChangedIsNotWrittenAgain, or an idle cluster would not be one.
func TestWhatHasNotChangedIsNotWrittenAgain(t *testing.T) {
	wrote := map[pump.RunID]int{}
	ts := base.NewTallies(func(_ context.Context, tallies []workload.RunTally) error {
		for _, t := range tallies {
			wrote[t.Run]++
		}
		return nil
	})
	a, b := pump.RunID{1}, pump.RunID{2}
	ts.Add(a, workload.Tally{Handled: 1})
	ts.Add(b, workload.Tally{Handled: 1})
	ts.Add(pump.RunID{}, workload.Tally{Handled: 1}) // foreign
	ts.Add(b, workload.Tally{})
	for range 3 {
		ts.Flush(t.Context())
	}
	ts.Add(b, workload.Tally{Failed: 1})
	ts.Flush(t.Context())
	if len(wrote) != 2 || wrote[a] != 1 || wrote[b] != 2 {
		t.Errorf("written: %v", wrote)
	}
}

// TestATallyThatCannotBeWrittenIsWrittenLater, and costs one request a beat until then.
func TestATallyThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	var requests, written int
	broken := true
	var last workload.Tally
	ts := base.NewTallies(func(_ context.Context, tallies []workload.RunTally) error {
		requests++
		if broken {
			return errors.New("dark")
		}
		written += len(tallies)
		last = tallies[len(tallies)-1].Tally
		return nil
	})
	for i := range 300 {
		ts.Add(pump.RunID{byte(i), byte(i >> 8), 1}, workload.Tally{Handled: 1})
	}
	ts.Flush(t.Context())
	ts.Flush(t.Context())
	proof.Same(t, requests, 2, "requests in two beats")
	broken, requests = false, 0
	ts.Add(pump.RunID{0, 0, 1}, workload.Tally{Handled: 1}) // changes last, so it comes last
	for range 5 {
		ts.Flush(t.Context())
	}
	if requests != 3 || written != 300 || last.Handled != 2 {
		t.Errorf("%d were written in %d requests, the last: %+v", written, requests, last)
	}
}

// TestOfManyRunsTheOldAreForgotten: first those that are written, then the others, or a control
// plane that is dark would let them fill the memory.
func TestOfManyRunsTheOldAreForgotten(t *testing.T) {
	ts := base.NewTallies(func(context.Context, []workload.RunTally) error { return nil })
	unwritten := codec.NewRunID()
	for i := range 3 * base.TalliesKept {
		run := pump.RunID{byte(i >> 8), byte(i), 1}
		ts.Add(run, workload.Tally{Handled: 1})
		ts.Runs[run].Written = ts.Runs[run].Now
		if i == 0 {
			ts.Add(unwritten, workload.Tally{Handled: 1})
		}
	}
	if n := len(ts.Runs); n > base.TalliesKept+1 || n < base.TalliesKept/2 || ts.Runs[unwritten] == nil {
		t.Errorf("%d are kept, what was not written: %v", n, ts.Runs[unwritten])
	}
	for i := range 3 * base.TalliesKept {
		ts.Add(pump.RunID{byte(i >> 8), byte(i), 2}, workload.Tally{Handled: 1})
	}
	if n := len(ts.Runs); n > base.TalliesKept+1 || n < base.TalliesKept/2 {
		t.Errorf("%d are kept of which nothing was written", n)
	}
}

// TestTalliesKeepUpWithTheRuns (A1): 100 runs a second are written of as fast as they are made.
func TestTalliesKeepUpWithTheRuns(t *testing.T) {
	written := 0
	ts := base.NewTallies(func(_ context.Context, tallies []workload.RunTally) error { written += len(tallies); return nil })
	const aBeat = 100 * int(member.DefaultBeat/time.Second)
	for beat := range 200 {
		for i := range aBeat {
			ts.Add(pump.RunID{byte(i), byte(i >> 8), byte(beat), 1}, workload.Tally{Handled: 1})
		}
		ts.Flush(t.Context())
		if made := (beat + 1) * aBeat; written != made || len(ts.Runs) > base.TalliesKept+1 {
			t.Fatalf("after %d beats %d of %d are written, %d kept", beat+1, written, made, len(ts.Runs))
		}
	}
}
