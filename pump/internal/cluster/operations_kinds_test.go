package cluster

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
)

func TestCountsAreReadAsTheyWerePacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, MostOps))
		want := make([]OpCounts, rapid.IntRange(1, 251).Draw(t, "accounts"))
		for i := range want {
			for k := range want[i] {
				want[i][k] = n.Draw(t, "n")
			}
		}
		proof.Alike(t, UnpackOps(PackOps(want)), want)
	})
}

// A program of later may count kinds that this one does not know. What it says of the others stays
// known.
func TestKindsOfANewerProgramArePassedOver(t *testing.T) {
	known := OpCounts{OpGet: 7}
	got := UnpackOps(row.Pack([][]uint64{slices.Concat(known[:], []uint64{8, 9}), {1}}))
	proof.Alike(t, got, []OpCounts{{OpGet: 7}, {OpPut: 1}})
}

func TestDamagedCountsAreRefused(t *testing.T) {
	good := PackOps([]OpCounts{{OpPut: 300, OpPeek: 1}})
	for name, packed := range map[string][]byte{
		"nothing": {}, "cut": good[:len(good)-1], "more": append(slices.Clone(good), 0), "not packed": []byte("[[1]]"),
		"as it was": {1, 1, 1}, "too many": row.Pack([]OpCounts{{OpGet: MostOps + 1}}), "fewer than none": row.Pack([][]int{{-1}}),
		"a bomb": row.Pack(make([]OpCounts, 4000)),
	} {
		got := UnpackOps(packed)
		proof.Same(t, got == nil, true, name, got)
	}
}

// Requests are counted by kind and paid for by service: both must say the same. Those to blobs are
// counted among those to queues, and have prices of their own.
func TestAKindIsOfTheServiceThatItIsPaidFor(t *testing.T) {
	l := pump.Prices{Queue: 10_000, Table: 20_000}
	for k := range OpKinds {
		want := map[string]float64{QueueService: 1, TableService: 2}[k.Service()]
		switch k {
		case OpPutBlob, OpListBlobs:
			want = 12.5
		case OpDeleteBlob:
			want = 0
		}
		proof.Same(t, l.Of(k.String()), want, "what one costs", k, "of the service", k.Service())
	}
	all := OpCounts{}
	for k := range all {
		all[k] = 1
	}
	proof.Same(t, all.BlobsMore(l), 2*11.5-1,
		"one request of each kind to blobs costs … more than to queues")
	if all.Of(QueueService) != 12 || all.Of(TableService) != 3 {
		t.Errorf("%d to queues, %d to tables", all.Of(QueueService), all.Of(TableService))
	}
}
