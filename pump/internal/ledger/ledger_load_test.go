package ledger

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// paged is a ledger of a partition all of whose segments have pages.
func paged(t *testing.T, sim *azsim.Sim) (segments []uint32) {
	t.Helper()
	a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
	for s := range uint32(64) {
		segments = append(segments, s)
	}
	a.mustFence(1, segments...)
	for from := 0; from < 64; from += 8 {
		var entries []Entry
		for _, s := range segments[from : from+8] {
			entries = append(entries, Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: scattered(uint64(s), 0, 5)})
		}
		a.mustCommit(entries...)
	}
	return segments
}

// A4: a fence read the pages of all segments of its partition before it wrote anything, within its
// caller's time, or began anew: at 500 ms a request that was never.
func TestP32AFenceComesBeforeThePagesAndKeepsWhatItHasWhenItsTimeIsOver(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		segments := paged(t, sim)
		for _, op := range []string{"QueryEntities", "Batch"} {
			sim.Inject(azsim.Rule{Operations: []string{op}, Fault: azsim.DelayBefore, Delay: 500 * time.Millisecond})
		}
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		before := requests(sim)
		fenced, err := b.Fence(t.Context(), holdsOf(2, segments...))
		if err != nil || len(fenced) != len(segments) || !b.Unloaded(7, 2) || b.Fenced(7, 2) {
			t.Fatalf("%d segments are fenced: %v", len(fenced), err)
		}
		want(t, "a query of some answers and a transaction", requests(sim)-before <= 4, true)
		loaded, tries := 0, 0
		for ; loaded < len(segments) && tries < 30; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
			err = b.Load(ctx, holdsOf(2, segments...), func(s uint32) {
				if loaded++; !b.Fenced(s, 2) {
					t.Errorf("segment %d is not fenced", s)
				}
			})
			cancel()
		}
		if err != nil || loaded != len(segments) || tries < 2 {
			t.Errorf("%d segments are loaded by %d tries: %v", loaded, tries, err)
		}
		t.Logf("%d tries, %d requests", tries, requests(sim)-before)
		want(t, "b begins", b.begin(7, 2, testkit.RunID(1), 0, ns(7, 9)), [3]string{"8", "7", ""})
	})
}

func TestP32APageThatIsMissingDelaysNoOtherSegment(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		segments := paged(t, sim)
		sim.DropRows("north", row.TableName, "city.ledger.00", func(row string) bool { return strings.HasPrefix(row, "page.0007.") })
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		fenced, err := fenceAll(t.Context(), b, holdsOf(2, segments...))
		if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), "page.0007.") || len(fenced) != len(segments)-1 || b.Fenced(7, 2) {
			t.Errorf("%d are fenced: %v", len(fenced), err)
		}
	})
}

// brokenOff is a table whose answer to a query of pages ends after each row, until it has ended so
// often.
type brokenOff struct {
	*memTable
	left int
}

func (b *brokenOff) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		for e, err := range b.memTable.Query(ctx, q) {
			if !yield(e, err) {
				return
			}
			if b.left > 0 && strings.HasPrefix(e.Row, pagePrefix) {
				b.left--
				yield(storage.Entity{}, problem(storage.Throttled, -1, e.Row))
				return
			}
		}
	}
}

// What is recorded of 64 segments is many answers, any of which may be lost.
func TestLoadingGoesOnBehindTheLastRowThatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &brokenOff{populated(t), 2}
		b := openBook(t, table, "b", withBytes)
		fenced, err := fenceAll(t.Context(), b, holdsOf(2, 7, 8))
		if err != nil || len(fenced) != 2 || table.left > 0 {
			t.Errorf("%v are fenced, %d answers are still to end early: %v", fenced, table.left, err)
		}
	})
}
