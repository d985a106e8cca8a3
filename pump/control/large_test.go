package control

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/faketable"
	"github.com/queuepump/queuepump/shardmap"
)

// B6: queries over several segments rely on the order of their keys.
func TestKeysOfSegmentsAreInTheOrderOfSegments(t *testing.T) {
	for _, segment := range []uint32{0, 7, 9_999} {
		if got, want := segmentKey(segment), fmt.Sprintf("%04d", segment); got != want {
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
			o := LedgerOptions{Instance: instance, Record: true}
			return book{OpenLedger(Seeded(table, faketable.SeededDraw(1, instance)), ledgerWorkload(shardmap.MaxSegments), o), t}
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
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			if got := all[codec.RunID{1}].Done[s]; got != uint64(s) { // 0 to s-1
				t.Errorf("of segment %d %d tasks are done", s, got)
			}
		}
	})
}

func TestTheCountersOf16384SegmentsAreStoredWhateverTheirSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newMemTable()
		runs := NewRuns(server, "city")
		for i, each := range []uint64{1, 1 << 20, 1 << 48} {
			run := Run{ID: codec.RunID{byte(i + 1)}, Mode: "once", Fingerprint: "f", Instance: "d"}
			if err := runs.Create(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			counts := slices.Repeat([]uint64{each}, shardmap.MaxSegments)
			if err := runs.Seal(t.Context(), run.ID, counts); err != nil {
				t.Fatal(err)
			}
			got, err := runs.Get(t.Context(), run.ID)
			if err != nil || !slices.Equal(got.Sealed, counts) {
				t.Errorf("%d tasks a segment: %d counts, %v", each, len(got.Sealed), err)
			}
		}
	})
}

// A workload of 250 accounts of 10 queues is made, read and changed; and so are its owners and marks.
func TestAWorkloadOf2500QueuesIsMadeAndRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newMemTable()
		spec := WorkloadSpec{Name: "city", Segments: shardmap.MaxSegments, Delivery: DeliverOnce}
		for a := range 250 {
			for q := range 10 {
				spec.Shards = append(spec.Shards, shardmap.Shard{Account: fmt.Sprintf("storageaccountnumber%04d", a), Queue: fmt.Sprintf("city-%02d", q), Weight: 0.1})
			}
		}
		if _, err := EnsureWorkload(t.Context(), table, spec); err != nil {
			t.Fatal(err)
		}
		w, err := ChangeMap(t.Context(), table, "city", func(m *shardmap.Map) ([]shardmap.Shard, error) {
			shards := slices.Clone(m.Shards)
			for i := range 10 {
				shards[i].State = shardmap.Draining
			}
			return shards, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		read, err := LoadWorkload(t.Context(), table, "city")
		if err != nil || read.Map.Version != 2 || !slices.Equal(read.Map.Loads(), w.Map.Loads()) {
			t.Errorf("%v, %v", read, err)
		}
		owners := slices.Repeat([]Owner{{Instance: "p", Incarnation: "0123456789abcdef", Epoch: maxEpoch}}, ownersPerRow)
		for i := range ownerRows(shardmap.MaxSegments) {
			r := ownerRowOf(table, "city", ownerRowFirst(i), shardmap.MaxSegments, requestTimeout)
			if _, err := r.tryWrite(t.Context(), version[[]Owner]{}, owners); err != nil {
				t.Fatal(err)
			}
		}
		v, err := LoadView(t.Context(), table, "city")
		if err != nil || len(v.Damaged) > 0 || len(v.Owners) != shardmap.MaxSegments {
			t.Fatalf("%v", err)
		}
		for s, o := range v.Owners {
			if o.Instance != "p" {
				t.Fatalf("segment %d is owned by %+v", s, o)
			}
		}
	})
}
