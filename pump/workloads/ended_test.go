package workloads_test

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A script ends more runs than the workload's row names, and another one ends them again, so that
// their tasks are dropped. What the row forgot between the two ends of a run is still news.
func TestRunsThatAreEndedAgainAreNewsThoughTheRowForgotTheirFirstEnd(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const many = workload.KeptEnded + 1
		ids := make([]pump.RunID, many)
		for i := range ids {
			ids[i] = w.ManyRun()
		}
		end := func() map[workload.EndedRun]bool {
			for _, id := range ids {
				proof.Must(t, workload.NoteEnded(t.Context(), w.Table(), w.Cfg.Workload, id))
			}
			wl, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			proof.Must(t, err)
			is := map[workload.EndedRun]bool{}
			for _, e := range wl.Ended {
				is[e] = true
			}
			return is
		}
		was := end()
		for e := range end() {
			if was[e] {
				t.Errorf("that %v was ended again is no news", e.Run)
			}
		}
	})
}
