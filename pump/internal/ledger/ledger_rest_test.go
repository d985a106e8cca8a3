package ledger

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A1: a run that only has quarantine left costs its segment a few bytes and no slot.
func TestOfAClosedRunOnlyWhatIsInQuarantineStaysAndCountsAsNoLiveRun(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 5, 6)
		a.mustCommit(
			Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 50), Quarantined: ns(50, 52)}, Entry{Segment: 6, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 9)},
			Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(2), Done: ns(0, 3)},
		)
		must(t, a.Prune(t.Context(), []codec.RunID{testkit.RunID(1)}))
		want(t, "live", a.LiveRuns(), []codec.RunID{testkit.RunID(2)})
		sums, err := ReadSums(t.Context(), a.table, "city", 128)
		if err != nil || len(sums.Runs) != 1 || sums.Use.Runs != 1 {
			t.Errorf("%+v, %v", sums, err)
		}
		progress, err := ReadProgress(t.Context(), a.table, "city", 128, testkit.RunID(1))
		if err != nil || progress[testkit.RunID(1)].Quarantined[5] != 2 {
			t.Errorf("%v, %v", progress, err)
		}
		// The next owner, too, knows which tasks may come back, and with which generation.
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		b.mustFence(2, 5, 6)
		begin := func(segment uint32, generation uint32, tasks codec.NSet) [3]string {
			got, err := b.BeginClosed(segment, 2, testkit.RunID(1), generation, tasks)
			must(t, err)
			return [3]string{got.Fresh.String(), got.Recorded.String(), got.InHand.String()}
		}
		want(t, "as it was put there", begin(5, 0, ns(50, 52)), [3]string{"", ns(50, 52).String(), ""})
		want(t, "redriven", begin(5, 1, ns(49, 51)), [3]string{ns(50, 51).String(), ns(49, 50).String(), ""})
		want(t, "redriven twice", begin(5, 1, ns(50, 51)), [3]string{"", "", ns(50, 51).String()})
		want(t, "where nothing is left", begin(6, 1, ns(3, 4)), [3]string{"", ns(3, 4).String(), ""})
		b.mustCommit(Entry{Segment: 5, Epoch: 2, Run: testkit.RunID(1), Generation: 1, Done: ns(50, 51)})
		want(t, "of two one is left", begin(5, 2, ns(50, 52)), [3]string{ns(51, 52).String(), ns(50, 51).String(), ""})
		b.mustCommit(Entry{Segment: 5, Epoch: 2, Run: testkit.RunID(1), Generation: 2, Done: ns(51, 52)})
		want(t, "it is gone by itself", recordOf(t, a.table, 5).Runs(), []codec.RunID{testkit.RunID(2)})
		want(t, "a late copy", begin(5, 2, ns(50, 52)), [3]string{"", ns(50, 52).String(), ""})
	})
}

func TestOfARunThatIsOverNothingStays(t *testing.T) {
	table := newMemTable()
	a := openBook(t, table, "a")
	a.mustFence(1, 5)
	a.mustCommit(
		Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5), Quarantined: ns(5, 7)},
		Entry{Segment: 5, Epoch: 1, Run: testkit.RunID(2), Done: ns(0, 5), Quarantined: ns(9, 10)},
	)
	must(t, errors.Join(a.Prune(t.Context(), []codec.RunID{testkit.RunID(1)}), a.Prune(t.Context(), nil, testkit.RunID(1), testkit.RunID(2))))
	want(t, "what is left", len(recordOf(t, table, 5).Runs()), 0)
}

// What a segment cannot keep as rests stays live until the oldest have gone.
func TestRestsAreBoundedAndTheOldestGoFirst(t *testing.T) {
	proof.Only(t)
	table := newMemTable()
	a := openBook(t, table, "a")
	a.mustFence(1, 7)
	id := func(i int) codec.RunID { return codec.RunID{byte(i >> 8), byte(i), 1} }
	var closed []codec.RunID
	for i := range restsMost + 5 {
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: id(i), Quarantined: ns(0, 1)})
		closed = append(closed, id(i))
		if i%500 == 499 || i == restsMost+4 {
			must(t, a.Prune(t.Context(), closed))
		}
	}
	want(t, "live", len(a.LiveRuns()), 5)
	hour := uint64(time.Now().Unix() / 3600)
	aged, crowded := a.OldRests(hour - 1)
	want(t, "aged and crowded", [2]int{len(aged), len(crowded)}, [2]int{0, restsMost / 2})
	aged, _ = a.OldRests(hour + 2)
	want(t, "aged", len(aged), restsMost)
	must(t, errors.Join(a.Prune(t.Context(), nil, crowded...), a.Prune(t.Context(), closed)))
	want(t, "live", len(a.LiveRuns()), 0)
	b := openBook(t, table, "b")
	b.mustFence(2, 7)
	want(t, "rests", len(recordOf(t, table, 7).Rests()), restsMost/2+5)
}

// A2: what all live runs have done is summed up while it is read.
func TestSumsOfManyRunsTakeNoMemoryForTheirSegments(t *testing.T) {
	table := newMemTable()
	a := openBook(t, table, "a")
	all := segmentsTo(128)
	a.mustFence(1, all...)
	const runs = 100
	for i := range byte(runs) {
		var entries []Entry
		for _, s := range all {
			entries = append(entries, Entry{Segment: s, Epoch: 1, Run: testkit.RunID(i + 1), Done: ns(0, uint64(s)+1)})
		}
		a.mustCommit(entries...)
	}
	sums, err := ReadSums(t.Context(), table, "city", 128)
	if err != nil || len(sums.Runs) != runs {
		t.Fatal(len(sums.Runs), err)
	}
	settled := make([]uint64, 128)
	for s := range settled {
		settled[s] = uint64(s) + 1
	}
	want(t, "one of them", sums.Runs[testkit.RunID(7)], workload.RunSum{Done: 128 * 129 / 2, Print: workload.PrintOf(settled)})
	settled[3], settled[4] = settled[3]+1, settled[4]-1
	if workload.PrintOf(settled) == sums.Runs[testkit.RunID(7)].Print {
		t.Error("numbers that are divided differently look the same")
	}
}

// A2: what a reading takes grows with the runs, and not with the runs times the segments: 2,000
// runs of 4,096 segments took 131 MB when each had two numbers of each segment. Worlds cannot see
// that: a simulated process has no memory of its own, and what all have is the simulation's.
func TestSumsTakeMemoryByTheRunsAndNotBySegmentsOfEach(t *testing.T) {
	table := newMemTable()
	a := openBook(t, table, "a")
	all := segmentsTo(PartitionSegments)
	a.mustFence(1, all...)
	const runs, each = 2000, 200
	for from := 0; from < runs; from += each {
		var entries []Entry
		for i := from; i < from+each; i++ {
			id := codec.RunID{0: 1, 1: byte(i >> 8), 2: byte(i)}
			segment := uint32(i % PartitionSegments)
			entries = append(entries, Entry{Segment: segment, Epoch: 1, Run: id, Done: ns(0, 3)})
		}
		a.mustCommit(entries...)
	}
	takes := func(segments int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sums, err := ReadSums(t.Context(), table, "city", segments)
		runtime.ReadMemStats(&after)
		if err != nil || len(sums.Runs) != runs {
			t.Fatal(len(sums.Runs), err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	const kib = 1 << 10
	few, many := takes(PartitionSegments), takes(4096)
	t.Logf("%d KiB of 64 segments, %d KiB of 4096", few/kib, many/kib)
	if few > runs*kib || many > few+runs*kib {
		t.Errorf("%d runs take %d KiB of 64 segments and %d KiB of 4096, want 1 KiB a run at most",
			runs, few/kib, many/kib)
	}
}
