package ledger

import (
	"context"
	"fmt"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// segmentsTo are so many segments from the first on.
func segmentsTo(n uint32) (all []uint32) {
	for s := range n {
		all = append(all, s)
	}
	return all
}

// BenchmarkLedgerEnvelope is what one envelope of 1,600 tasks costs: begun, and recorded
// together with those of 63 other segments. The table is in memory and costs next to nothing.
func BenchmarkLedgerEnvelope(b *testing.B) {
	l := Open(newMemTable(), ledgerWorkload(64), Options{Instance: "a", Record: true})
	all := segmentsTo(64)
	must(b, proof.ErrOf(fenceAll(context.Background(), l, holdsOf(1, all...))))
	entries := make([]*Entry, 64)
	i := 0
	for b.Loop() {
		s, first := uint32(i%64), uint64(i/64)*1600
		set := ns(first, first+1600)
		begun, err := l.Begin(s, 1, testkit.RunID(1), 0, set)
		if err != nil || !begun.Fresh.Equal(set) {
			b.Fatal(begun, err)
		}
		entries[s] = &Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: begun.Fresh}
		if i++; i%64 == 0 {
			l.Commit(context.Background(), entries)
			for _, e := range entries {
				must(b, e.Err)
			}
		}
	}
}

func BenchmarkLedgerBegin(b *testing.B) {
	for _, records := range []string{"in order", "scattered"} {
		b.Run(records, func(b *testing.B) {
			l := Open(newMemTable(), ledgerWorkload(64), Options{Instance: "a", Record: true})
			must(b, proof.ErrOf(fenceAll(context.Background(), l, holdsOf(1, 7))))
			e := &Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 100_000)}
			if records == "scattered" {
				e.Done = scattered(3, 0, 4)
			}
			l.Commit(context.Background(), []*Entry{e})
			must(b, e.Err)
			set := ns(101_000, 102_600)
			for b.Loop() {
				begun, err := l.Begin(7, 1, testkit.RunID(1), 0, set)
				if err != nil || begun.Fresh.Len() == 0 {
					b.Fatal(err)
				}
				l.End(7, 1, testkit.RunID(1), begun.Fresh)
			}
		})
	}
}

// BenchmarkLedgerCommit is a transaction of 64 segments with 1,000 tasks each.
func BenchmarkLedgerCommit(b *testing.B) {
	for _, stateSize := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprint("state ", stateSize), func(b *testing.B) {
			o := Options{Instance: "a", Record: true}
			if stateSize > 0 {
				o.State = bytesState{}
			}
			l := Open(newMemTable(), ledgerWorkload(64), o)
			all := segmentsTo(64)
			must(b, proof.ErrOf(fenceAll(context.Background(), l, holdsOf(1, all...))))
			state := noise(1, stateSize)
			var n uint64
			for b.Loop() {
				entries := make([]*Entry, 64)
				for s := range entries {
					entries[s] = &Entry{Segment: uint32(s), Epoch: 1, Run: testkit.RunID(1), Done: ns(n, n+1000)}
					if stateSize > 0 {
						state[0]++
						entries[s].Contributions = []Contribution{{n, append([]byte(nil), state...)}}
					}
				}
				n += 1000
				l.Commit(context.Background(), entries)
				must(b, entries[63].Err)
			}
		})
	}
}
