package worlds

import (
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// mend repairs a run from a source, by a distributor with these options.
func (w *world) mend(run pump.RunID, s source.Source, o distributor.RepairOptions, d distributor.Options) (distributor.RepairSummary, error) {
	w.T.Helper()
	return w.distributor("mender", s, d).Repair(w.T.Context(), run, o)
}

func TestRepairPutsWhatIsMissingUnderItsIdentityAndNothingElse(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "a", N: 2000}
		run, s := w.distributed(source.N), w.Scribe()
		want := w.Collect()
		w.Empty()
		missing := allBut(s, run, 5)
		poisoned := fullSegment(t, run.Sealed, 5)
		s.Record(run.ID, nil, map[uint32]codec.NSet{poisoned: codec.MakeNSet(4)})
		missing--

		dry, err := w.mend(run.ID, source, distributor.RepairOptions{DryRun: true}, distributor.Options{})
		if err != nil || !dry.DryRun || dry.Tasks != 2000 || dry.Missing != uint64(missing) || dry.Quarantined != 1 || dry.Done != uint64(1999-missing) || dry.Put != 0 || w.Left() != w.hidden() {
			t.Fatalf("dry run: %+v, %v", dry, err)
		}
		sum, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{})
		if err != nil || sum.State != "sealed" || sum.Put != int64(missing) || sum.Envelopes == 0 || sum.Sealed || len(sum.Lacking) != len(dry.Lacking) {
			t.Fatalf("%+v, %v", sum, err)
		}
		got := w.Collect()
		if len(got) != missing {
			t.Errorf("%d tasks were put, %d were missing", len(got), missing)
		}
		windowHit(t, len(got))
		for id, bodies := range got {
			if len(bodies) != 1 || bodies[0] != want[id][0] {
				t.Fatalf("%s was put as %q, and is %q", id, bodies, want[id])
			}
		}
		// When they are done too, nothing is left to repair.
		s.Record(run.ID, testworld.Below(run.Sealed), nil)
		if again, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{}); err != nil || again.Missing != 0 || again.Put != 0 || len(again.Lacking) != 0 {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// hidden is how many messages collect has hidden for an hour.
func (w *world) hidden() int { return w.Left() - w.shown() }

func (w *world) shown() (n int) {
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
