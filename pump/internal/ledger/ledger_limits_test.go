package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// bytesState is a state that is the last contribution.
type bytesState struct{}

func (bytesState) Load(stored []byte) (any, error) { return &stored, nil }
func (bytesState) Fold(state, contribution any)    { *state.(*[]byte) = contribution.([]byte) }
func (bytesState) Store(state any) ([]byte, error) { return *state.(*[]byte), nil }

func withBytes(o *Options) { o.State = bytesState{} }

// noise is incompressible.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

// scattered is as few tasks of some chunks as take the most room: more than are kept
// one by one, and none next to another.
func scattered(seed, from, chunks uint64) codec.NSet {
	list := make([]uint64, 0, chunks*chunkSize/15+1)
	for n := from*chunkSize + seed%15; n < (from+chunks)*chunkSize; n += 15 {
		list = append(list, n)
	}
	return codec.MakeNSet(list...)
}

func wantFull(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, ErrLedgerFull) {
		t.Fatalf("%v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestTooManyLiveRunsAreAClearErrorBeforeTheirTasksAreDone(t *testing.T) {
	a := openBook(t, newMemTable(), "a")
	a.mustFence(1, 7)
	id := func(i int) (id codec.RunID) {
		id[0], id[1], id[2] = 1, byte(i>>8), byte(i)
		return id
	}
	var entries []Entry
	for i := range maxLiveRuns - 1 {
		entries = append(entries, Entry{Segment: 7, Epoch: 1, Run: id(i), Done: ns(5, 6)})
	}
	a.mustCommit(entries...)
	want(t, "the last that fits", a.begin(7, 1, id(8000), 0, ns(0, 1))[0], "0")
	_, err := a.Begin(7, 1, id(8001), 0, ns(0, 1))
	wantFull(t, err, "segment 7", id(8001).String(), "7200 runs")
	want(t, "of a run that is there", a.begin(7, 1, id(4), 0, ns(0, 7)), [3]string{"0-4,6", "5", ""})
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: id(8000), Done: ns(0, 1)})
	wantFull(t, a.commit(Entry{Segment: 7, Epoch: 1, Run: id(8001), Done: ns(0, 1)}), id(8001).String())
	// What does not fit does not keep the others from being recorded.
	e := []*Entry{{Segment: 7, Epoch: 1, Run: id(8001), Done: ns(0, 1)}, {Segment: 7, Epoch: 1, Run: id(4), Done: ns(0, 4)}, {Segment: 8, Epoch: 1}}
	a.Commit(t.Context(), e)
	if !errors.Is(e[0].Err, ErrLedgerFull) || e[1].Err != nil || e[2].Err == nil {
		t.Error(e[0].Err, e[1].Err, e[2].Err)
	}
	must(t, a.Prune(t.Context(), []codec.RunID{id(0), id(1)}))
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: id(8001), Done: ns(0, 1)})
	// All of it reads back, by the next owner, and the counts fit their property.
	b := openBook(t, a.table, "b")
	b.mustFence(2, 7)
	want(t, "runs", len(b.LiveRuns()), maxLiveRuns-1)
	sums, err := ReadSums(t.Context(), a.table, "city", 128)
	if err != nil || len(sums.Runs) != maxLiveRuns-1 || sums.Runs[id(4)].Done != 5 || sums.Use.Segment != 7 || sums.Use.Runs != maxLiveRuns-1 {
		t.Error(sums, err)
	}
}

func TestTasksDoneAllOverThePlaceAreAClearErrorAndCostNothingElse(t *testing.T) {
	table := newMemTable()
	a := openBook(t, table, "a")
	a.mustFence(1, 7)
	var err error
	chunks := uint64(0)
	for ; err == nil; chunks++ {
		if chunks > 200 {
			t.Fatal("every 15th task of 200 x 65,536 was recorded")
		}
		set := scattered(1, chunks, 1)
		var begun Begun
		if begun, err = a.Begin(7, 1, testkit.RunID(1), 0, set); err == nil {
			if begun.Fresh.Len() != set.Len() {
				t.Fatalf("%d of %d are fresh", begun.Fresh.Len(), set.Len())
			}
			a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: set})
		}
	}
	wantFull(t, err, "segment 7", testkit.RunID(1).String(), "scattered")
	if chunks < 80 {
		t.Errorf("full after %d x 65,536 tasks", chunks)
	}
	sums, err := ReadSums(t.Context(), table, "city", 128)
	if use := a.Use(); use.Fullest() < 1 || use.Segment != 7 || err != nil || sums.Use != use {
		t.Errorf("it is full, and says %+v of itself; read it is %+v, %v", use, sums.Use, err)
	}
	// Tasks that were begun before find their place, and those that fill the gaps make room.
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: scattered(500, chunks, 3)})
	want(t, "a gap", a.begin(7, 1, testkit.RunID(1), 0, ns(0, chunkSize))[0] != "", true)
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 30*chunkSize)})
	want(t, "beyond", a.begin(7, 1, testkit.RunID(1), 0, ns(900*chunkSize, 900*chunkSize+1))[0], fmt.Sprint(900*chunkSize))
	b := openBook(t, table, "b")
	b.mustFence(2, 7)
	r := recordOf(t, table, 7)
	finished, _ := r.Counts(testkit.RunID(1))
	var open uint64
	for from, to := range r.Unsettled(testkit.RunID(1), (chunks+3)*chunkSize) {
		open += to - from
	}
	want(t, "done and open", finished+open, (chunks+3)*chunkSize)
	if table.largest > transactionMost {
		t.Errorf("a transaction of %d bytes", table.largest)
	}
}

func TestMoreThanTheHardLimitIsRefusedAndNothingOfItRecorded(t *testing.T) {
	a := openBook(t, newMemTable(), "a")
	a.mustFence(1, 7, 8)
	set := scattered(1, 0, 160) // 1.3 MB as bits
	big, small := &Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: set}, &Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(2), Done: ns(0, 5)}
	other := &Entry{Segment: 8, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)}
	a.Commit(t.Context(), []*Entry{big, small, other})
	wantFull(t, big.Err, "segment 7", testkit.RunID(1).String())
	if small.Err != nil || other.Err != nil {
		t.Error(small.Err, other.Err)
	}
	want(t, "runs", recordOf(t, a.table, 7).Runs(), []codec.RunID{testkit.RunID(2)})
}

// Each commit that was refused had put a copy into quarantine before, and its message came back
// after a minute to be tried again: a copy a minute, for ever.
func TestManyGenerationsInOneChunkFindRoom(t *testing.T) {
	table := newMemTable()
	a := openBook(t, table, "a")
	a.mustFence(1, 7)
	run := testkit.RunID(1)
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: run, Done: scattered(14, 0, 1)})
	const generations = 14
	tasks := scattered(14, 0, 1).Len()
	for g := range uint32(generations) {
		set := scattered(uint64(g), 0, 1)
		tasks += set.Len()
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: run, Generation: g, Quarantined: set})
	}
	b := openBook(t, table, "b")
	b.mustFence(2, 7)
	finished, poisoned := recordOf(t, table, 7).Counts(run)
	want(t, "done and in quarantine", finished+poisoned, uint64(tasks))
	for g := range uint32(generations) {
		set := scattered(uint64(g), 0, 1)
		begun, err := b.Begin(7, 2, run, g+1, set)
		if err != nil || begun.Fresh.Len() != set.Len() {
			t.Errorf("of %d that are redriven from generation %d %d are fresh, %v",
				set.Len(), g, begun.Fresh.Len(), err)
		}
		b.mustCommit(Entry{Segment: 7, Epoch: 2, Run: run, Generation: g + 1, Done: set})
	}
	finished, poisoned = recordOf(t, table, 7).Counts(run)
	want(t, "done in the end", finished, uint64(tasks))
	want(t, "in quarantine in the end", poisoned, 0)
}

func TestAStateThatIsTooLargeIsAClearErrorAndTheLastOneStays(t *testing.T) {
	a := openBook(t, newMemTable(), "a", withBytes)
	a.mustFence(1, 7)
	put := func(n uint64, state []byte) error {
		return a.commit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(n, n+1), Contributions: []Contribution{{n, state}}})
	}
	good := noise(1, maxState-100)
	must(t, put(0, good))
	wantFull(t, put(1, noise(2, maxState+1)), "segment 7", "state has 1048577 bytes")
	wantFull(t, put(1, make([]byte, maxRawState+1)), "segment 7")
	must(t, put(2, make([]byte, maxRawState))) // it is nothing when compressed
	must(t, put(3, good))
	r := recordOf(t, a.table, 7)
	if !bytes.Equal(r.State(), good) || r.Done(testkit.RunID(1), 1) || !r.Done(testkit.RunID(1), 2) {
		t.Errorf("a state of %d bytes, 1 done: %v", len(r.State()), r.Done(testkit.RunID(1), 1))
	}
	b := openBook(t, a.table, "b", withBytes)
	b.mustFence(2, 7)
}

func TestEverythingAtItsLimitFitsIntoOneTransaction(t *testing.T) {
	// Of the driver that ships and the service's own limit of 4 MiB.
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a", withBytes)
		a.mustFence(1, 7)
		var errs []error
		for i := range uint64(4) {
			// All pages are written again each time: another state, other tasks everywhere.
			set := scattered(i, 0, 110)
			errs = append(errs, a.commit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(byte(i + 1)), Done: codec.MakeNSet(i * 3), Contributions: []Contribution{{i * 3, noise(i, maxState-500)}}}))
			if i == 0 {
				errs = append(errs, a.commit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(9), Done: set}))
			}
		}
		must(t, errors.Join(errs...))
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b", withBytes)
		b.mustFence(2, 7)
		r := recordOf(t, a.table, 7)
		if !bytes.Equal(r.State(), noise(3, maxState-500)) || len(r.Runs()) != 5 {
			t.Errorf("a state of %d bytes, %d runs", len(r.State()), len(r.Runs()))
		}
	})
}

func TestManySegmentsAtTheirLimitAreSeveralTransactions(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a", withBytes)
		var all []uint32
		var entries []Entry
		for s := range uint32(16) {
			all = append(all, s)
			entries = append(entries, Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1), Contributions: []Contribution{{0, noise(uint64(s), 900_000)}}})
		}
		a.mustFence(1, all...)
		a.mustCommit(entries...)
		if n := sim.Stats().Count("", "Batch"); n < 5 || n > 10 {
			t.Errorf("%d transactions", n)
		}
		for r, err := range ReadRecord(t.Context(), a.table, "city", 16) {
			if err != nil || !bytes.Equal(r.State(), noise(uint64(r.Segment), 900_000)) {
				t.Errorf("segment %d has another state: %v", r.Segment, err)
			}
		}
	})
}

func TestATransactionThatTheServiceFindsTooLargeIsSplit(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 1, 2, 3, 4)
		i := sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.Answer, Status: 413, Code: "RequestBodyTooLarge", First: 2})
		var entries []Entry
		for s := uint32(1); s < 5; s++ {
			entries = append(entries, Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1)})
		}
		a.mustCommit(entries...)
		want(t, "hits", i.Hits(), 2)
		i = sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.Answer, Status: 413, Code: "RequestBodyTooLarge"})
		wantFull(t, a.commit(Entry{Segment: 1, Epoch: 1, Run: testkit.RunID(1), Done: ns(1, 2)}), "segment 1")
		i.Remove()
		a.mustCommit(Entry{Segment: 1, Epoch: 1, Run: testkit.RunID(1), Done: ns(1, 2)})
	})
}

// TestWhatIsCommittedReadsBack plays random work of random runs, patterns and sizes of state
// through several owners, and compares what is stored with plain models.
func TestWhatIsCommittedReadsBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := newMemTable()
		model := map[codec.RunID]modelBook{}
		var state []byte
		open := func(epoch uint64) book {
			b := openBook(t, table, fmt.Sprint("p", epoch), withBytes)
			b.mustFence(epoch, 7)
			return b
		}
		epoch := uint64(1)
		b := open(epoch)
		for step := range rapid.IntRange(1, 10).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				epoch++
				b = open(epoch)
			case 1:
				closed := testkit.RunID(rapid.ByteRange(1, 8).Draw(rt, "closed"))
				// Of a closed run the tasks in quarantine stay, as a rest; of one that is over
				// nothing does.
				gone, over := []codec.RunID{closed}, []codec.RunID(nil)
				for _, task := range model[closed] {
					if !task.done {
						gone, over = nil, []codec.RunID{closed}
					}
				}
				must(rt, b.Prune(t.Context(), gone, over...))
				delete(model, closed)
			default:
				var entries []Entry
				for range rapid.IntRange(1, 4).Draw(rt, "entries") {
					e := Entry{Segment: 7, Epoch: epoch, Run: testkit.RunID(rapid.ByteRange(1, 8).Draw(rt, "run")), Generation: rapid.Uint32Range(0, 2).Draw(rt, "generation")}
					set := drawNSet(rt, "set")
					if rapid.IntRange(0, 5).Draw(rt, "scattered") == 0 {
						set = scattered(uint64(step), rapid.Uint64Range(0, 3).Draw(rt, "from"), rapid.Uint64Range(1, 3).Draw(rt, "chunks"))
					}
					m := model[e.Run]
					if m == nil {
						m = modelBook{}
						model[e.Run] = m
					}
					if rapid.IntRange(0, 4).Draw(rt, "quarantined") == 0 {
						e.Quarantined = set
					} else {
						e.Done = set
						for n := range set.All() {
							next := noise(uint64(step), rapid.SampledFrom([]int{0, 1, 5000, 200_000, 900_000}).Draw(rt, "state"))
							e.Contributions = []Contribution{{n, next}}
							if !m.settled(n, e.Generation) {
								state = next
							}
							break
						}
					}
					m.record(set, e.Generation, e.Done.Len() == 0)
					entries = append(entries, e)
				}
				b.mustCommit(entries...)
			}
		}
		r := recordOf(t, table, 7)
		if !bytes.Equal(r.State(), state) || (r.State() == nil) != (state == nil) {
			rt.Fatalf("a state of %d bytes, want %d", len(r.State()), len(state))
		}
		for i := range byte(8) {
			run := testkit.RunID(i + 1)
			requireRecorded(rt, r, run, model[run])
		}
		requireNamedPages(rt, table, len(r.image.layout.pages))
	})
}

// requireRecorded checks what a record says of a run.
func requireRecorded(t *rapid.T, r *SegmentRecord, run codec.RunID, want modelBook) {
	t.Helper()
	finished, quarantined := r.Counts(run)
	if int(finished+quarantined) != len(want) {
		t.Fatalf("run %s: %d done, %d in quarantine, want %d", run, finished, quarantined, len(want))
	}
	for n, task := range want {
		if r.Done(run, n) != task.done || !r.Settled(run, n) {
			t.Fatalf("run %s: %d is done: %v, want %+v", run, n, r.Done(run, n), task)
		}
	}
}

// requireNamedPages checks that no page is left that no head names, and that nothing is larger than
// it may be.
func requireNamedPages(t *rapid.T, table *memTable, pages int) {
	t.Helper()
	named := 0
	for key, e := range table.rows {
		if strings.Contains(key, "/page.") {
			named++
		}
		for name, value := range e.Properties {
			if v, is := value.([]byte); is && len(v) > pageMost {
				t.Fatalf("%s %s has %d bytes", key, name, len(v))
			}
		}
	}
	if named != pages || table.largest > transactionMost {
		t.Fatalf("%d pages, %d of them named; a transaction of %d bytes", named, pages, table.largest)
	}
}

func TestTheTableIsThrottledAndSlowAndEverythingIsRecordedAllTheSame(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 1, 2)
		i := sim.Inject(azsim.Rule{Service: "table", Fault: azsim.Answer, RetryAfter: time.Second, First: 20})
		start := time.Now()
		a.mustCommit(Entry{Segment: 1, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1)})
		if took := time.Since(start); i.Hits() != 20 || took < 20*time.Second || took > time.Minute {
			t.Errorf("%d throttles took %v", i.Hits(), took)
		}
	})
}

var _ storage.Table = (*memTable)(nil)
