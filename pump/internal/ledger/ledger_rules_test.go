package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Each test here is a rule of P3 or P4 (docs/protocols.md), or the failure that one is there for.

func TestP32AnOldOwnerRecordsNothingAfterTheNextOnesFence(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		a.mustFence(1, 7)
		a.begin(7, 1, testkit.RunID(1), 0, ns(0, 10))
		b.mustFence(2, 7) // before its first get, and so before anything of a's can be delivered to it
		want(t, "b begins", b.begin(7, 2, testkit.RunID(1), 0, ns(0, 10)), [3]string{"0-9", "", ""})
		proof.Is(t, a.commit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 10)}), ErrFenced, "a recorded what b has in hand")
		if a.Fenced(7, 1) || !b.Fenced(7, 2) {
			t.Error("fenced: a", a.Fenced(7, 1), "b", b.Fenced(7, 2))
		}
		proof.Is(t, proof.ErrOf(a.Begin(7, 1, testkit.RunID(1), 0, ns(10, 11))), ErrFenced, "a begins")
		b.mustCommit(Entry{Segment: 7, Epoch: 2, Run: testkit.RunID(1), Done: ns(0, 10)})
	})
}

func TestP32AnEpochIsNeverWrittenOverAForeignOneAtOrAboveIt(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		b.mustFence(5, 7)
		for _, epoch := range []uint64{1, 4, 5} {
			fenced, err := fenceAll(t.Context(), a, append(holdsOf(epoch, 7), holdsOf(1, 8+uint32(epoch))...))
			if !errors.Is(err, ErrFenced) || !slices.Equal(fenced, []uint32{8 + uint32(epoch)}) {
				t.Errorf("epoch %d: fenced %v, %v", epoch, fenced, err)
			}
		}
		if r := recordOf(t, b.table, 7); r.Epoch != 5 || !strings.HasPrefix(r.Owner, "b#") {
			t.Errorf("the head says %d of %s", r.Epoch, r.Owner)
		}
		b.mustCommit(Entry{Segment: 7, Epoch: 5, Run: testkit.RunID(1), Done: ns(0, 1)}) // its ETag is still good
		a.mustFence(6, 7)
	})
}

func TestP32AFenceThatLosesTheRaceReadsAndFencesAgain(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		a.mustFence(1, 7, 8)
		// b's fence is under way while a commits.
		i := sim.Inject(azsim.Rule{Instance: "b", Operations: []string{"Batch"}, Fault: azsim.DelayBefore, Delay: time.Second, First: 1})
		fenced := make(chan error)
		go func() {
			_, err := fenceAll(t.Context(), b, holdsOf(2, 7, 8))
			fenced <- err
		}()
		time.Sleep(500 * time.Millisecond)
		a.mustCommit(Entry{Segment: 8, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 10)})
		if err := <-fenced; err != nil || i.Hits() != 1 {
			t.Fatal(err, i)
		}
		want(t, "what a recorded meanwhile", b.begin(8, 2, testkit.RunID(1), 0, ns(0, 11)), [3]string{"10", "0-9", ""})
	})
}

func TestP34CopiesCutDifferentlyDoNotRunTwice(t *testing.T) {
	// Copies {0} and {0,1} reaching one healthy owner ran twice.
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 7)
		want(t, "{0}", a.begin(7, 1, testkit.RunID(1), 0, ns(0, 1)), [3]string{"0", "", ""})
		want(t, "{0,1}", a.begin(7, 1, testkit.RunID(1), 0, ns(0, 2)), [3]string{"1", "", "0"})
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1)})
		want(t, "{0,1} again", a.begin(7, 1, testkit.RunID(1), 0, ns(0, 2)), [3]string{"", "0", "1"})
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(1, 2)})
		want(t, "{0,1} at last", a.begin(7, 1, testkit.RunID(1), 0, ns(0, 2)), [3]string{"", "0-1", ""})
	})
}

func TestP34AForeignMessageDoesNotRunTwice(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 7)
		ask := func(id string, wantRecorded, wantInHand bool) {
			t.Helper()
			recorded, inHand, err := a.BeginForeign(7, 1, id, false)
			if recorded != wantRecorded || inHand != wantInHand || err != nil {
				t.Errorf("%s: recorded %v, in hand %v, %v", id, recorded, inHand, err)
			}
		}
		ask("q/1", false, false)
		ask("q/1", false, true)
		a.EndForeign(7, 1, "q/1")
		ask("q/1", false, false)
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Foreign: "q/1"})
		ask("q/1", true, false)
		ask("q/2", false, false)
	})
}

func TestP36SixtyFourSegmentsAreOneTransactionAndNoRead(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		all := segmentsTo(64)
		a.mustFence(1, all...)
		before := requests(sim)
		for round := range uint64(3) {
			var entries []Entry
			for _, s := range all {
				entries = append(entries, Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: ns(round*1600, (round+1)*1600)})
			}
			a.mustCommit(entries...)
		}
		want(t, "requests", requests(sim)-before, 3)
	})
}

func requests(sim *azsim.Sim) int { return int(sim.Stats().Count("", "")) }

func TestP36TheSegmentThatWasLostIsDroppedAndTheOthersAreSentAgain(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		a.mustFence(1, 5, 6, 7, 8, 9)
		b.mustFence(2, 7, 9)
		var entries []*Entry
		for s := uint32(5); s < 10; s++ {
			entries = append(entries, &Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)})
		}
		a.Commit(t.Context(), entries)
		for _, e := range entries {
			lost := e.Segment == 7 || e.Segment == 9
			if errors.Is(e.Err, ErrFenced) != lost || !lost && e.Err != nil {
				t.Errorf("segment %d: %v", e.Segment, e.Err)
			}
			if r := recordOf(t, a.table, e.Segment); r.Done(testkit.RunID(1), 4) == lost {
				t.Errorf("segment %d is recorded: %v", e.Segment, !lost)
			}
		}
	})
}

func TestP37AClosedRunIsPrunedAndItsCountsGo(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		table := testkit.OverTheWire(t, sim, "a")
		a := openBook(t, table, "a")
		a.mustFence(1, 5, 70)
		var scattered codec.NSet
		for n := range uint64(40) {
			scattered.AddRange(n*chunkSize, n*chunkSize+1)
		}
		a.mustCommit(
			Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 100)}, Entry{Segment: 70, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 7), Quarantined: ns(7, 9)},
			Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(2), Done: scattered},
		)
		progress, err := ReadProgress(t.Context(), table, "city", 128, testkit.RunID(1), testkit.RunID(2))
		if err != nil || len(progress) != 2 {
			t.Fatalf("%v, %v", progress, err)
		}
		p := progress[testkit.RunID(1)]
		want(t, "done and in quarantine", [4]uint64{p.Done[5], p.Done[70], p.Quarantined[70], progress[testkit.RunID(2)].Done[5]}, [4]uint64{100, 7, 2, 40})
		want(t, "live", a.LiveRuns(), []codec.RunID{testkit.RunID(1), testkit.RunID(2)})
		must(t, a.Prune(t.Context(), []codec.RunID{testkit.RunID(2), testkit.RunID(9)}))
		want(t, "live", a.LiveRuns(), []codec.RunID{testkit.RunID(1)})
		progress, err = ReadProgress(t.Context(), table, "city", 128, testkit.RunID(1), testkit.RunID(2))
		if err != nil || len(progress) != 1 {
			t.Fatalf("%v, %v", progress, err)
		}
		if r := recordOf(t, table, 5); len(r.image.layout.all()) != 1 || !r.Done(testkit.RunID(1), 99) {
			t.Errorf("%d records are left", len(r.image.layout.all()))
		}
		// The next owner sees nothing of it either.
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		b.mustFence(2, 5)
		want(t, "live", b.LiveRuns(), []codec.RunID{testkit.RunID(1)})
	})
}

// A partition that does not answer keeps no other one from forgetting.
func TestP37PartitionsForgetSideBySide(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		table := testkit.OverTheWire(t, sim, "a")
		a := openBook(t, table, "a")
		a.mustFence(1, 5, 70)
		a.mustCommit(
			Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 100)},
			Entry{Segment: 70, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 7)},
		)
		dark := azsim.Rule{Service: "table", Partition: "city.ledger.00", Fault: azsim.HangBefore}
		hangs := sim.Inject(dark)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.Prune(ctx, []codec.RunID{testkit.RunID(1)}); err == nil {
			t.Error("the dark partition has forgotten its run")
		}
		hangs.Remove()
		if recordOf(t, table, 70).Done(testkit.RunID(1), 0) {
			t.Error("the other partition has not")
		}
	})
}

func TestP37OnlyASealedRunIsClosed(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		runs := workload.NewRuns(testkit.OverTheWire(t, sim, "a"), "city")
		must(t, runs.Create(t.Context(), workload.Run{ID: testkit.RunID(1)}))
		proof.Is(t, runs.Close(t.Context(), testkit.RunID(1)), pump.ErrRunState, "an open run")
		must(t, runs.Seal(t.Context(), testkit.RunID(1), []uint64{3, 4}))
		i := sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.AnswerLost, First: 1})
		for range 2 {
			must(t, runs.Close(t.Context(), testkit.RunID(1)))
		}
		run, err := runs.Get(t.Context(), testkit.RunID(1))
		if err != nil || run.State != workload.RunClosed || run.Tasks != 7 || i.Hits() != 1 {
			t.Errorf("%+v, %v, %v", run, err, i)
		}
		proof.Is(t, runs.Close(t.Context(), testkit.RunID(2)), pump.ErrNoRun, "no run")
		must(t, runs.Create(t.Context(), workload.Run{ID: testkit.RunID(3)}))
		proof.Is(t, errors.Join(runs.Break(t.Context(), testkit.RunID(3), "why"), runs.Close(t.Context(), testkit.RunID(3))), pump.ErrRunState, "a broken run")
	})
}

func TestP44ARedrivenTaskIsDoneAndNotDroppedAsADuplicate(t *testing.T) {
	// A redriven task that keeps its identity and is recorded as done was dropped: lost.
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 5)
		a.mustCommit(Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 3), Quarantined: ns(3, 5)})
		want(t, "a copy of what stands in quarantine", a.begin(5, 1, testkit.RunID(1), 0, ns(2, 6)), [3]string{"5", "2-4", ""})
		want(t, "redriven", a.begin(5, 1, testkit.RunID(1), 1, ns(2, 5)), [3]string{"3-4", "2", ""})
		want(t, "redriven, a copy", a.begin(5, 1, testkit.RunID(1), 1, ns(3, 4)), [3]string{"", "", "3"})
		a.mustCommit(Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Generation: 1, Done: ns(3, 4), Quarantined: ns(4, 5)})
		want(t, "again", a.begin(5, 1, testkit.RunID(1), 1, ns(3, 5)), [3]string{"", "3-4", ""})
		want(t, "redriven once more", a.begin(5, 1, testkit.RunID(1), 2, ns(3, 5)), [3]string{"4", "3", ""})
		r := recordOf(t, a.table, 5)
		finished, quarantined := r.Counts(testkit.RunID(1))
		want(t, "counts", [2]uint64{finished, quarantined}, [2]uint64{4, 1})
		for n, generation := range r.Quarantined(testkit.RunID(1)) {
			want(t, "in quarantine", [2]uint64{n, uint64(generation)}, [2]uint64{4, 1})
		}
	})
}

func TestResultsOutliveTrust(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a", withSums)
		a.mustFence(1, 5, 6)
		a.begin(5, 1, testkit.RunID(1), 0, ns(0, 20))
		a.begin(6, 1, testkit.RunID(1), 0, ns(0, 10))
		// Trust is over: the holds ended. Ten handlers had finished, the others were ended.
		a.Drop([]uint32{5, 6})
		if _, err := a.Begin(5, 1, testkit.RunID(1), 0, ns(20, 21)); !errors.Is(err, ErrFenced) || a.Fenced(5, 1) {
			t.Error("something begins in a segment that was dropped")
		}
		a.End(5, 1, testkit.RunID(1), ns(10, 20))
		// The head is still this process's, so what is finished can be recorded even now.
		a.mustCommit(Entry{Segment: 6, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 10), Contributions: sums(0, 10)})
		// It claims again: no other owner was there in between.
		a.mustFence(4, 5, 6)
		want(t, "under the new fence", a.begin(5, 4, testkit.RunID(1), 0, ns(0, 20)), [3]string{"10-19", "", "0-9"})
		want(t, "recorded", a.begin(6, 4, testkit.RunID(1), 0, ns(0, 10)), [3]string{"", "0-9", ""})
		a.mustCommit(Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 10), Contributions: sums(0, 10)})
		want(t, "recorded", a.begin(5, 4, testkit.RunID(1), 0, ns(0, 20)), [3]string{"", "0-9", "10-19"})
		want(t, "states", string(recordOf(t, a.table, 5).State())+"; "+string(recordOf(t, a.table, 6).State()), "10 tasks, 45; 10 tasks, 45")
		// And once more, but this time another owner was there.
		a.Drop([]uint32{5})
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b", withSums)
		b.mustFence(5, 5)
		a.mustFence(6, 5)
		proof.Is(t, a.commit(Entry{Segment: 5, Epoch: 4, Run: testkit.RunID(1), Done: ns(10, 20)}), ErrFenced, "results from before another owner")
		want(t, "after it", a.begin(5, 6, testkit.RunID(1), 0, ns(0, 20)), [3]string{"10-19", "0-9", ""})
		a.End(5, 4, testkit.RunID(1), ns(10, 20)) // late, of the hold from before
		want(t, "still in hand", a.begin(5, 6, testkit.RunID(1), 0, ns(10, 20)), [3]string{"", "", "10-19"})
	})
}

func TestFencingAgainUnderTheSameEpochIsFree(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(3, 5, 6, 70)
		before := requests(sim)
		a.mustFence(3, 5, 6, 70)
		want(t, "requests", requests(sim)-before, 0)
		if fenced, err := fenceAll(t.Context(), a, holdsOf(2, 5)); !errors.Is(err, ErrFenced) || len(fenced) > 0 || !a.Fenced(5, 3) {
			t.Errorf("an older hold: %v, %v", fenced, err)
		}
		a.Drop([]uint32{5})
		a.mustFence(3, 5)
		a.mustCommit(Entry{Segment: 5, Epoch: 3, Run: testkit.RunID(1), Done: ns(0, 1)})
	})
}

func TestWithoutARecordEveryContributionCounts(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a", withSums, func(o *Options) { o.Record = false })
		a.mustFence(1, 5)
		for range 2 {
			want(t, "begin", a.begin(5, 1, testkit.RunID(1), 0, ns(0, 10)), [3]string{"0-9", "", ""})
			a.mustCommit(Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 10), Contributions: sums(0, 10)}, Entry{Segment: 5, Epoch: 1, Foreign: "q/1", Contributions: sums(100, 101)})
		}
		r := recordOf(t, a.table, 5)
		want(t, "state", string(r.State()), "22 tasks, 290")
		want(t, "runs", len(r.Runs()), 0)
	})
}

// sumState is the state of a simple reducer: how many tasks, and the sum of their numbers.
type sumState struct{}

type sumOf struct{ tasks, sum int }

func (sumState) Load(stored []byte) (any, error) {
	s := &sumOf{}
	if stored == nil {
		return s, nil
	}
	_, err := fmt.Sscanf(string(stored), "%d tasks, %d", &s.tasks, &s.sum)
	return s, err
}

func (sumState) Fold(state, contribution any) {
	s := state.(*sumOf)
	s.tasks++
	s.sum += contribution.(int)
}

func (sumState) Store(state any) ([]byte, error) {
	s := state.(*sumOf)
	return fmt.Appendf(nil, "%d tasks, %d", s.tasks, s.sum), nil
}

func withSums(o *Options) { o.State = sumState{} }

func sums(from, to uint64) (list []Contribution) {
	for n := from; n < to; n++ {
		list = append(list, Contribution{n, int(n)})
	}
	return list
}
