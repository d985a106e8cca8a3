package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

// ledgerWorkload is a workload as far as a ledger is concerned.
func ledgerWorkload(segments int) *workload.Workload {
	return &workload.Workload{Name: "city", Map: &shardmap.Map{Segments: segments}}
}

// book is the ledger of one process in a test.
type book struct {
	*Ledger
	t *testing.T
}

func openBook(t *testing.T, table storage.Table, instance string, change ...func(*Options)) book {
	t.Helper()
	o := Options{Instance: instance, Record: true}
	for _, c := range change {
		c(&o)
	}
	return book{Open(row.Seeded(table, testkit.SeededDraw(1, instance)), ledgerWorkload(128), o), t}
}

func holdsOf(epoch uint64, segments ...uint32) []cluster.Hold {
	holds := make([]cluster.Hold, len(segments))
	for i, s := range segments {
		holds[i] = cluster.Hold{Segment: s, Epoch: epoch}
	}
	return holds
}

// fenceAll fences and loads, as a processor does, and gives what is fenced then.
func fenceAll(ctx context.Context, l interface {
	Fence(context.Context, []cluster.Hold) ([]uint32, error)
	Load(context.Context, []cluster.Hold, func(uint32)) error
	Fenced(uint32, uint64) bool
}, holds []cluster.Hold,
) (fenced []uint32, err error) {
	_, err = l.Fence(ctx, holds)
	err = errors.Join(err, l.Load(ctx, holds, nil))
	for _, h := range holds {
		if l.Fenced(h.Segment, h.Epoch) {
			fenced = append(fenced, h.Segment)
		}
	}
	return fenced, err
}

func (b book) mustFence(epoch uint64, segments ...uint32) {
	b.t.Helper()
	fenced, err := fenceAll(b.t.Context(), b, holdsOf(epoch, segments...))
	if err != nil || len(fenced) != len(segments) {
		b.t.Fatalf("fenced %v of %v: %v", fenced, segments, err)
	}
}

// begin gives the fresh, recorded and in-hand tasks as text.
func (b book) begin(segment uint32, epoch uint64, run codec.RunID, generation uint32, ns codec.NSet) [3]string {
	b.t.Helper()
	got, err := b.Begin(segment, epoch, run, generation, ns)
	must(b.t, err)
	return [3]string{got.Fresh.String(), got.Recorded.String(), got.InHand.String()}
}

// commit commits one entry and gives its fate.
func (b book) commit(e Entry) error {
	b.Commit(b.t.Context(), []*Entry{&e})
	return e.Err
}

func (b book) mustCommit(entries ...Entry) {
	b.t.Helper()
	list := make([]*Entry, len(entries))
	for i := range entries {
		list[i] = &entries[i]
		list[i].Err = errors.New("it was not set")
	}
	b.Commit(b.t.Context(), list)
	for _, e := range list {
		if e.Err != nil {
			b.t.Fatalf("segment %d: %v", e.Segment, e.Err)
		}
	}
}

func ns(from, to uint64) codec.NSet {
	var s codec.NSet
	s.AddRange(from, to)
	return s
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	proof.Same(t, cmp.Diff(want, got), "", what, "-want +got)")
}

func recordOf(t *testing.T, table storage.Table, segment uint32) *SegmentRecord {
	t.Helper()
	for r, err := range ReadRecord(t.Context(), table, "city", 128) {
		must(t, err)
		if r.Segment == segment {
			return r
		}
	}
	t.Fatalf("no segment %d", segment)
	return nil
}

func TestWhatIsCommittedIsRecognisedByTheNextOwner(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 3, 64, 65)
		want(t, "first", a.begin(3, 1, testkit.RunID(1), 0, ns(0, 1600)), [3]string{"0-1599", "", ""})
		want(t, "a copy", a.begin(3, 1, testkit.RunID(1), 0, ns(1000, 2000)), [3]string{"1600-1999", "", "1000-1599"})
		a.mustCommit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1000)}, Entry{Segment: 65, Epoch: 1, Foreign: "city-00/17"})
		want(t, "then", a.begin(3, 1, testkit.RunID(1), 0, ns(0, 2001)), [3]string{"2000", "0-999", "1000-1999"})
		a.End(3, 1, testkit.RunID(1), ns(1000, 1600))
		want(t, "ended", a.begin(3, 1, testkit.RunID(1), 0, ns(900, 1700)), [3]string{"1000-1599", "900-999", "1600-1699"})

		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		b.mustFence(2, 3, 65)
		want(t, "next owner", b.begin(3, 2, testkit.RunID(1), 0, ns(0, 2001)), [3]string{"1000-2000", "0-999", ""})
		if recorded, inHand, err := b.BeginForeign(65, 2, "city-00/17", false); !recorded || inHand || err != nil {
			t.Error(recorded, inHand, err)
		}
		proof.Is(t, a.commit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(1000, 1600)}), ErrFenced, "the old owner's commit")
		want(t, "runs", b.LiveRuns(), []codec.RunID{testkit.RunID(1)})
		must(t, b.Prune(t.Context(), b.LiveRuns()))
		want(t, "runs after", len(b.LiveRuns()), 0)
	})
}

func TestALostAnswerOfACommitIsLearnedByTheNonce(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 3, 4)
		i := sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.AnswerLost, First: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		es := []*Entry{{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 10)}, {Segment: 4, Epoch: 1, Run: testkit.RunID(1), Done: ns(5, 10)}}
		a.Commit(ctx, es)
		if es[0].Err != nil || es[1].Err != nil || i.Hits() != 2 {
			t.Error(es[0].Err, es[1].Err, i)
		}
		a.mustCommit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(10, 20)})
		want(t, "recorded", a.begin(3, 1, testkit.RunID(1), 0, ns(0, 21)), [3]string{"20", "0-19", ""})
	})
}
