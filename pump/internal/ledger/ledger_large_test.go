package ledger

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/shardmap"
)

// B6: queries over several segments rely on the order of their keys.
func TestKeysOfSegmentsAreInTheOrderOfSegments(t *testing.T) {
	for _, segment := range []uint32{0, 7, 9_999} {
		if got, want := cluster.SegmentKey(segment), fmt.Sprintf("%04d", segment); got != want {
			t.Errorf("segment %d is %q, as the version before had it %q", segment, got, want)
		}
	}
	var keys []string
	for s := range uint32(shardmap.MaxSegments) {
		keys = append(keys, headKey(s))
		if p := pagesOf(s); pageKey(s, 1) < p || pageKey(s, 999_999) >= p+"~" {
			t.Fatalf("the pages of segment %d are not between %s and %s~", s, p, p)
		}
	}
	if !slices.IsSorted(keys) {
		t.Error("the keys of heads are not in order")
	}
}

// The partition with the segments 9,984 to 10,047 has keys of both widths.
func TestTheLedgerOfTheLastSegmentsIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newMemTable()
		open := func(instance string) book {
			o := Options{Instance: instance, Record: true}
			return book{Open(row.Seeded(table, testkit.SeededDraw(1, instance)), ledgerWorkload(shardmap.MaxSegments), o), t}
		}
		segments := []uint32{9_984, 9_999, 10_000, 10_047, 16_320, 16_383}
		a := open("a")
		a.mustFence(1, segments...)
		var entries []Entry
		for _, s := range segments {
			entries = append(entries, Entry{Segment: s, Epoch: 1, Run: codec.RunID{1}, Done: ns(0, uint64(s))})
		}
		a.mustCommit(entries...)
		open("b").mustFence(2, segments...) // which reads the heads of one partition with one query
		all, err := ReadProgress(t.Context(), table, "city", shardmap.MaxSegments, codec.RunID{1})
		must(t, err)
		for _, s := range segments {
			if got := all[codec.RunID{1}].Done[s]; got != uint64(s) { // 0 to s-1
				t.Errorf("of segment %d %d tasks are done", s, got)
			}
		}
	})
}

// Of 256 partitions each may take half a second and more: who ends runs reads them all in each
// pass, and no run would end.
func TestASlowTableKeepsNobodyFromReadingTheSumsOfAllSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := testkit.NewServer().Client("a")
		table.SetLatency(func(testkit.Call) time.Duration { return time.Second })
		began := time.Now()
		if _, err := ReadSums(t.Context(), table, "city", shardmap.MaxSegments); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		// A partition that does not answer is still given up in time.
		table.Dies()
		began = time.Now()
		if _, err := ReadSums(t.Context(), table, "city", shardmap.MaxSegments); err == nil || time.Since(began) > 2*row.Patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
