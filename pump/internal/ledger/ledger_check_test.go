package ledger

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// An owner that has nothing to write did not learn that its rows were those of some time ago: it
// knew everything as done, and what a repair put again was a duplicate to it.
func TestAnIdleOwnerLearnsThatItsRowsAreThoseOfSomeTimeAgoAndFencesThemAboveItsEpoch(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		var told []uint32
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a", func(o *Options) {
			o.Old = func(segments []uint32) { told = append(told, segments...) }
		})
		a.mustFence(4, 6, 7, 8)
		a.mustCommit(Entry{Segment: 7, Epoch: 4, Run: testkit.RunID(1), Done: ns(0, 3)})
		kept := sim.Snapshot("north", row.TableName, "city.ledger.00")
		a.mustCommit(Entry{Segment: 7, Epoch: 4, Run: testkit.RunID(1), Done: ns(3, 9)}, Entry{Segment: 8, Epoch: 4, Run: testkit.RunID(1), Done: ns(0, 9)})
		holds := holdsOf(4, 6, 7, 8)
		if err := a.Check(t.Context(), holds); err != nil || len(told) > 0 {
			t.Fatalf("%v is told of: %v", told, err)
		}
		kept.Restore()
		before := requests(sim)
		if err := a.Check(t.Context(), holds); err != nil || !slices.Equal(told, []uint32{7, 8}) {
			t.Fatalf("%v is told of: %v", told, err)
		}
		want(t, "requests", requests(sim)-before, 1)
		want(t, "6 is fenced", a.Fenced(6, 4), true)
		want(t, "7 is fenced", a.Fenced(7, 4) || a.Unloaded(7, 4), false)
		_, err := a.Fence(t.Context(), holdsOf(4, 7))
		u, _ := errors.AsType[*UnfencedError](err)
		if u == nil || !errors.Is(err, ErrFenced) || u.Segments[0].Head != 4 {
			t.Fatalf("fenced under the epoch of the rows that are gone: %v", err)
		}
		a.mustFence(5, 7, 8)
		want(t, "what the rows have", a.begin(7, 5, testkit.RunID(1), 0, ns(0, 9)), [3]string{"3-8", "0-2", ""})
		told = nil
		if err := a.Check(t.Context(), append(holdsOf(4, 6), holdsOf(5, 7, 8)...)); err != nil || len(told) > 0 {
			t.Errorf("%v is told of again: %v", told, err)
		}
	})
}

// Rows of another history under an epoch and with more commits than this one has would be taken for
// good.
func TestACommitThatMeetsRowsOfSomeTimeAgoHasTheSegmentFencedAboveItsEpoch(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		b.mustFence(3, 9)
		a.mustFence(3, 7)
		kept := sim.Snapshot("north", row.TableName, "city.ledger.00")
		a.mustFence(4, 9)
		a.mustCommit(Entry{Segment: 7, Epoch: 3, Run: testkit.RunID(1), Done: ns(0, 3)})
		a.begin(9, 4, testkit.RunID(1), 0, ns(0, 3))
		kept.Restore()
		a.mustCommit(Entry{Segment: 7, Epoch: 3, Run: testkit.RunID(1), Done: ns(3, 4)}) // it is a's own
		proof.Is(t, a.commit(Entry{Segment: 9, Epoch: 4, Run: testkit.RunID(1), Done: ns(0, 3)}), ErrFenced, "recorded where b may be at work")
		want(t, "7 is fenced", a.Fenced(7, 3), false)
		for segment, epoch := range map[uint32]uint64{7: 3, 9: 4} {
			_, err := a.Fence(t.Context(), holdsOf(epoch, segment))
			if u, _ := errors.AsType[*UnfencedError](err); u == nil || u.Segments[0].Head != epoch {
				t.Errorf("segment %d is fenced under epoch %d: %v", segment, epoch, err)
			}
			a.mustFence(epoch+1, segment)
		}
	})
}

func TestACheckTakesNeitherALaterOwnerNorACommitUnderWayForRowsOfSomeTimeAgo(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		var told []uint32
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a", func(o *Options) {
			o.Old = func(segments []uint32) { told = append(told, segments...) }
		})
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		a.mustFence(1, 7, 8)
		sim.Inject(azsim.Rule{Instance: "a", Operations: []string{"QueryEntities"}, Fault: azsim.DelayAfter, Delay: 3 * time.Second, First: 1})
		checked := make(chan error)
		go func() { checked <- a.Check(t.Context(), holdsOf(1, 7, 8)) }()
		time.Sleep(time.Second)
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 3)}) // the check has read what was before
		b.mustFence(2, 8)
		if err := <-checked; err != nil || len(told) > 0 || !a.Fenced(7, 1) {
			t.Errorf("%v is told of: %v", told, err)
		}
		if err := a.Check(t.Context(), holdsOf(1, 7, 8)); err != nil || len(told) > 0 {
			t.Errorf("%v is told of: %v", told, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		sim.Inject(azsim.Rule{Instance: "a", Operations: []string{"QueryEntities"}, Fault: azsim.FailBefore})
		if err := a.Check(ctx, holdsOf(1, 7)); err == nil || !a.Fenced(7, 1) {
			t.Errorf("what cannot be read is not fenced: %v", err)
		}
	})
}
