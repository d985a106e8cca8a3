package worlds

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

// endOf is what status says of the end of a run, and what `runs show` says is the same.
func (w *world) endOf(run pump.RunID) (*runs.Ends, runs.RunEnd) {
	w.T.Helper()
	s := w.status(status.Options{})
	info, err := runs.Show(w.T.Context(), w.Operator(), run.String())
	must(w.T, err)
	for _, e := range s.Ends.Runs {
		if e.ID == run.String() {
			if cut, _, _ := strings.Cut(info.WaitsFor, ":"); cut == "" || !strings.HasPrefix(e.Text, cut) {
				w.T.Errorf("the status says %q, and `runs show` %q", e.Text, info.WaitsFor)
			}
			return &s.Ends, e
		}
	}
	if info.WaitsFor != "" {
		w.T.Errorf("the status says nothing, and `runs show` %q", info.WaitsFor)
	}
	return &s.Ends, runs.RunEnd{}
}

func TestTheStatusSaysWhichQueueHoldsBackTheEndOfARun(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		account, queue := w.Home(7)
		dark := w.Fault(azsim.Rule{Account: account, Object: queue, Fault: azsim.Answer}, "GetMessages")
		run := w.lonely(1, 7)
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		if ends, _ := w.endOf(run); ends.Waiting != 0 || len(ends.Runs) != 0 || ends.HeldBackBy != "" {
			t.Errorf("while it is open: %+v", ends)
		}
		time.Sleep(3 * time.Hour)
		ends, end := w.endOf(run)
		by := "queue " + account + "/" + queue + ", which p reads"
		if ends.Waiting != 1 || ends.HeldBackBy != by || end.State != "abandoned" || end.WaitsFor != "reading" {
			t.Errorf("while its queue is dark: %+v", ends)
		}
		if !strings.Contains(end.Text, "beyond the last sign of it") || !strings.Contains(end.Text, by) {
			t.Errorf("while its queue is dark: %s", end.Text)
		}
		if n := p.Of.State().RunsUnfinished; n != 1 {
			t.Errorf("the processor that ends runs says that %d wait for their ends", n)
		}
		dark.Remove()
		w.Within(time.Minute, "its task is handled", func() bool { return h.Tasks() == 1 })
		handled := time.Now()
		time.Sleep(30 * time.Minute)
		ends, end = w.endOf(run)
		if ends.Waiting != 1 || ends.HeldBackBy != "" || ends.BehindSeconds != nil || end.WaitsFor != "quiet" {
			t.Errorf("half an hour after its task was handled: %+v", ends)
		}
		if d := end.LastSign.Sub(handled); d < -time.Minute || d > 10*time.Minute {
			t.Errorf("the last sign of it is %v after its task was handled", d)
		}
		w.Within(3*time.Hour, "it has ended", func() bool { return w.RunRow(run).Over })
		if late := time.Since(end.NotBefore); late < 0 || late > time.Hour+10*time.Minute {
			t.Errorf("it ended %v after the earliest time that was said", late)
		}
		if ends, _ := w.endOf(run); ends.Waiting != 0 || len(ends.Runs) != 0 {
			t.Errorf("when it is over: %+v", ends)
		}
		time.Sleep(time.Minute)
		if n := p.Of.State().RunsUnfinished; n != 0 {
			t.Errorf("when it is over the processor says that %d wait", n)
		}
		p.End()
	})
}

func TestTheStatusSaysThatNoProcessorReadsForTheEndOfARun(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run := w.lonely(1, 7)
		c := w.closer("c")
		c.HorizonBy(func(context.Context) (*cluster.View, error) { return w.Look(), nil })
		w.closesFor(c, 3*time.Hour)
		ends, end := w.endOf(run)
		const by = "segment 0, which no processor holds"
		if ends.Waiting != 1 || ends.HeldBackBy != by || ends.BehindSeconds != nil || end.WaitsFor != "reading" || !strings.HasSuffix(end.Text, by) {
			t.Errorf("%+v", ends)
		}
		// A processor that was killed reads nothing any more.
		p := w.start(w.processor(&testworld.Seen{}, processor.Options{}))
		time.Sleep(5 * time.Minute)
		if ends, end = w.endOf(run); ends.HeldBackBy != "" || end.WaitsFor != "quiet" {
			t.Errorf("with a processor: %+v", ends)
		}
		kill := w.Fault(azsim.Rule{Instance: "p", Fault: azsim.FailBefore})
		time.Sleep(5 * time.Minute)
		if ends, end = w.endOf(run); ends.HeldBackBy != by || end.WaitsFor != "reading" {
			t.Errorf("with a dead processor: %+v", ends)
		}
		kill.Remove()
		p.End()
	})
}

// The longest waiting come first, and no more than a screen has room for.
func TestTheStatusShowsAFewOfManyRunsThatWaitForTheirEnds(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var all []pump.RunID
		for i := range byte(7) {
			run := pump.RunID{9 - i, 15: 1}
			all = append(all, run)
			must(t, w.AllRuns().Create(t.Context(), workload.Run{ID: run, Mode: "client"}))
			must(t, w.AllRuns().Break(t.Context(), run, "so"))
			time.Sleep(time.Second)
		}
		must(t, errOf(runs.End(t.Context(), w.Operator(), all[0].String(), false, "enough")))
		// A tally of a run is a sign of it, and a hidden message is one later.
		noted := time.Now()
		must(t, workload.NoteTallies(t.Context(), w.Table(), "work", "p", workload.RunTally{Run: all[1], Tally: workload.Tally{Met: 1, Hides: time.Hour}}))
		ends := w.status(status.Options{}).Ends
		if ends.Waiting != 7 || len(ends.Runs) != 5 {
			t.Fatalf("%d wait, %d are shown", ends.Waiting, len(ends.Runs))
		}
		for i, e := range ends.Runs {
			if e.ID != all[i+1].String() || e.State != "broken" {
				t.Errorf("%d is %+v", i, e)
			}
		}
		if d := ends.Runs[0].LastSign.Sub(noted); d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("the last sign of a run with something hidden is %v away", d)
		}
	})
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		must(t, w.AllRuns().Break(t.Context(), w.Run, "so"))
		if ends, _ := w.endOf(w.Run); ends.Waiting != 0 || len(ends.Runs) != 0 || ends.Runs == nil {
			t.Errorf("at least once: %+v", ends)
		}
	})
}
