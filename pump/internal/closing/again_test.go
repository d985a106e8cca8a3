package closing_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// keepClosing runs a closer, which has the duty while mine is true.
func keepClosing(w *testworld.World) (mine *atomic.Bool, stop func()) {
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
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		before := w.Sim.Snapshot("accounta", row.TableName, "work.runs")
		run := w.SealedRun(3)
		w.Scribe().Record(run.ID, testworld.Below([]uint64{2}), nil)
		after := w.Sim.Snapshot("accounta", row.TableName, "work.runs")
		mine, stop := keepClosing(w)
		over := func() bool {
			t.Helper()
			list, err := w.AllRuns().Prunable(t.Context())
			proof.Must(t, err)
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
