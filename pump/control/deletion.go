package control

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/pump/storage"
)

// RowGroup is rows of a workload that are deleted together.
type RowGroup struct {
	What      string // "ledger", "runs", ...
	partition string
}

// RowGroups are all rows of a workload but the one of [EnsureWorkload], in the order in which they
// are deleted. What processes read when they start comes last.
func RowGroups(w *Workload) []RowGroup {
	var groups []RowGroup
	add := func(what, partition string) { groups = append(groups, RowGroup{what, partition}) }
	if w.Delivery == DeliverOnce {
		for n := range (w.Map.Segments + partitionSegments - 1) / partitionSegments {
			add("ledger", ledgerPartition(w.Name, n))
		}
	}
	for n := range claimParts {
		add("claims", claimsPartition(w.Name, n))
	}
	add("progress", tallyPartition(w.Name))
	add("runs", NewRuns(w.table, w.Name).partition())
	add("gates", w.Name+gatesPart)
	add("ranges of ids", w.Name+idsPart)
	add("election", electionRowOf(w.table, w.Name, requestTimeout).partition)
	add("cluster", w.Name)
	return groups
}

// comeBack is how often rows may be there again after what was there was removed.
const comeBack = 20

// query finds rows of the group from a key on.
func (g RowGroup) query(w *Workload, from string) storage.Query {
	q := storage.Query{Partition: g.partition, From: from, Select: []string{formatProperty}}
	if g.partition == w.Name {
		q.To = workloadKey
	}
	return q
}

// CountRows counts the rows of a group.
func CountRows(ctx context.Context, w *Workload, g RowGroup) (n int, err error) {
	for from := ""; ; {
		rows, err := mustFindRows(ctx, w.table, g.query(w, from), rowsPage)
		n += len(rows)
		if err != nil || len(rows) < rowsPage {
			return n, err
		}
		from = rows[len(rows)-1].Row + "!" // the next key that may be
	}
}

// RemoveRows removes the rows of a group, of whatever version they are, and says after each
// thousand how many. It may be called again after whatever happened to it.
func RemoveRows(ctx context.Context, w *Workload, g RowGroup, removed func(n int)) error {
	for again := 0; ; {
		rows, err := mustFindRows(ctx, w.table, g.query(w, ""), rowsPage)
		if err != nil || len(rows) == 0 {
			return err
		}
		if len(rows) < rowsPage {
			again++
		}
		if again > comeBack {
			return fmt.Errorf("rows of %s come back as fast as they are removed: some process still writes them", g.partition)
		}
		for i := range rows {
			rows[i].ETag = ""
		}
		page, cancel := context.WithTimeout(ctx, patience)
		err = removeRows(page, w.table, rows)
		cancel()
		if err != nil {
			return fmt.Errorf("removing rows of %s: %w", g.partition, err)
		}
		removed(len(rows))
	}
}
