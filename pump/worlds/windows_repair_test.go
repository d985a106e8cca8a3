package worlds

import (
	"slices"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

func TestRepairPutsWhatIsMissingUnderItsIdentityAndNothingElse(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "a", N: 2000}
		run, s := testworld.Distributed(w, distributor.New, source.N), w.Scribe()
		want := w.Collect()
		w.Empty()
		missing := allBut(s, run, 5)
		poisoned := slices.IndexFunc(run.Sealed, func(tasks uint64) bool { return tasks >= 5 })
		s.Record(run.ID, nil, map[uint32]codec.NSet{uint32(poisoned): codec.MakeNSet(4)})
		missing--

		mend := func(o distributor.RepairOptions) (distributor.RepairSummary, error) {
			return testworld.Made(w, distributor.New, "mender", source, distributor.Options{}).Repair(t.Context(), run.ID, o)
		}
		dry, err := mend(distributor.RepairOptions{DryRun: true})
		if err != nil || !dry.DryRun || dry.Tasks != 2000 || dry.Missing != uint64(missing) || dry.Quarantined != 1 || dry.Done != uint64(1999-missing) || dry.Put != 0 || w.Left() != hidden(w) {
			t.Fatalf("dry run: %+v, %v", dry, err)
		}
		sum, err := mend(distributor.RepairOptions{})
		if err != nil || sum.State != "sealed" || sum.Put != int64(missing) || sum.Envelopes == 0 || sum.Sealed || len(sum.Lacking) != len(dry.Lacking) {
			t.Fatalf("%+v, %v", sum, err)
		}
		got := w.Collect()
		proof.Same(t, len(got), missing, "tasks were put, … were missing")
		windowHit(t, len(got))
		for id, bodies := range got {
			if len(bodies) != 1 || bodies[0] != want[id][0] {
				t.Fatalf("%s was put as %q, and is %q", id, bodies, want[id])
			}
		}
		// When they are done too, nothing is left to repair.
		s.Record(run.ID, testworld.Below(run.Sealed), nil)
		if again, err := mend(distributor.RepairOptions{}); err != nil || again.Missing != 0 || again.Put != 0 || len(again.Lacking) != 0 {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// hidden is how many messages collect has hidden for an hour.
func hidden(w *testworld.World) int { return w.Left() - shown(w) }

func shown(w *testworld.World) (n int) {
	for _, s := range setup.Shards(w.Cfg) {
		n += w.Visible(s.Account, s.Queue)
	}
	return n
}

// allBut records all tasks of a sealed run but every k-th of each segment, and gives how many those
// are.
func allBut(s *testworld.Scribe, run workload.Run, k uint64) (missing int) {
	done := map[uint32]codec.NSet{}
	for segment, count := range run.Sealed {
		var set codec.NSet
		for n := range count {
			if n%k == k-1 {
				missing++
			} else {
				set.AddRange(n, n+1)
			}
		}
		done[uint32(segment)] = set
	}
	s.Record(run.ID, done, nil)
	return missing
}
