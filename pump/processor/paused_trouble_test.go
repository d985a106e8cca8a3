package processor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// A run that is ended while it is paused meets its end, and its mark goes with it.
func TestAPausedRunThatIsDroppedIsDropped(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.PutHome(w.EverySegment(), 2)
		pausePart(w, workloads.Part{Run: w.Run.String()})
		h := &begun{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Minute)
		proof.Must(t, proof.ErrOf(runs.End(t.Context(), w.Operator(), w.Run.String(), true, "not wanted")))
		noneIsPaused(w)
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
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		damaged, ends := w.SealedRun(1), w.SealedRun(1)
		for _, run := range []workload.Run{damaged, ends} {
			pausePart(w, workloads.Part{Run: run.ID.String()})
		}
		e, err := w.Table().Read(t.Context(), "work.runs", damaged.ID.String())
		proof.Must(t, err)
		e.Properties["State"] = "?"
		proof.Must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: e})))
		p := testworld.Begun(w, processor.New, "p", &begun{}, processor.Options{})
		time.Sleep(time.Minute)
		proof.Must(t, w.AllRuns().End(t.Context(), ends.ID, false, "the command died when it had written this"))
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
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				const key = "customer-17"
				quietFor, part := closing.OverAfter, workloads.Part{Run: w.Run.String()}
				if pressed {
					crowd(w, 3, ledger.MaxLiveRuns/2+64)
					quietFor, part = closing.OverPressed, workloads.Part{Key: []byte(key)}
				}
				pausePart(w, part)
				tasks, _ := putKeyed(w, key, 4, 5, 0)
				quiet := w.NewRun()
				for _, run := range []pump.RunID{w.Run, quiet} {
					proof.Must(t, w.AllRuns().Break(t.Context(), run, "its source is gone"))
				}
				h := &begun{}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				w.Within(2*quietFor+10*time.Minute, "the other run ends", func() bool { return w.RunRow(quiet).Over })
				time.Sleep(2 * quietFor)
				if run := w.RunRow(w.Run); run.Over || run.State != workload.RunBroken {
					t.Errorf("%+v", run)
				}
				resumePart(w, part)
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
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.PutHome(w.EverySegment(), 2)
		part := workloads.Part{Run: w.Run.String()}
		pausePart(w, part)
		h := &begun{}
		ps := []*started{testworld.Begun(w, processor.New, "p", h, processor.Options{}), testworld.Begun(w, processor.New, "q", h, processor.Options{})}
		time.Sleep(10 * time.Minute)
		proof.Must(t, proof.ErrOf(accounts.Drain(t.Context(), w.Operator(), "accountb")))
		time.Sleep(queues.RemoveAfter)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		proof.Must(t, proof.ErrOf(accounts.Remove(ctx, w.Operator(), "accountb", accounts.RemoveOptions{Wait: true})))
		if n := h.Tasks(); n > 0 {
			t.Errorf("%d tasks were begun", n)
		}
		resumePart(w, part)
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		for _, p := range ps {
			if s := p.End(); s.Split+s.Quarantined > 0 {
				t.Errorf("%+v", s)
			}
		}
		h.Expect(t, tasks, tasks)
	})
}

// A14: a name goes for its age, and a copy of its task may be of a paused key. So the copy is asked of
// the ledger when it is met, and not when it is resumed. The same is so of a redriven task.
func TestACopyOfADoneTaskIsRecognisedWhileItIsPaused(t *testing.T) {
	proof.Only(t)
	for _, redriven := range []bool{false, true} {
		t.Run(fmt.Sprint("redriven ", redriven), func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
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
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				w.PutText(account, queue, text)
				w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 && w.Left() == 0 })
				pausePart(w, part)
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
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.PutHome([]uint32{3}, 100)
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, time.Second)
		}}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1})
		time.Sleep(8 * time.Second)
		part := workloads.Part{Run: w.Run.String()}
		pausePart(w, part)
		at := time.Now()
		time.Sleep(time.Minute)
		if n := h.between(at.Add(twoBeats), time.Now()); n > 0 || h.Tasks() == 0 {
			t.Errorf("%d tasks were begun later than two beats after the pause, %d in all", n, h.Tasks())
		}
		resumePart(w, part)
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
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.DamageHead("head.0001")
		h := &begun{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Minute)
		proof.Must(t, proof.ErrOf(accounts.Drain(t.Context(), w.Operator(), "accountb")))
		time.Sleep(queues.RemoveAfter)
		w.PutText("accountb", "work-00", w.Text(7, func(h *codec.Header) { h.Run = w.NewRun() }, 0))
		w.Within(time.Minute, "what drains is done", func() bool { return h.Tasks() == 1 })
		p.End()
	})
}
