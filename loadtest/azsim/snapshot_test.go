package azsim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// upsert writes a row with one property and returns its ETag.
func (b *tableBench) upsert(table, pk, rk string, v int) string {
	b.Helper()
	a := b.do("PUT", fmt.Sprintf("/%s(PartitionKey='%s',RowKey='%s')", table, pk, rk), fmt.Sprintf(`{"V":%d}`, v))
	b.want(a, 204, "")
	return a.header.Get("Etag")
}

// row reads a row's ETag and status.
func (b *tableBench) row(table, pk, rk string) (string, int) {
	b.Helper()
	a := b.do("GET", fmt.Sprintf("/%s(PartitionKey='%s',RowKey='%s')", table, pk, rk), "")
	return a.header.Get("Etag"), a.status
}

func TestAPartitionIsRolledBackAloneAndItsETagsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTableBench(t, TableOptions{})
		b.table("rows")
		old := b.upsert("rows", "p", "changed", 1)
		b.upsert("rows", "p", "removed", 1)
		b.upsert("rows", "other", "r", 1)
		snap := b.sim.Snapshot("acct", "rows", "p")
		time.Sleep(time.Minute)
		lost := b.upsert("rows", "p", "changed", 2)
		made := b.upsert("rows", "p", "made", 2)
		b.want(b.do("DELETE", "/rows(PartitionKey='p',RowKey='removed')", "", "If-Match: *"), 204, "")
		kept := b.upsert("rows", "other", "r", 2)

		proof.Same(t, snap.Restore(), 3, "rows differ, want 3")
		if tag, _ := b.row("rows", "p", "changed"); tag != old {
			t.Errorf("the row has ETag %s, want the one it had: %s", tag, old)
		}
		if _, status := b.row("rows", "p", "removed"); status != 200 {
			t.Errorf("the removed row answers %d", status)
		}
		if _, status := b.row("rows", "p", "made"); status != 404 {
			t.Errorf("the row made since answers %d", status)
		}
		if tag, _ := b.row("rows", "other", "r"); tag != kept {
			t.Error("another partition was touched")
		}
		if again := b.upsert("rows", "p", "made", 3); again == made {
			t.Error("an ETag that was seen once came back by a write")
		}
		if again := b.upsert("rows", "p", "changed", 3); again == lost {
			t.Error("an ETag that was seen once came back by a write")
		}
		proof.Same(t, snap.Restore(), 2, "the second time … rows differ, want 2")
	})
}

func TestASnapshotIsReadInASimulatorOfItsOwn(t *testing.T) {
	b, still := newTableBench(t, TableOptions{}), newTableBench(t, TableOptions{})
	b.table("rows")
	still.table("copy")
	tag := b.upsert("rows", "p", "r", 1)
	b.upsert("rows", "other", "r", 1)
	snap := b.sim.Snapshot("acct", "rows", "p")
	later := b.upsert("rows", "p", "r", 2)
	proof.Same(t, snap.In(still.sim, "acct", "copy").Restore(), 1, "rows differ, want 1")
	if got, _ := still.row("copy", "p", "r"); got != tag {
		t.Errorf("the copy has ETag %s, want that of the row as it was: %s", got, tag)
	}
	if got, _ := b.row("rows", "p", "r"); got != later {
		t.Errorf("the row has ETag %s, want %s: it goes on", got, later)
	}
}

func TestATableIsRolledBackAndItsRowsAreDropped(t *testing.T) {
	b := newTableBench(t, TableOptions{})
	b.table("rows")
	for _, pk := range []string{"a", "b"} {
		b.upsert("rows", pk, "1", 1)
		b.upsert("rows", pk, "2", 1)
	}
	a := b.sim.Snapshot("acct", "rows", "a")
	proof.Same(t, b.sim.DropRows("acct", "rows", "a", func(rk string) bool { return rk == "2" }), 1,
		"rows dropped, want 1")
	if _, status := b.row("rows", "a", "1"); status != 200 {
		t.Errorf("a row that was not meant answers %d", status)
	}
	proof.Same(t, b.sim.DropRows("acct", "rows", "b", nil), 2, "rows dropped, want 2")
	proof.Same(t, a.Restore(), 1, "rows came back, want 1")
	if b.sim.Snapshot("acct", "none", "a") != nil || b.sim.Snapshot("none", "rows", "a") != nil || b.sim.DropRows("acct", "none", "a", nil) != 0 {
		t.Error("a table that does not exist was remembered")
	}
	b.want(b.do("DELETE", "/Tables('rows')", ""), 204, "")
	proof.Same(t, a.Restore(), 0, "rows came back into a deleted table")
}

// tables/scalability-targets: "Target throughput for a single table partition
// (1 KiB-entities): Up to 2,000 entities per second".
func TestAQueryIsChargedForTheEntitiesItLooksAtOnTheirPartitions(t *testing.T) {
	proof.Only(t)
	synctest.Test(t, func(t *testing.T) {
		l := PublishedLimits()
		l.QueryCost = 1000
		b := newTableBench(t, TableOptions{})
		b.sim = New(Config{Accounts: []Account{{Name: "acct"}}, Limits: l, CountPartitions: true})
		b.want(b.do("POST", "/Tables", `{"TableName":"rows"}`), 201, "")
		for i := range 100 {
			b.upsert("rows", "p", fmt.Sprintf("%03d", i), i)
			b.upsert("rows", "q", fmt.Sprintf("%03d", i), i)
			time.Sleep(10 * time.Millisecond)
		}
		for name, query := range map[string]string{
			"one partition":                 "/rows?$filter=PartitionKey%20eq%20'p'",
			"a filter that leaves most out": "/rows?$filter=PartitionKey%20eq%20'p'%20and%20V%20eq%207",
			"both partitions":               "/rows",
		} {
			answered := 0
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if b.do("GET", query, "").status == 200 {
					answered++
				}
			}
			if answered < 195 || answered > 206 {
				t.Errorf("%s: %d queries of 100 entities of a partition in 10 s, want 200", name, answered)
			}
			time.Sleep(10 * time.Second)
		}
		loads := b.sim.PartitionLoads()
		if len(loads) != 2 || loads[0].Table != "rows" || loads[0].Partition != "p" || loads[0].Peak < 2000 || loads[0].Peak > 2300 {
			t.Errorf("loads are %+v", loads)
		}
	})
}

func TestTablesMayBeSlowerThanQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTableBench(t, TableOptions{})
		b.sim = New(Config{
			Accounts: []Account{{Name: "acct"}}, Limits: NoLimits(),
		})
		b.sim.SetLatency(Latency{Queue: 10 * time.Millisecond, Table: time.Second})
		began := time.Now()
		b.want(b.do("POST", "/Tables", `{"TableName":"rows"}`), 201, "")
		if d := time.Since(began); d < time.Second || d > 1300*time.Millisecond {
			t.Errorf("a table request took %v, want 1 s and up to a quarter more", d)
		}
		w := raw{t, b.sim.Transport(), "https://acct.queue.core.windows.net"}
		began = time.Now()
		w.create("queue")
		if d := time.Since(began); d > 15*time.Millisecond {
			t.Errorf("a queue request took %v, want 10 ms", d)
		}
	})
}
