package quarantine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// interrupted is a world with one task of a run in quarantine, and a processor.
type interrupted struct {
	*testworld.World
	run      pump.RunID
	segment  uint32
	handled  *testworld.Seen
	redriven int // messages of the last redrive
	kept     []string
}

const interruptedIn = 7

func inInterrupted(t *testing.T, test func(t *testing.T, w *interrupted)) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		i := &interrupted{World: w, run: w.ManyRun(), segment: interruptedIn, handled: &testworld.Seen{}}
		p := testworld.Begun(w, processor.New, "p", i.handled, processor.Options{})
		w.Settled(1)
		text := w.Text(i.segment, func(h *codec.Header) { h.Run = i.run }, 0)
		text, err := codec.Quarantined(text, codec.Cause{Reason: codec.ReasonRejected, Instance: "p", Last: time.Now()})
		proof.Must(t, err)
		w.PutText("accounta", workload.PoisonQueue("work"), text)
		time.Sleep(time.Second)
		test(t, i)
		p.End()
	})
}

// ends ends the run, as an operator does.
func (w *interrupted) ends() {
	w.T.Helper()
	proof.Must(w.T, w.AllRuns().End(w.T.Context(), w.run, false, "by a test"))
	time.Sleep(time.Minute) // everybody has learned of it
}

// interrupt redrives the task; the put lands, and the delete never.
func (w *interrupted) interrupt(o quarantine.Options) {
	w.T.Helper()
	fault := w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.FailBefore}, "DeleteMessage")
	w.again(o)
	fault.Remove()
	if len(w.kept) != 1 || !strings.Contains(w.kept[0], "still in quarantine as well") {
		w.T.Fatalf("the redrive was not interrupted: %q", w.kept)
	}
}

// again redrives what is in quarantine.
func (w *interrupted) again(o quarantine.Options) {
	w.T.Helper()
	w.redriven, w.kept = 0, nil
	for _, out := range redrive(w.World, quarantine.Filter{}, o) {
		if out.Outcome == quarantine.Redriven {
			w.redriven++
		} else {
			w.kept = append(w.kept, out.Problem)
		}
	}
	time.Sleep(time.Minute)
}

// expect checks how often the task was done and how many messages are in quarantine.
func (w *interrupted) expect(what string, done, quarantined int) {
	w.T.Helper()
	proof.Same(w.T, w.handled.Deliveries(), done, what, "times the task was done")
	proof.Same(w.T, len(w.Poisoned("accounta")), quarantined, what, "messages are in quarantine")
}

// forgets has the segment keep so many names of later tasks that the oldest go by age.
func (w *interrupted) forgets() {
	w.T.Helper()
	account, queue := w.Home(w.segment)
	const each = 512
	for i := range ledger.MaxForeign/4/each + 2 {
		tasks := make([]codec.Task, each)
		for n := range tasks {
			tasks[n] = codec.Task{N: uint64(n), ID: fmt.Appendf(nil, "other/%d-%d", i, n)}
		}
		w.PutText(account, queue, w.Sealed(codec.Header{Workload: "work", Segment: w.segment, MapVersion: 1}, tasks...))
		if i == ledger.MaxForeign/4/each {
			time.Sleep(30 * time.Minute) // the last is what is recorded when the others are old
		}
	}
	time.Sleep(time.Minute)
}

// A redrive of a task whose run has ended was interrupted, and the task was done. A second one
// finds it done.
func TestARedriveThatWasInterruptedIsRecognisedWhenTheRunHasEnded(t *testing.T) {
	inInterrupted(t, func(t *testing.T, w *interrupted) {
		w.ends()
		w.interrupt(quarantine.Options{})
		w.expect("after the first redrive", 1, 1)
		w.again(quarantine.Options{})
		w.expect("after the second one", 1, 0)
		proof.Same(t, w.redriven, 1, "kept", w.kept)
		if begun, err := workload.RedrivesBegun(t.Context(), w.Table(), "work"); err != nil || len(begun) > 0 {
			t.Errorf("%d redrives are not over, %v", len(begun), err)
		}
	})
}

// The run was open at the first redrive, and has ended at the second.
func TestARedriveThatWasInterruptedIsRecognisedThoughTheRunHasEndedSince(t *testing.T) {
	inInterrupted(t, func(t *testing.T, w *interrupted) {
		w.interrupt(quarantine.Options{})
		w.ends()
		w.again(quarantine.Options{})
		w.expect("after the second redrive", 1, 0)
	})
}

// The run's row was gone at the first redrive, and is there again at the second: the task is
// recorded in its run.
func TestARedriveThatWasInterruptedIsRecognisedWhenTheRowIsThereAgain(t *testing.T) {
	inInterrupted(t, func(t *testing.T, w *interrupted) {
		rows := w.World.Sim.Snapshot("accounta", row.TableName, "work.runs")
		w.Sim.DropRows("accounta", "queuepump", "work.runs", func(string) bool { return true })
		time.Sleep(time.Minute)
		w.interrupt(quarantine.Options{Again: true})
		w.expect("after the first redrive", 1, 1)
		rows.Restore()
		time.Sleep(5 * time.Minute)
		w.again(quarantine.Options{})
		w.expect("after the second redrive", 1, 0)
		for r, err := range ledger.ReadRecord(t.Context(), w.Table(), "work", w.Segments()) {
			if err != nil || r.Segment == w.segment && !r.Done(w.run, 0) {
				t.Errorf("the task is not recorded in its run, %v", err)
			}
		}
	})
}

// Much later, when the task's name is forgotten, a second redrive keeps the task and says why. An
// operator who knows better has it done.
func TestARedriveThatWasInterruptedIsRefusedWhenWhatIsDoneIsForgotten(t *testing.T) {
	proof.Only(t)
	for _, state := range []string{"ended before", "ended since and over", "gone"} {
		t.Run(state, func(t *testing.T) {
			inInterrupted(t, func(t *testing.T, w *interrupted) {
				switch state {
				case "ended before":
					w.ends()
					w.interrupt(quarantine.Options{})
				case "ended since and over":
					w.interrupt(quarantine.Options{})
					w.ends()
				case "gone":
					w.Sim.DropRows("accounta", "queuepump", "work.runs", func(row string) bool { return strings.Contains(row, w.run.String()) })
					time.Sleep(time.Minute)
					w.interrupt(quarantine.Options{Again: true})
				}
				time.Sleep(3 * time.Hour)
				w.forgets()
				w.expect("in the end of the others", 1+w.others(), 1)
				w.again(quarantine.Options{})
				w.expect("after the second redrive", 1+w.others(), 1)
				if len(w.kept) != 1 || !strings.Contains(w.kept[0], "--again") {
					t.Errorf("%d are redriven, kept: %q", w.redriven, w.kept)
				}
				w.again(quarantine.Options{Again: true})
				w.expect("after one that is made again on purpose", 2+w.others(), 0)
			})
		})
	}
}

// others are how many tasks are done but for that of the run.
func (w *interrupted) others() (n int) {
	for _, task := range w.handled.Order {
		if task.Run != w.run {
			n++
		}
	}
	return n
}

// A message that was surely not put is no redrive that may be done.
func TestARedriveThatPutNothingIsNotTakenForOneThatMayBeDone(t *testing.T) {
	inInterrupted(t, func(t *testing.T, w *interrupted) {
		w.ends()
		account, queue := w.Home(w.segment)
		fault := w.Fault(azsim.Rule{Instance: "operator", Account: account, Object: queue, Fault: azsim.Answer, Status: 403, Code: "AuthorizationFailure"}, "PutMessage")
		w.again(quarantine.Options{})
		fault.Remove()
		w.expect("after a redrive that was refused", 0, 1)
		time.Sleep(30 * time.Minute) // within which the run is not over
		w.again(quarantine.Options{})
		w.expect("after the next one", 1, 0)
	})
}

// A message that no name tells is not redriven twice: no owner could recognise it.
func TestARedriveOfATextWithoutAnEnvelopeIsNotMadeTwice(t *testing.T) {
	inInterrupted(t, func(t *testing.T, w *interrupted) {
		drop(w.World, quarantine.Filter{})
		w.PutText("accounta", workload.PoisonQueue("work"), testworld.Incompressible(48<<10))
		time.Sleep(time.Second)
		w.interrupt(quarantine.Options{})
		w.again(quarantine.Options{})
		w.expect("after the second redrive", 1, 1)
		drop(w.World, quarantine.Filter{})
		if begun, err := workload.RedrivesBegun(context.Background(), w.Table(), "work"); err != nil || len(begun) > 0 {
			t.Errorf("%v, %v", begun, err)
		}
	})
}
