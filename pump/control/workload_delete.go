package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// RowGroup is rows of a workload that are deleted together.
type RowGroup struct {
	What      string // "ledger", "runs", ...
	partition string
}

// RowGroups are all rows of a workload but the one of [EnsureWorkload], in the order in which they
// are deleted. What processes read when they start comes last.
func (w *Workload) RowGroups() []RowGroup {
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

// deletePage is how many rows are read at once, to be counted or removed.
const deletePage = 1000

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
func (w *Workload) CountRows(ctx context.Context, g RowGroup) (n int, err error) {
	for from := ""; ; {
		rows, err := mustFindRows(ctx, w.table, g.query(w, from), deletePage)
		n += len(rows)
		if err != nil || len(rows) < deletePage {
			return n, err
		}
		from = rows[len(rows)-1].Row + "!" // the next key that may be
	}
}

// RemoveRows removes the rows of a group, of whatever version they are, and says after each
// thousand how many. It may be called again after whatever happened to it.
func (w *Workload) RemoveRows(ctx context.Context, g RowGroup, removed func(n int)) error {
	runs := NewRuns(w.table, w.Name)
	for again := 0; ; {
		rows, err := mustFindRows(ctx, w.table, g.query(w, ""), deletePage)
		if err != nil || len(rows) == 0 {
			return err
		}
		if len(rows) < deletePage {
			again++
		}
		if again > comeBack {
			return fmt.Errorf("rows of %s come back as fast as they are removed: some process still writes them", g.partition)
		}
		for i := range rows {
			rows[i].ETag = ""
		}
		page, cancel := context.WithTimeout(ctx, patience)
		err = runs.removeRows(page, rows)
		cancel()
		if err != nil {
			return fmt.Errorf("removing rows of %s: %w", g.partition, err)
		}
		removed(len(rows))
	}
}

// MarkDeleting begins the deletion of the workload: from now on no process starts, and those that are
// at work end when they look next. There is no way back. Changed of its result is when it was marked.
func (w *Workload) MarkDeleting(ctx context.Context) (*Workload, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := workloadRowOf(w.table, w.Name)
	for {
		v, err := r.mustRead(ctx)
		switch {
		case err != nil:
			return nil, fmt.Errorf("workload %q: %w", w.Name, err)
		case v.absent():
			return nil, w.Deleted()
		}
		now := workloadFrom(w.table, w.Name, v)
		if err := w.Replaced(now); err != nil && !errors.Is(err, ErrDeleting) {
			return nil, err
		}
		if !now.Deleting.IsZero() {
			return now, nil
		}
		next := v.value
		next.deleting = milliseconds(time.Now())
		if _, err = r.tryWrite(ctx, v, next); err != nil && !errors.Is(err, errLost) {
			return nil, fmt.Errorf("workload %q: %w", w.Name, err)
		}
	}
}

// Remove removes the workload's row, the last of it, if it is as it was read.
func (w *Workload) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := workloadRowOf(w.table, w.Name).tryRemove(ctx, version[workloadRow]{etag: w.etag})
	if errors.Is(err, errLost) {
		return fmt.Errorf("workload %q was changed while it was deleted", w.Name)
	}
	return err
}

// RemoveAnchor removes what who made a workload has left in the table of an account, and
// says whether anything was there. With look it only says so.
func RemoveAnchor(ctx context.Context, t storage.Table, workload string, look bool) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := anchorRowOf(t, workload)
	for {
		v, err := r.mustRead(ctx)
		switch {
		case storage.Is(err, storage.Missing):
			return false, nil
		case err != nil && !errors.Is(err, ErrCorrupt), v.absent(), look:
			return !v.absent(), err
		}
		if err = r.tryRemove(ctx, v); !errors.Is(err, errLost) {
			return true, err
		}
	}
}

// Unfinished gives the runs that are open, and with sealed those that are sealed, at most so many.
func (r *Runs) Unfinished(ctx context.Context, sealed bool, most int) ([]codec.RunID, error) {
	var ids []codec.RunID
	for from := "0"; ; {
		q := storage.Query{Partition: r.partition(), From: from, To: "g", Select: []string{"State"}}
		rows, err := mustFindRows(ctx, r.table, q, deletePage)
		if err != nil {
			return nil, fmt.Errorf("looking for runs of %s that are not finished: %w", r.workload, err)
		}
		for _, e := range rows {
			state, _ := e.Properties["State"].(string)
			id, err := codec.ParseRunID(e.Row)
			if err == nil && (RunState(state) == RunOpen || sealed && RunState(state) == RunSealed) {
				ids = append(ids, id)
			}
		}
		if len(rows) < deletePage || len(ids) >= most {
			return ids[:min(len(ids), most)], nil
		}
		from = rows[len(rows)-1].Row + "!"
	}
}
