package workload

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// FuzzRow reads the rows of a workload and of its runs, whatever they hold.
func FuzzRow(f *testing.F) {
	table := testkit.NewServer().Client("a")
	id := codec.RunID{1, 2, 3}
	runs := NewRuns(table, "work")
	started := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	m, err := shardmap.New(64, []shardmap.Shard{{Account: "alpha", Queue: "work-00", Weight: 1}, {Account: "beta", Queue: "work-00", Weight: 2}})
	must(f, err)
	tally := Tally{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, time.Minute}
	tallied := map[string]any{row.FormatProperty: int64(row.Format), "Instance": "a-1"}
	for _, p := range tally.properties() {
		tallied[p.name] = int64(*p.count)
	}
	tallied["Hides"] = int64(tally.Hides)
	testkit.Fuzz(f, []testkit.Kind{
		testkit.KindOf("run", runs.row(id), Run{ID: id, Workload: "work", Mode: "once", Fingerprint: "f", State: RunSealed, Sealed: []uint64{1, 0, 2}, Tasks: 3, Started: started, Ended: started, Instance: "a-1"}),
		testkit.KindOf("workload", RowOf(table, "work"), Row{shards: m, delivery: string(pump.Once), changes: []string{"c1", "c2"}}),
		{Name: "tally", Good: tallied, Reread: func(props map[string]any) (map[string]any, error) {
			const first = "0102."
			instance, tally, err := decodeTally(storage.Entity{Row: first + "a-1", Properties: props}, first)
			if err != nil {
				return nil, err
			}
			out := map[string]any{row.FormatProperty: int64(row.Format), "Instance": instance}
			for _, p := range tally.properties() {
				out[p.name] = int64(*p.count)
			}
			return out, nil
		}},
	})
}
