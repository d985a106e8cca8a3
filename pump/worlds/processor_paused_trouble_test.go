package worlds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// A run or key that cannot be paused is refused, and nothing has changed. To pause one that is paused
// and to resume one that is not changes nothing.
func TestWhatCannotBePausedIsRefused(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		refused := func(part workloads.Part, words string) {
			t.Helper()
			_, err := workloads.PausePart(t.Context(), w.Operator(), part, "me")
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %q", err, words)
			}
		}
		refused(workloads.Part{Run: "abcd"}, pump.ErrNoRun.Error())
		refused(workloads.Part{Run: "xyz"}, "is not the id of a run")
		refused(workloads.Part{}, "0 bytes")
		refused(workloads.Part{Key: make([]byte, workload.MaxPausedKey+1)}, "513 bytes")
		ended := w.NewRun()
		must(t, w.AllRuns().End(t.Context(), ended, false, "by hand"))
		refused(workloads.Part{Run: ended.String()}, "nothing of it is started any more")
		w.noneIsPaused()
		key := func(i int) workloads.Part { return workloads.Part{Key: fmt.Appendf(nil, "key %d", i)} }
		for i := range workload.MaxPausedParts {
			w.pausePart(key(i))
		}
		refused(key(99), "16 runs and keys are paused")
		again, err := workloads.PausePart(t.Context(), w.Operator(), key(3), "another")
		if err != nil || again.Changed || !again.Paused || again.By != "me" {
			t.Errorf("%+v, %v", again, err)
		}
		if c, err := workloads.ResumePart(t.Context(), w.Operator(), key(99)); err != nil || c.Changed || c.Paused {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// A mark is written once, also if its answer is lost. A run that was resumed a moment ago can be
// paused again: what is hidden of it goes back when it comes. Who comes meanwhile takes part.
func TestARunIsPausedAgainWhileItsMessagesAreHidden(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 3)
		part := workloads.Part{Run: w.Run.String()}
		loseAnswer := func() {
			w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.AnswerLost, First: 1}, "UpdateEntity", "MergeEntity")
		}
		loseAnswer()
		w.pausePart(part)
		h := &begun{}
		ps := []*started{w.start(w.processorOf("p", h, processor.Options{}))}
		time.Sleep(2 * time.Minute)
		loseAnswer()
		w.resumePart(part)
		w.pausePart(part)
		windowHit(t, w.Left()) // messages, each of them hidden or on its way
		ps = append(ps, w.start(w.processorOf("q", h, processor.Options{})))
		time.Sleep(time.Hour)
		if n := h.Tasks(); n > 0 {
			t.Errorf("%d tasks were begun", n)
		}
		w.resumePart(part)
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		endEach(ps)
		h.Expect(t, tasks, tasks)
	})
}

// A run that is ended while it is paused meets its end, and its mark goes with it.
func TestAPausedRunThatIsDroppedIsDropped(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 2)
		w.pausePart(workloads.Part{Run: w.Run.String()})
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		must(t, proof.ErrOf(runs.End(t.Context(), w.Operator(), w.Run.String(), true, "not wanted")))
		w.noneIsPaused()
		w.Within(putOffMost, "all is gone", func() bool { return w.Left() == 0 })
		if s := p.End(); s.Dropped != int64(tasks) || h.Tasks() > 0 {
			t.Errorf("%d of %d tasks were dropped, and %d begun", s.Dropped, tasks, h.Tasks())
		}
	})
}

// A mark of a run that is done with goes by itself: nothing else would take it away. The damaged row
// of another paused run keeps it from nothing.
func TestAMarkOfARunThatIsDoneGoesByItself(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		damaged, ends := w.SealedRun(1), w.SealedRun(1)
		for _, run := range []workload.Run{damaged, ends} {
			w.pausePart(workloads.Part{Run: run.ID.String()})
		}
		e, err := w.Table().Read(t.Context(), "work.runs", damaged.ID.String())
		must(t, err)
		e.Properties["State"] = "?"
		must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: e})))
		p := w.start(w.processorOf("p", &begun{}, processor.Options{}))
		time.Sleep(time.Minute)
		must(t, w.AllRuns().End(t.Context(), ends.ID, false, "the command died when it had written this"))
		w.Within(time.Minute, "the mark of the run that ended goes", func() bool {
			wl, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			return err == nil && len(wl.PausedParts) == 1 && wl.PausedParts[0].Run == damaged.ID
		})
		if w.Logged(damaged.ID.String()) == 0 {
			t.Error("nothing is said of the damaged row")
		}
		p.End()
	})
}

// A run whose messages are paused does not end for being quiet, also where a ledger is half full and
// five minutes are quiet. One without messages does.
func TestNoRunEndsForBeingQuietWhileItsTasksArePaused(t *testing.T) {
	proof.Only(t)
	for _, pressed := range []bool{false, true} {
		t.Run(fmt.Sprint(pressed), func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				const key = "customer-17"
				quietFor, part := closing.OverAfter, workloads.Part{Run: w.Run.String()}
				if pressed {
					w.crowd(3, ledger.MaxLiveRuns/2+64)
					quietFor, part = closing.OverPressed, workloads.Part{Key: []byte(key)}
				}
				w.pausePart(part)
				tasks, _ := w.putKeyed(key, 4, 5, 0)
				quiet := w.NewRun()
				for _, run := range []pump.RunID{w.Run, quiet} {
					must(t, w.AllRuns().Break(t.Context(), run, "its source is gone"))
				}
				h := &begun{}
				p := w.start(w.processor(h, processor.Options{}))
				w.Within(2*quietFor+10*time.Minute, "the other run ends", func() bool { return w.RunRow(quiet).Over })
				time.Sleep(2 * quietFor)
				if run := w.RunRow(w.Run); run.Over || run.State != workload.RunBroken {
					t.Errorf("%+v", run)
				}
				w.resumePart(part)
				w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
				w.Within(2*quietFor+10*time.Minute, "the run ends", func() bool { return w.RunRow(w.Run).Over })
				p.End()
				if list := w.Condemned(); len(list) > 0 {
					t.Errorf("%v", list)
				}
			})
		})
	}
}

// An account becomes empty and is removed while a run is paused whose messages are there.
func TestAnAccountIsDrainedWhileARunIsPaused(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 2)
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		ps := []*started{w.start(w.processorOf("p", h, processor.Options{})), w.start(w.processorOf("q", h, processor.Options{}))}
		time.Sleep(10 * time.Minute)
		w.drained("accountb")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		if _, err := accounts.Remove(ctx, w.Operator(), "accountb", accounts.RemoveOptions{Wait: true}); err != nil {
			t.Error(err)
		}
		if n := h.Tasks(); n > 0 {
			t.Errorf("%d tasks were begun", n)
		}
		w.resumePart(part)
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		for _, p := range ps {
			if s := p.End(); s.Split+s.Quarantined > 0 {
				t.Errorf("%+v", s)
			}
		}
		h.Expect(t, tasks, tasks)
	})
}

// While the control account is dark nothing of a paused run is begun, as far as is known.
func TestAPauseHoldsWhileTheControlAccountIsDark(t *testing.T) {
	proof.Only(t)
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		dark := w.Fault(azsim.Rule{Fault: azsim.Answer}, "QueryEntities", "GetEntity", "UpdateEntity", "MergeEntity", "InsertEntity", "Batch")
		tasks := w.PutHome(w.EverySegment()[:16], 2)
		time.Sleep(20 * time.Minute)
		windowHit(t, w.Left())
		dark.Remove()
		time.Sleep(3 * time.Minute)
		if h.Tasks() > 0 {
			t.Errorf("%d tasks were begun", h.Tasks())
		}
		w.resumePart(part)
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		s := p.End()
		h.Expect(t, tasks, tasks)
		if s.Quarantined+s.Split > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A14: a name goes for its age, and a copy of its task may be of a paused key. So the copy is asked of
// the ledger when it is met, and not when it is resumed. The same is so of a redriven task.
func TestACopyOfADoneTaskIsRecognisedWhileItIsPaused(t *testing.T) {
	proof.Only(t)
	for _, redriven := range []bool{false, true} {
		t.Run(fmt.Sprint("redriven ", redriven), func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				key, part := []byte("customer-17"), workloads.Part{Key: []byte("customer-17")}
				segment := shardmap.Segment(key, w.Segments())
				header := codec.Header{Workload: w.Cfg.Workload, Segment: segment, MapVersion: 1}
				task := codec.Task{ID: []byte("work-00/one"), Key: key}
				if redriven {
					header.Run, header.Generation, task.ID = w.Run, 1, nil
					part = workloads.Part{Run: w.Run.String()}
				}
				text := w.Sealed(header, task)
				account, queue := w.Home(segment)
				h := &begun{}
				p := w.start(w.processor(h, processor.Options{}))
				w.PutText(account, queue, text)
				w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 && w.Left() == 0 })
				w.pausePart(part)
				time.Sleep(twoBeats)
				w.PutText(account, queue, text)
				w.Within(time.Minute, "its copy is recognised", func() bool { return w.Left() == 0 })
				p.End()
				h.Expect(t, 1, 1)
			})
		})
	}
}

// A message in hand that is not started goes back, and goes back again when it comes.
func TestWhatIsInHandOfARunThatIsPausedGoesBack(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome([]uint32{3}, 100)
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, time.Second)
		}}}
		p := w.start(w.processor(h, processor.Options{Concurrency: 1}))
		time.Sleep(8 * time.Second)
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		at := time.Now()
		time.Sleep(time.Minute)
		if n := h.between(at.Add(twoBeats), time.Now()); n > 0 || h.Tasks() == 0 {
			t.Errorf("%d tasks were begun later than two beats after the pause, %d in all", n, h.Tasks())
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		if s := p.End(); s.Failed > 0 {
			t.Errorf("%+v", s)
		}
		h.Expect(t, tasks, tasks)
	})
}

// A row of the ledger that cannot be read is of one segment. What is in an account that drains comes
// home all the same.
func TestADamagedLedgerKeepsNothingThatDrains(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.DamageHead("head.0001")
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		w.drained("accountb")
		w.PutText("accountb", "work-00", w.Text(7, func(h *codec.Header) { h.Run = w.NewRun() }, 0))
		w.Within(time.Minute, "what drains is done", func() bool { return h.Tasks() == 1 })
		p.End()
	})
}

// keepClosing runs a closer, which has the duty while mine is true.
func (w *world) keepClosing() (mine *atomic.Bool, stop func()) {
	w.T.Helper()
	c := w.Closer("c")
	c.HorizonBy(func(ctx context.Context) (*cluster.View, error) {
		return cluster.LoadView(ctx, w.Table(), w.Cfg.Workload)
	})
	mine = &atomic.Bool{}
	ctx, cancel := context.WithCancel(w.T.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Keep(ctx, "c", func(context.Context) bool { return mine.Load() }) })
	return mine, func() { cancel(); wg.Wait() }
}

// A process ends runs, then another one does, then the first again. What it saw before of a run
// without a row says nothing. Were the run over at once, the owners would forget tasks that were
// done, while its row may come back.
func TestARunWithoutARowIsObservedAnewAfterAnotherProcessDid(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		before := w.rowsOf("work.runs")
		run := w.SealedRun(3)
		w.Scribe().Record(run.ID, testworld.Below([]uint64{2}), nil)
		after := w.rowsOf("work.runs")
		mine, stop := w.keepClosing()
		over := func() bool {
			t.Helper()
			list, err := w.AllRuns().Prunable(t.Context())
			must(t, err)
			return slices.Contains(list.Over, run.ID)
		}
		before.Restore()
		mine.Store(true)
		time.Sleep(closing.Every * 3 / 2) // for a pass
		mine.Store(false)
		after.Restore()
		time.Sleep(2 * closing.OverAfter)
		before.Restore()
		mine.Store(true)
		time.Sleep(closing.OverAfter - time.Minute)
		if over() {
			t.Error("its owners are to forget a run that has had no row for less than an hour")
		}
		time.Sleep(2 * time.Minute)
		if !over() {
			t.Error("a run that has had no row for an hour is not over")
		}
		stop()
	})
}
