package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

const saidUnproven = "sealed runs have ended though tasks of them are not recorded as done"

// The row of a closed run comes back as it was when the run was sealed, after owners have forgotten
// the run. The run ends by itself, loudly. A copy of its task that comes then is neither done again
// nor lost.
func TestAClosedRunThatIsSealedAgainEndsByItselfLoudly(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		account, queue := w.Home(7)
		h := &testworld.Seen{}
		id := w.oneTask(7)
		sealed := w.rowsOf("work.runs")
		p := w.start(w.processor(h, processor.Options{}))
		w.Within(5*time.Minute, "the run is closed", func() bool { return w.RunRow(id).State == workload.RunClosed })
		time.Sleep(2 * time.Minute)
		sealed.Restore()
		if row := w.RunRow(id); row.State != workload.RunSealed {
			t.Fatalf("it came back as %s", row.State)
		}
		time.Sleep(30 * time.Minute)
		if row := w.RunRow(id); row.State != workload.RunSealed {
			t.Errorf("half an hour later, while something of it may still come, it is %s", row.State)
		}
		time.Sleep(2 * time.Hour)
		if row := w.RunRow(id); row.State != workload.RunEnded || !row.Over {
			t.Errorf("two and a half hours later it is %s, over: %v", row.State, row.Over)
		}
		if n := w.Logged(saidUnproven); n != 1 {
			t.Errorf("it is said %d times", n)
		}
		w.PutText(account, queue, w.copyOf(id, 7))
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, 1, 1)
		if _, cause := w.Cause(account); cause.Reason != codec.ReasonRunEnded {
			t.Errorf("a copy of its task is in quarantine for %q", cause.Reason)
		}
	})
}

// A run that has lost tasks is kept for a repair for as long as rows are kept, and then ends, too.
func TestASealedRunWhoseTasksWereLostWaitsForARepair(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		lost, partly := w.sealedRun(3, 2), w.sealedRun(3, 2)
		s.record(partly.ID, below([]uint64{3, 1}), nil)
		w.noteHandled(partly.ID, 4)
		c := w.closer("c")
		w.closesFor(c, 5*time.Hour)
		states := func(want workload.RunState) {
			t.Helper()
			for _, id := range []pump.RunID{lost.ID, partly.ID} {
				if row := w.RunRow(id); row.State != want {
					t.Errorf("%v after it was sealed a run is %s, want %s", time.Since(row.Ended), row.State, want)
				}
			}
		}
		states(workload.RunSealed)
		time.Sleep(w.Cfg.Retention + 7*24*time.Hour)
		w.closesFor(c, 3*time.Hour)
		states(workload.RunEnded)
		if w.Logged(saidUnproven) == 0 {
			t.Error("nothing is said")
		}
	})
}

// A sealed run ends neither while queues are not read nor while one of its tasks is hidden.
func TestASealedRunOfWhichTheLedgerKnowsNothingIsNotOverWhileSomethingMayCome(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		unread, hidden := w.sealedRun(3), w.sealedRun(3)
		w.noteHandled(unread.ID, 3)
		w.noteHandled(hidden.ID, 3)
		c := w.closer("c")
		c.Far = func(context.Context) (closing.Horizon, error) { return closing.Horizon{}, nil }
		w.closesFor(c, 4*time.Hour)
		if row := w.RunRow(unread.ID); row.State != workload.RunSealed {
			t.Errorf("while no queue is read it is %s", row.State)
		}
		c = w.closer("d")
		must(t, workload.NoteTallies(t.Context(), w.Table(), "work", "q", workload.RunTally{Run: hidden.ID, Tally: workload.Tally{Handled: 2, Hides: 6 * time.Hour}}))
		w.closesFor(c, 4*time.Hour)
		if row := w.RunRow(unread.ID); row.State != workload.RunEnded || !row.Over {
			t.Errorf("four hours after its queues were read it is %s", row.State)
		}
		if row := w.RunRow(hidden.ID); row.State != workload.RunSealed {
			t.Errorf("while one of its tasks is hidden it is %s", row.State)
		}
		w.closesFor(c, 5*time.Hour)
		if row := w.RunRow(hidden.ID); row.State != workload.RunEnded {
			t.Errorf("hours after its task came back it is %s", row.State)
		}
	})
}

// copyOf is the text of the first task of a run.
func (w *world) copyOf(run pump.RunID, segment uint32) []byte {
	return w.Text(segment, func(h *codec.Header) { h.Run = run }, 0)
}

// noteHandled notes on the blackboard that a processor has handled tasks of a run.
func (w *world) noteHandled(run pump.RunID, tasks uint64) {
	w.T.Helper()
	must(w.T, workload.NoteTallies(w.T.Context(), w.Table(), "work", "p", workload.RunTally{Run: run, Tally: workload.Tally{Handled: tasks}}))
}
