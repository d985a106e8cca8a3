package workload

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// nothing is held of any run.
func nothing(codec.RunID) bool { return false }

// retireAll removes what is old, page by page, and gives what is said of rows that cannot be read.
func retireAll(t *testing.T, runs *Runs) (removed int, said string) {
	t.Helper()
	for next := ""; ; {
		n, from, damage, err := runs.Retire(t.Context(), time.Now(), time.Now(), next, true, nothing)
		must(t, err)
		if damage != nil {
			said += damage.Error()
		}
		if removed, next = removed+n, from; next == "" {
			return removed, said
		}
	}
}

// A row that cannot be read stays, and is named. It keeps no row of the pages after its own.
func TestADamagedRowKeepsNoOtherOldRun(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		runs := NewRuns(testkit.OverTheWire(t, sim, "a"), "city")
		must(t, runs.table.Create(t.Context()))
		began := time.Now()
		var writes []storage.Write
		put := func(key string, props map[string]any) {
			props[row.FormatProperty] = int64(row.Format)
			writes = append(writes, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
				Partition: runs.partition(), Row: key, Properties: props,
			}})
		}
		// Rows by time whose runs have none are the plainest that may go. The last is the newest,
		// and of the first page.
		const many = retireMost + 10
		ids := make([]codec.RunID, many)
		for n := range ids {
			ids[n][0] = 7
			binary.BigEndian.PutUint32(ids[n][12:], uint32(n))
			what := map[string]any{"Run": ids[n].String()}
			if n == many-1 {
				what["Run"] = 1.5
			}
			put(runs.timeKey(Run{ID: ids[n], Started: began.Add(time.Duration(n) * time.Millisecond)}), what)
		}
		put(ids[many-2].String(), map[string]any{"State": 1.5})
		for batch := range slices.Chunk(writes, storage.MaxBatch) {
			must(t, errOf(runs.table.Transact(t.Context(), batch)))
			time.Sleep(time.Second) // of a partition's rows in a second
		}
		time.Sleep(time.Hour)
		removed, said := retireAll(t, runs)
		proof.Same(t, removed, many-2, "rows", many, "removed")
		for _, id := range ids[many-2:] {
			if !strings.Contains(said, id.String()) {
				t.Errorf("%s is not named: %s", id, said)
			}
		}
	})
}

// A thousand runs that are not done with stand before an older one, and the table takes a second to
// answer. The older one is still looked at: its row is damaged, and so it is named.
func TestUnfinishedRunsHideNoOldOneOfASlowTable(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		runs := NewRuns(client, "city")
		for n := range 1001 { // the last begun come first
			id := codec.RunID{7}
			binary.BigEndian.PutUint32(id[12:], uint32(n))
			must(t, runs.Create(t.Context(), Run{ID: id}))
		}
		old := codec.RunID{7}.String()
		server.Rows["city.runs/"+old].Properties["State"] = "?"
		time.Sleep(time.Hour)
		client.SetLatency(func(testkit.Call) time.Duration { return time.Second })
		_, said := retireAll(t, runs)
		if !strings.Contains(said, old) {
			t.Errorf("the old run is not looked at: %s", said)
		}
	})
}

// A workload may have more runs than a page of rows.
func TestUnfinishedRunsOfSeveralPagesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := NewRuns(testkit.NewServer().Client("a"), "city")
		const many = 2*row.PageSize + 1
		for n := range many {
			id := codec.RunID{7}
			binary.BigEndian.PutUint32(id[12:], uint32(n))
			must(t, runs.Create(t.Context(), Run{ID: id}))
		}
		if ids, err := runs.Unfinished(t.Context(), false, many); len(ids) != many || err != nil {
			t.Errorf("%d runs of %d, %v", len(ids), many, err)
		}
	})
}

// The row of a run with a name goes with its tallies, and its election row says for an hour more that
// the run was sent, whatever it said, and as long as something is held of the run. Then both are gone,
// the row by time, and what leads to its results: the next run of the name has the id.
func TestANameIsKeptAnHourLongerThanItsRun(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		runs := NewRuns(testkit.OverTheWire(t, sim, "a"), "city")
		must(t, runs.table.Create(t.Context()))
		left := func() (rows []string) {
			for _, partition := range []string{runs.partition(), ElectionPartition("city"), ResultsPartition("city")} {
				for e, err := range runs.table.Query(t.Context(), storage.Query{Partition: partition}) {
					must(t, err)
					if phase, _ := e.Properties["Phase"].(string); !strings.HasPrefix(e.Row, "live.") {
						rows = append(rows, e.Row+phase)
					}
				}
			}
			return rows
		}
		for n, name := range []string{"", "nightly", "nightly, without an election row"} {
			id := codec.RunID{byte(1 + n)}
			must(t, runs.Create(t.Context(), Run{ID: id, Name: name, Mode: "named"}))
			must(t, runs.Seal(t.Context(), id, []uint64{0}))
			must(t, runs.Close(t.Context(), id))
			index := storage.Entity{Partition: ResultsPartition("city"), Row: id.String() + ".index"}
			must(t, errOf(runs.table.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: index})))
			if name == "nightly" {
				e := storage.Entity{Partition: ElectionPartition("city"), Row: NamedKey(id)}
				e.Properties = map[string]any{"Phase": "running"}
				must(t, errOf(runs.table.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: e})))
			}
		}
		for after, want := range []int{10, 7, 7, 7, 1} { // three runs with rows by time and indexes, an election
			if after > 0 {
				held := func(codec.RunID) bool { return after == 3 }
				_, _, damage, err := runs.Retire(t.Context(), time.Now(), time.Now().Add(-NameKept), "", true, held)
				must(t, err)
				must(t, damage)
			}
			rows := left()
			proof.Same(t, len(rows), want, "after", after, "times … rows are left", rows)
			if n := strings.Count(strings.Join(rows, " "), "idle"); want == 7 && n != 2 {
				t.Errorf("%d names are taken: %q", n, rows)
			}
			time.Sleep([]time.Duration{time.Minute, 50 * time.Minute, 11 * time.Minute, 0, 0}[after])
		}
	})
}
