package pump

import (
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/control"
)

func (w *world) closer(instance string) *closer {
	w.t.Helper()
	cfg, err := w.config(instance, w.cfg.Accounts[0].Queues).withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	return newCloser(&cfg, openFleet(&cfg, control.TableName), w.segments())
}

// sealedRun makes the row of a sealed run with so many tasks in each of the first segments.
func (w *world) sealedRun(tasks ...uint64) control.Run {
	w.t.Helper()
	id := w.newRun()
	counts := make([]uint64, w.segments())
	copy(counts, tasks)
	f := openFleet(&w.cfg, control.TableName)
	if err := control.NewRuns(f.control, w.cfg.Workload).Seal(w.t.Context(), id, counts); err != nil {
		w.t.Fatal(err)
	}
	return w.runRow(id)
}

// P3.7: what is in quarantine may come back, and an open run may get more.
func TestOnlyRunsThatAreDoneAreClosed(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		done, poisoned, behind, divided, open := w.sealedRun(3, 2), w.sealedRun(3, 2), w.sealedRun(3, 2), w.sealedRun(3, 2), w.newRun()
		sets := func(a, b uint64) map[uint32]codec.NSet { return below([]uint64{a, b}) }
		s.record(done.ID, sets(3, 2), nil)
		s.record(poisoned.ID, sets(2, 2), map[uint32]codec.NSet{0: codec.MakeNSet(2)})
		s.record(behind.ID, sets(3, 1), nil)
		s.record(divided.ID, sets(2, 3), nil) // as many as were sealed, and others
		s.record(open, sets(3, 2), nil)
		c := w.closer("c")
		if err := c.pass(t.Context()); err == nil {
			t.Error("nothing is said of the run of which more is recorded than it has")
		}
		for what, want := range map[RunID]control.RunState{
			done.ID: control.RunClosed, poisoned.ID: control.RunSealed, behind.ID: control.RunSealed, divided.ID: control.RunSealed, open: control.RunOpen,
		} {
			if row := w.runRow(what); row.State != want {
				t.Errorf("a run is %s, want %s", row.State, want)
			}
		}
		// What was missing is done, and what was open is sealed.
		s.record(behind.ID, sets(3, 2), nil)
		f := openFleet(&w.cfg, control.TableName)
		counts := make([]uint64, w.segments())
		counts[0], counts[1] = 3, 2
		if err := control.NewRuns(f.control, "work").Seal(t.Context(), open, counts); err != nil {
			t.Fatal(err)
		}
		_ = c.pass(t.Context())
		for _, id := range []RunID{behind.ID, open} {
			if row := w.runRow(id); row.State != control.RunClosed {
				t.Errorf("a run is %s", row.State)
			}
		}
	})
}

// A pass costs what the ledger knows and not how many runs there were, and no row is
// read again without need.
func TestClosingIsBoundedWithManyRuns(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		const runs = 200
		for range runs {
			run := w.sealedRun(2)
			s.record(run.ID, below([]uint64{1}), nil)
		}
		c := w.closer("c")
		cost := func() (reads int) {
			before := w.sim.Stats().Count("", "GetEntity")
			if err := c.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			return int(w.sim.Stats().Count("", "GetEntity") - before)
		}
		read := 0
		for range runs/closeReads + 1 {
			n := cost()
			if n > closeReads {
				t.Errorf("a pass read %d rows", n)
			}
			read += n
		}
		if read != runs || len(c.known) != runs {
			t.Errorf("%d rows were read and %d are remembered, of %d runs", read, len(c.known), runs)
		}
		if n := cost(); n != 0 {
			t.Errorf("%d rows were read again though nothing has changed", n)
		}
	})
}

func TestClosedRunsAreForgottenOnceTheyArePruned(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		run := w.sealedRun(1)
		s.record(run.ID, below([]uint64{1}), nil)
		c := w.closer("c")
		for range 2 {
			if err := c.pass(t.Context()); err != nil || c.known[run.ID].state != control.RunClosed {
				t.Fatalf("%+v, %v", c.known, err)
			}
		}
		if err := s.ledger.Prune(t.Context(), []RunID{run.ID}); err != nil {
			t.Fatal(err)
		}
		if err := c.pass(t.Context()); err != nil || len(c.known) != 0 {
			t.Errorf("%+v, %v", c.known, err)
		}
	})
}

func TestARunWithoutTasksIsClosedAtOnce(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if row := w.distributed(0); row.State != control.RunClosed {
			t.Errorf("it is %s", row.State)
		}
	})
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if row := w.distributed(0); row.State != control.RunSealed {
			t.Errorf("at-least-once: it is %s, and nobody knows what is done", row.State)
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
			all = append(all, w.startDistributor(w.distributor(who, &listSource{print: "a", n: 50}, DistributorOptions{Every: 24 * time.Hour, OnRun: e.by(who)})))
		}
		run := e.until(t, succeeded)
		row := w.runRow(run.Run)
		s.record(run.Run, below(row.Sealed), nil)
		time.Sleep(3 * closeEvery)
		if row = w.runRow(run.Run); row.State != control.RunClosed {
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

// One of several processors does it, whoever distributed is gone.
func TestTheFirstProcessorClosesRuns(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run := w.distributed(500)
		var all []*started
		var h seen
		for i := range 3 {
			all = append(all, w.start(w.processorOf(fmt.Sprintf("p%d", i), &h, ProcessorOptions{})))
		}
		time.Sleep(3 * closeEvery)
		if row := w.runRow(run.ID); row.State != control.RunClosed {
			t.Errorf("the run is %s", row.State)
		}
		for _, s := range all {
			s.end()
		}
		h.expect(t, 500, 500)
		if n := w.logged("a run is done and closed"); n != 1 {
			t.Errorf("it was closed %d times", n)
		}
	})
}
