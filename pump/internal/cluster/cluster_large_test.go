package cluster

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// A workload of 250 accounts of 10 queues is made, read and changed; and so are its owners and
// marks.
func TestAWorkloadOf2500QueuesIsMadeAndRead(t *testing.T) {
	proof.Only(t)
	synctest.Test(t, func(t *testing.T) {
		table := testkit.NewServer().Client("a")
		spec := workload.Spec{Name: "city", Segments: shardmap.MaxSegments, Delivery: string(pump.Once)}
		for a := range 250 {
			for q := range 10 {
				spec.Shards = append(spec.Shards, shardmap.Shard{Account: fmt.Sprintf("storageaccountnumber%04d", a), Queue: fmt.Sprintf("city-%02d", q), Weight: 0.1})
			}
		}
		must(t, errOf(workload.Ensure(t.Context(), table, spec)))
		w, err := workload.ChangeMap(t.Context(), table, "city", func(m *shardmap.Map) ([]shardmap.Shard, error) {
			shards := slices.Clone(m.Shards)
			for i := range 10 {
				shards[i].State = shardmap.Draining
			}
			return shards, nil
		})
		must(t, err)
		read, err := workload.Load(t.Context(), table, "city")
		if err != nil || read.Map.Version != 2 || !slices.Equal(read.Map.Loads(), w.Map.Loads()) {
			t.Errorf("%v, %v", read, err)
		}
		owners := slices.Repeat([]Owner{{Instance: "p", Incarnation: "0123456789abcdef", Epoch: row.MaxEpoch}}, ownersPerRow)
		for i := range ownerRows(shardmap.MaxSegments) {
			r := ownerRowOf(table, "city", ownerRowFirst(i), shardmap.MaxSegments, row.RequestTimeout)
			must(t, errOf(r.TryWrite(t.Context(), row.Version[[]Owner]{}, owners)))
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
