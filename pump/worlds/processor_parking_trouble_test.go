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
	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
)

// Paused messages are parked, and come home, about as fast as the parking queue can be written
// and read: the processors share its budget, and the one that reads it has shares of the homes.
func TestWhatIsPausedIsParkedAndComesHomeQuickly(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 1, 10, func(c *azsim.Config) {
		c.Limits, c.Latency = azsim.PublishedLimits(), 20*time.Millisecond
	}, func(t *testing.T, w *world) {
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		tasks := 0
		for range 16 {
			tasks += w.PutHome(w.EverySegment(), 1)
		}
		h := &testworld.Seen{}
		var ps []*started
		for _, name := range []string{"a", "b", "c", "d"} {
			ps = append(ps, w.start(w.processorOf(name, h, processor.Options{Concurrency: 64})))
		}
		w.Within(15*time.Second, "8,192 messages are parked", func() bool { return w.Left() == 0 })
		time.Sleep(10 * time.Second)
		w.resumePart(part)
		w.Within(25*time.Second, "all are home and done", func() bool { return h.Tasks() == tasks })
		for _, p := range ps {
			p.End()
		}
		h.Expect(t, tasks, tasks)
	})
}

// The account in which a run was paused goes, and another has come meanwhile: what is met there is
// parked there.
func TestTheAccountsOfAPauseMayAllChange(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.Without("accountb")
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(30 * time.Second)
		if _, err := accounts.Add(t.Context(), w.Operator(), "accountb"); err != nil {
			t.Fatal(err)
		}
		w.DrainAccount("accounta")
		time.Sleep(5 * time.Minute)
		w.Without("accounta") // which holds the rows, so no command would
		time.Sleep(30 * time.Second)
		tasks := w.PutHome(w.EverySegment()[:16], 2)
		time.Sleep(3 * time.Minute)
		w.ExpectEmpty()
		if n := w.Count("accountb", "work-park-1"); n != 16 || h.Tasks() > 0 {
			t.Errorf("%d messages are parked and %d tasks begun", n, h.Tasks())
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

// Where parking queues take nothing, paused messages go back again and again, and are never
// suspected of ending their processes.
func TestWhatCannotBeParkedIsNotSuspected(t *testing.T) {
	verify.Only(t)
	for _, ofKey := range []bool{false, true} {
		t.Run(fmt.Sprint(ofKey), func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				const key = "customer-17"
				tasks, held := w.putKeyed(key, 3, 4, 4)
				part := workloads.Part{Run: w.Run.String()}
				if ofKey {
					part = workloads.Part{Key: []byte(key)}
				} else {
					held = tasks
				}
				w.pausePart(part)
				full := w.Fault(azsim.Rule{Fault: azsim.FailBefore, Object: "work-park-1"}, "PutMessage")
				h := &begun{}
				p := w.start(w.processorOf("p", h, processor.Options{}))
				time.Sleep(time.Hour)
				if n := h.Tasks(); n != tasks-held || w.Count("accounta", "work-park-1") > 0 {
					t.Errorf("%d of %d tasks that are not paused were done", n, tasks-held)
				}
				full.Remove()
				time.Sleep(5 * time.Minute)
				w.ExpectEmpty()
				w.resumePart(part)
				w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
				w.comesHome()
				s := p.End()
				h.Expect(t, tasks, tasks)
				if s.Split+s.Quarantined+s.Failed > 0 || w.Logged("suspiciously") > 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A mark of a run that is closed goes by itself: nothing else would take it away, and no other run
// would end for being quiet.
func TestAMarkOfARunThatIsDoneGoesByItself(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.pausePart(workloads.Part{Run: w.Run.String()})
		p := w.start(w.processorOf("p", &begun{}, processor.Options{}))
		time.Sleep(time.Minute)
		if err := w.AllRuns().End(t.Context(), w.Run, false, "the command died when it had written this"); err != nil {
			t.Fatal(err)
		}
		w.comesHome()
		p.End()
	})
}

// A row of the ledger that cannot be read is of one segment. It keeps neither what is parked, nor
// what is in an account that drains, from coming home, nor a mark from going: with it no run would
// end for being quiet.
func TestADamagedLedgerKeepsNothingFromComingHome(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.damageHead("head.0001")
		w.oneTask(1) // which lives on
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		tasks := w.PutHome([]uint32{3, 4, 5, 6}, 1)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		if list := w.parked(); len(list) != 1 || int(*list[0].Messages) != tasks {
			t.Fatalf("%+v", list)
		}
		w.drained("accountb")
		w.PutText("accountb", "work-00", w.Text(7, func(h *codec.Header) { h.Run = w.NewRun() }, 0))
		w.Within(time.Minute, "what drains is done", func() bool { return h.Tasks() == 1 })
		w.resumePart(part)
		w.comesHome()
		p.End()
		h.Expect(t, tasks+1, tasks+1)
	})
}

// A process ends runs and pauses, then another one does, then the first again. A mark that is lost
// looks like one that was lost before: what was seen of that says nothing of it. Were its queues
// taken from the map at once, a processor with the map of before could still put into them.
func TestALostMarkIsObservedAnewAfterAnotherProcessDid(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.pausePart(workloads.Part{Run: w.Run.String()})
		var mark any
		lose := func() {
			w.editRow("workload", storage.Upsert, func(e *storage.Entity) {
				mark = e.Properties["Parkings"]
				delete(e.Properties, "Parkings")
			})
		}
		mine, stop := w.keepClosing()
		returning := func(want int) {
			t.Helper()
			wl, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			if err != nil || len(wl.Returning()) != want {
				t.Errorf("%d marks come home, want %d: %v", len(wl.Returning()), want, err)
			}
		}
		lose()
		mine.Store(true)
		time.Sleep(closing.Every * 3 / 2) // for a pass
		mine.Store(false)
		returning(1)
		w.editRow("workload", storage.Merge, func(e *storage.Entity) { e.Properties["Parkings"] = mark })
		time.Sleep(5 * time.Minute)
		returning(0)
		lose()
		mine.Store(true)
		time.Sleep(closing.Every * 3 / 2)
		returning(1)
		time.Sleep(2 * time.Minute)
		returning(0)
		stop()
	})
}

// keepClosing runs a closer, which has the duty while mine is true.
func (w *world) keepClosing() (mine *atomic.Bool, stop func()) {
	w.T.Helper()
	c := w.closer("c")
	c.HorizonBy(func(ctx context.Context) (*cluster.View, error) {
		return cluster.LoadView(ctx, w.Table(), w.Cfg.Workload)
	})
	mine = &atomic.Bool{}
	ctx, cancel := context.WithCancel(w.T.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Keep(ctx, "c", func(context.Context) bool { return mine.Load() }) })
	return mine, func() { cancel(); wg.Wait() }
}

// Nor does what it saw of a run without a row. Were the run over at once, the owners would forget
// tasks that were done, while its row may come back.
func TestARunWithoutARowIsObservedAnewAfterAnotherProcessDid(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		before := w.rowsOf("work.runs")
		run := w.sealedRun(3)
		w.scribe().record(run.ID, below([]uint64{2}), nil)
		after := w.rowsOf("work.runs")
		mine, stop := w.keepClosing()
		over := func() bool {
			t.Helper()
			list, err := w.AllRuns().Prunable(t.Context())
			if err != nil {
				t.Fatal(err)
			}
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

// The row of one paused run is damaged. Another paused run ends, and what is parked of it comes
// home all the same.
func TestADamagedRowOfAPausedRunKeepsNoOtherFromComingHome(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		damaged, ends := w.sealedRun(1), w.sealedRun(1)
		for _, run := range []workload.Run{damaged, ends} {
			w.pausePart(workloads.Part{Run: run.ID.String()})
		}
		if err := w.AllRuns().End(t.Context(), ends.ID, false, "its command died here"); err != nil {
			t.Fatal(err)
		}
		e, err := w.Table().Read(t.Context(), "work.runs", damaged.ID.String())
		if err != nil {
			t.Fatal(err)
		}
		e.Properties["State"] = "?"
		if _, err := w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: e}); err != nil {
			t.Fatal(err)
		}
		p := w.start(w.processorOf("p", &begun{}, processor.Options{}))
		w.Within(5*time.Minute, "the mark of the run that ended goes", func() bool {
			wl, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			return err == nil && len(wl.Parkings) == 1 && wl.Parkings[0].Run == damaged.ID
		})
		if w.Logged(damaged.ID.String()) == 0 {
			t.Error("nothing is said of the damaged row")
		}
		p.End()
	})
}

// While an account is dark, runs and keys are paused as ever, up to the bound. What was resumed may
// have messages in that account, so its mark stays until the account answers or has left, and the
// refusal of one more says so.
func TestMarksWaitForADarkAccountAndGoWithIt(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		p := w.start(w.processorOf("p", &begun{}, processor.Options{}))
		w.Settled(1)
		key := func(i int) workloads.Part { return workloads.Part{Key: fmt.Appendf(nil, "key %d", i)} }
		marks := func(want int) {
			t.Helper()
			wl, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			if err != nil || len(wl.Parkings) != want {
				t.Errorf("%d marks, want %d: %v", len(wl.Parkings), want, err)
			}
		}
		dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.FailBefore})
		for i := range workload.MaxParkings {
			w.pausePart(key(i))
		}
		for i := range workload.MaxParkings {
			w.resumePart(key(i))
		}
		time.Sleep(10 * time.Minute)
		marks(workload.MaxParkings)
		_, err := workloads.PausePart(t.Context(), w.Operator(), key(99), "me")
		if err == nil || !strings.Contains(err.Error(), "stays until all accounts answer") {
			t.Error(err)
		}
		dark.Remove()
		time.Sleep(10 * time.Minute)
		marks(0)
		w.pausePart(key(99))
		w.DrainAccount("accountb")
		time.Sleep(5 * time.Minute)
		remove := accounts.RemoveOptions{Wait: true}
		if _, err := accounts.Remove(t.Context(), w.Operator(), "accountb", remove); err != nil {
			t.Error(err)
		}
		w.Sim.Inject(azsim.Rule{Account: "accountb", Fault: azsim.FailBefore})
		w.resumePart(key(99))
		time.Sleep(5 * time.Minute)
		marks(0)
		p.End()
	})
}
