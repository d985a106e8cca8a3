package workloads

import (
	"context"
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// rowGroup is rows of a workload that are deleted together.
type rowGroup struct {
	What      string // "ledger", "runs", ...
	partition string
}

// rowGroups are all rows of a workload but the one of [workload.Ensure], in the order in which they
// are deleted. Rows that processes read when they start come last.
func rowGroups(w *workload.Workload) []rowGroup {
	var groups []rowGroup
	add := func(what, partition string) { groups = append(groups, rowGroup{what, partition}) }
	// At-least-once has a ledger, too, where a reducer keeps its state in it.
	for n := range (w.Map.Segments + ledger.PartitionSegments - 1) / ledger.PartitionSegments {
		add("ledger", ledger.Partition(w.Name, n))
	}
	for n := range workload.ClaimParts {
		add("claims", workload.ClaimsPartition(w.Name, n))
	}
	for n := range workload.KeyParts {
		add("keys of posts", workload.KeysPartition(w.Name, n))
	}
	add("progress", workload.TallyPartition(w.Name))
	add("results", results.Partition(w.Name))
	add("runs", workload.RunsPartition(w.Name))
	add("redrives", workload.RedrivesPartition(w.Name))
	add("causes", row.CausePartition(w.Name))
	add("gates", workload.GatesPartition(w.Name))
	add("ranges of ids", workload.IDsPartition(w.Name))
	add("history", sampling.HistoryPartition(w.Name))
	add("election", workload.ElectionPartition(w.Name))
	add("log", workload.LogPartition(w.Name))
	add("cluster", w.Name)
	return groups
}

// comeBack is how often rows may be there again after all rows were removed.
const comeBack = 20

// query finds rows of the group from a key on.
func (g rowGroup) query(w *workload.Workload, from string) storage.Query {
	q := storage.Query{Partition: g.partition, From: from, Select: []string{row.FormatProperty}}
	if g.partition == w.Name {
		q.To = cluster.WorkloadKey
	}
	return q
}

// countRows counts the rows of a group.
func countRows(ctx context.Context, w *workload.Workload, g rowGroup) (n int, err error) {
	for from := ""; ; {
		rows, err := row.MustFind(ctx, w.Table, g.query(w, from), row.PageSize)
		n += len(rows)
		if from = row.Next(rows); err != nil || from == "" {
			return n, err
		}
	}
}

// removeRows removes the rows of a group, of any version, and says after each thousand how many. It
// may be called again after any failure.
func removeRows(ctx context.Context, w *workload.Workload, g rowGroup, removed func(n int)) error {
	for again := 0; ; {
		rows, err := row.MustFind(ctx, w.Table, g.query(w, ""), row.PageSize)
		if err != nil || len(rows) == 0 {
			return err
		}
		if len(rows) < row.PageSize {
			again++
		}
		if again > comeBack {
			return fmt.Errorf("rows of %s come back as fast as they are removed: some "+
				"process still writes them", g.partition)
		}
		for i := range rows {
			rows[i].ETag = ""
		}
		page, cancel := context.WithTimeout(ctx, row.Patience)
		err = row.RemoveFound(page, w.Table, rows)
		cancel()
		if err != nil {
			return fmt.Errorf("removing rows of %s: %w", g.partition, err)
		}
		removed(len(rows))
	}
}

// removeResults deletes the objects of results, and the bodies of tasks. Their containers stay,
// empty.
func (d *workloadDeletion) removeResults(ctx context.Context) error {
	used, err := closing.UsesResults(ctx, d.Queues, d.Workload)
	if err != nil || !used {
		return err
	}
	done := 0
	for n, name := range slices.Repeat(d.Queues.Names(), 2) {
		container := results.Container(d.Workload.Name)
		if n >= len(d.Queues.Names()) {
			container = bodies.Container(d.Workload.Name)
		}
		if d.lost(name) || slices.Contains(d.found.Kept, name) {
			continue
		}
		a := d.Queues.Account(name)
		for from := ""; ; {
			var page []storage.Blob
			err := d.insist(ctx, name+"/"+container, func(ctx context.Context) (err error) {
				page, from, err = d.Queues.Blobs(ctx, a, container, from)
				return err
			})
			if err != nil {
				return err
			}
			err = queues.Each(ctx, page, func(ctx context.Context, _ int, b storage.Blob) error {
				err := d.insist(ctx, name+"/"+b.Name, func(ctx context.Context) error {
					return a.Store.Container(container).Delete(ctx, b.Name)
				})
				if storage.Is(err, storage.Gone) {
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
			done += len(page)
			d.say(Progress{Step: "results", Done: done, Total: done})
			if from == "" {
				break
			}
		}
	}
	return nil
}
