package worlds

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

func (w *world) closer(instance string) *closing.Closer {
	w.T.Helper()
	cfg, err := setup.Complete(w.Config(instance, w.Cfg.Accounts[0].Queues))
	must(w.T, err)
	f := queues.Open(&cfg.Config)
	row, err := workload.Load(w.T.Context(), f.Control, cfg.Workload)
	must(w.T, err)
	return readEvery(closing.New(&cfg.Config, f, row))
}

// pass makes one pass, which must succeed.
func mustPass(t *testing.T, c *closing.Closer) (more bool) {
	t.Helper()
	more, err := c.Pass(t.Context())
	must(t, err)
	return more
}

// sealedRun makes the row of a sealed run with so many tasks in each of the first segments.
func (w *world) sealedRun(tasks ...uint64) workload.Run {
	w.T.Helper()
	id := w.NewRun()
	counts := make([]uint64, w.Segments())
	copy(counts, tasks)
	f := queues.Open(&w.Cfg)
	must(w.T, workload.NewRuns(f.Control, w.Cfg.Workload).Seal(w.T.Context(), id, counts))
	return w.RunRow(id)
}

// P3.7: what is in quarantine may come back, and an open run may get more.
func TestOnlyRunsThatAreDoneAreClosed(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		done, poisoned, behind, divided, open := w.sealedRun(3, 2), w.sealedRun(3, 2), w.sealedRun(3, 2), w.sealedRun(3, 2), w.NewRun()
		sets := func(a, b uint64) map[uint32]codec.NSet { return below([]uint64{a, b}) }
		s.record(done.ID, sets(3, 2), nil)
		s.record(poisoned.ID, sets(2, 2), map[uint32]codec.NSet{0: codec.MakeNSet(2)})
		s.record(behind.ID, sets(3, 1), nil)
		s.record(divided.ID, sets(2, 3), nil) // as many as were sealed, and others
		s.record(open, sets(3, 2), nil)
		c := w.closer("c")
		if _, err := c.Pass(t.Context()); err == nil {
			t.Error("nothing is said of the run that has more recorded than it has tasks")
		}
		for what, want := range map[pump.RunID]workload.RunState{
			done.ID: workload.RunClosed, poisoned.ID: workload.RunClosed, behind.ID: workload.RunSealed, divided.ID: workload.RunSealed, open: workload.RunOpen,
		} {
			if row := w.RunRow(what); row.State != want {
				t.Errorf("a run is %s, want %s", row.State, want)
			}
		}
		// The missing tasks are done, and the open run is sealed.
		s.record(behind.ID, sets(3, 2), nil)
		f := queues.Open(&w.Cfg)
		counts := make([]uint64, w.Segments())
		counts[0], counts[1] = 3, 2
		must(t, workload.NewRuns(f.Control, "work").Seal(t.Context(), open, counts))
		_, _ = c.Pass(t.Context())
		for _, id := range []pump.RunID{behind.ID, open} {
			if row := w.RunRow(id); row.State != workload.RunClosed {
				t.Errorf("a run is %s", row.State)
			}
		}
	})
}

// A1: closing keeps pace with any rate at which runs are made, and a look costs nothing for what
// is done with.
func TestOnePassClosesEveryRunThatIsDone(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		const runs = 200
		var ids []pump.RunID
		for range runs {
			run := w.sealedRun(2)
			ids = append(ids, run.ID)
			s.record(run.ID, below([]uint64{2}), nil)
		}
		open := w.sealedRun(2)
		s.record(open.ID, below([]uint64{1}), nil)
		c := w.closer("c")
		if !mustPass(t, c) {
			t.Error("what was closed is still in the ledger, and nothing more is said to be done")
		}
		for _, id := range ids {
			if row := w.RunRow(id); row.State != workload.RunClosed {
				t.Fatalf("a run is %s after one pass", row.State)
			}
		}
		mustPass(t, c) // lists them for the owners of segments
		list, err := c.Runs.Prunable(t.Context())
		if err != nil || len(list.Closed) != runs {
			t.Fatalf("%d runs are listed, %v", len(list.Closed), err)
		}
		must(t, s.ledger.Prune(t.Context(), list.Closed))
		mustPass(t, c)
		mustPass(t, c)
		// The world's own open run, and the one that lacks a task.
		if live, err := c.Runs.Live(t.Context()); err != nil || len(live) != 2 || len(c.Known) != 2 {
			t.Errorf("%d runs live, %d are known, %v", len(live), len(c.Known), err)
		}
		before := w.Sim.Stats().Count("", "GetEntity")
		mustPass(t, c)
		if n := w.Sim.Stats().Count("", "GetEntity") - before; n > 0 {
			t.Errorf("%d rows were read again though nothing has changed", n)
		}
	})
}

// A run whose row is not among those that live is found by what the ledger has of it.
func TestARunThatIsNotAmongThoseThatLiveIsClosedToo(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		run := w.sealedRun(2)
		s.record(run.ID, below([]uint64{2}), nil)
		c := w.closer("c")
		live, err := c.Runs.Live(t.Context())
		must(t, err)
		must(t, c.Runs.Forget(t.Context(), live)) // as if they had never been there
		for range 3 {
			mustPass(t, c)
			time.Sleep(closing.SumsEvery)
		}
		if row := w.RunRow(run.ID); row.State != workload.RunClosed {
			t.Errorf("it is %s", row.State)
		}
	})
}

func TestARunWithoutTasksIsClosedAtOnce(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if row := w.distributed(0); row.State != workload.RunClosed {
			t.Errorf("it is %s", row.State)
		}
	})
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if row := w.distributed(0); row.State != workload.RunSealed {
			t.Errorf("at-least-once: it is %s, and no row says what is done", row.State)
		}
	})
}

// A run may become done long after who distributed it is gone.
func TestTheLeaderClosesRunsWhileItHasNothingToDistribute(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		var e ended
		var all []*working
		for _, who := range []string{"d1", "d2", "d3"} {
			all = append(all, w.startDistributor(w.distributor(who, &testworld.ListSource{Print: "a", N: 50}, distributor.Options{Every: 24 * time.Hour, OnRun: e.by(who)})))
		}
		run := e.until(t, succeeded)
		row := w.RunRow(run.Run)
		s.record(run.Run, below(row.Sealed), nil)
		time.Sleep(3 * closing.Every)
		if row = w.RunRow(run.Run); row.State != workload.RunClosed {
			t.Errorf("the run is %s", row.State)
		}
		for _, d := range all {
			d.cancel()
			if err := d.wait(); err != nil {
				t.Error(err)
			}
		}
	})
}

// One of several processors does it when the distributor is gone.
func TestTheFirstProcessorClosesRuns(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run := w.distributed(500)
		var all []*started
		var h testworld.Seen
		for i := range 3 {
			all = append(all, w.start(w.processorOf(fmt.Sprintf("p%d", i), &h, processor.Options{})))
		}
		time.Sleep(3 * closing.Every)
		if row := w.RunRow(run.ID); row.State != workload.RunClosed {
			t.Errorf("the run is %s", row.State)
		}
		for _, s := range all {
			s.End()
		}
		h.Expect(t, 500, 500)
		if n := w.Logged("runs are done and closed"); n != 1 {
			t.Errorf("it was closed %d times", n)
		}
	})
}

// While a segment's ledger cannot be read, it is not known whether that knows a closed run. The
// other segments go on forgetting: a list of all runs that were closed since has room for no more
// of them in the end. What the segment knows after all is seen when it can be read again.
func TestADamagedLedgerKeepsNoClosedRunAlive(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		c := w.closer("c")
		both, one := w.sealedRun(2, 2), w.sealedRun(2)
		s.record(both.ID, below([]uint64{2, 2}), nil)
		s.record(one.ID, below([]uint64{2}), nil)
		mustPass(t, c)
		mustPass(t, c)
		head, err := w.Table().Read(t.Context(), "work.ledger.00", "head.0001")
		must(t, err)
		w.damageHead("head.0001")
		if err := s.ledger.Prune(t.Context(), []pump.RunID{both.ID, one.ID}); err == nil {
			t.Fatal("a damaged head was written over")
		}
		listed := func(want int) {
			t.Helper()
			time.Sleep(2 * time.Minute) // the ledger is looked at
			for range 2 {
				_, _ = c.Pass(t.Context())
			}
			list, err := c.Runs.Prunable(t.Context())
			if err != nil || len(list.Closed) != want {
				t.Errorf("%d runs are listed, want %d: %v", len(list.Closed), want, err)
			}
			if live, err := c.Runs.Live(t.Context()); err != nil || len(live) != 1+want { // the world's own
				t.Errorf("%d runs live, want %d: %v", len(live), 1+want, err)
			}
		}
		listed(0)
		head.ETag = ""
		if _, err := w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: head}); err != nil {
			t.Fatal(err)
		}
		listed(1)
	})
}

// What waits for processors that are not there is looked at as seldom as if there were nothing.
func TestACloserWithoutProcessorsLooksSeldom(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run := w.sealedRun(3, 2)
		w.scribe().record(run.ID, below([]uint64{3, 2}), nil)
		c := w.closer("c")
		passes, far := 0, c.Far
		c.Far = func(ctx context.Context) (closing.Horizon, error) {
			passes++
			return far(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c.Keep(ctx, waits.Jitter("c"), func(context.Context) bool { return true })
		if row := w.RunRow(run.ID); row.State != workload.RunClosed {
			t.Errorf("the run is %s", row.State)
		}
		if passes < 30 || passes > 60 {
			t.Errorf("%d passes in ten minutes, want one in 15 s", passes)
		}
	})
}
