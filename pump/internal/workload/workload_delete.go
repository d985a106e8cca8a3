package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// MarkDeleting begins the deletion of the workload: from now on no process starts, and running
// processes end when they look next. This cannot be undone. Changed of its result is when it was
// marked.
func (w *Workload) MarkDeleting(ctx context.Context) (*Workload, error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := RowOf(w.Table, w.Name)
	for {
		v, err := r.MustRead(ctx)
		switch {
		case err != nil:
			return nil, fmt.Errorf("workload %q: %w", w.Name, err)
		case v.Absent():
			return nil, w.Deleted()
		}
		now := FromRow(w.Table, w.Name, v)
		if err := w.Replaced(now); err != nil && !errors.Is(err, ErrDeleting) {
			return nil, err
		}
		if !now.Deleting.IsZero() {
			return now, nil
		}
		next := v.Value
		next.deleting = milliseconds(time.Now())
		if _, err = r.TryWrite(ctx, v, next); err != nil && !errors.Is(err, row.ErrLost) {
			return nil, fmt.Errorf("workload %q: %w", w.Name, err)
		}
	}
}

// Remove removes the workload's row, the last of it, if it is as it was read.
func (w *Workload) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	err := RowOf(w.Table, w.Name).TryRemove(ctx, row.Version[Row]{ETag: w.etag})
	if errors.Is(err, row.ErrLost) {
		return fmt.Errorf("workload %q was changed while it was deleted", w.Name)
	}
	return err
}

// RemoveAnchor removes what a maker of a workload has left in the table of an account, and says
// whether anything was there. With look it only says so.
func RemoveAnchor(
	ctx context.Context, t storage.Table, workload string, look bool,
) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := anchorRowOf(t, workload)
	for {
		v, err := r.MustRead(ctx)
		switch {
		case row.NoTable(err):
			return false, nil
		case err != nil && !errors.Is(err, row.ErrCorrupt), v.Absent(), look:
			return !v.Absent(), err
		}
		if err = r.TryRemove(ctx, v); !errors.Is(err, row.ErrLost) {
			return true, err
		}
	}
}

// Unfinished gives the runs that are open, and with sealed those that are sealed, at most so many.
func (r *Runs) Unfinished(ctx context.Context, sealed bool, most int) ([]codec.RunID, error) {
	var ids []codec.RunID
	for from := "0"; ; {
		q := storage.Query{Partition: r.partition(), From: from, To: "g", Select: stateProperties}
		rows, err := row.MustFind(ctx, r.table, q, row.PageSize)
		if err != nil {
			return nil, fmt.Errorf("looking for runs of %s that are not finished: %w", r.workload, err)
		}
		for _, e := range rows {
			id, err := codec.ParseRunID(e.Row)
			state := storedState(e)
			if err == nil && (state == RunOpen || sealed && state == RunSealed) {
				ids = append(ids, id)
			}
		}
		if len(rows) < row.PageSize || len(ids) >= most {
			return ids[:min(len(ids), most)], nil
		}
		from = row.After(rows[len(rows)-1].Row)
	}
}
