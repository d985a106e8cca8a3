package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// keptChanges is how many ids of changes the workload's row remembers. Changes are made by people,
// one at a time; that many cannot come between a write and the next look at the row.
const keptChanges = 32

// ChangeMap changes the shards of a workload by compare-and-swap (P6.6) and gives the workload as
// it is then. The function is called with the newest map and returns the shards of the next
// version, nil for no change, or an error, which ends the attempt; it is called again when another
// process was first, so it must only depend on the map that it is given. The change is applied once
// at most, even if answers are lost. ChangeMap gives up after a minute; if then a write may have
// been applied, or may be yet, the error is storage.Ambiguous. It is pump.ErrNoWorkload if the
// workload does not exist.
func ChangeMap(
	ctx context.Context, t storage.Table, workload string,
	change func(*shardmap.Map) ([]shardmap.Shard, error),
) (*Workload, error) {
	w, _, err := changeRow(ctx, t, workload, func(is Row) (next Row, changed bool, err error) {
		shards, err := change(is.shards)
		if err != nil || shards == nil {
			return is, false, err
		}
		next = is
		next.shards, err = is.shards.Change(shards)
		next.origin = 0
		return next, true, err
	})
	return w, err
}

// changeRow changes the row as ChangeMap does, and reports whether it did: change may find nothing
// to change.
func changeRow(
	ctx context.Context, t storage.Table, workload string,
	change func(Row) (next Row, changed bool, err error),
) (w *Workload, changed bool, err error) {
	if err := CheckName(workload); err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := RowOf(t, workload)
	// The nonce tells only the last write. If the answer is lost and another change lands before the
	// row is read back, this change looks like a lost race; the ids in the row tell that it was
	// applied. Otherwise an add whose answer is lost, made again after an operator's drain, would undo
	// the drain.
	id := row.DrawOf(t).Nonce("change " + r.Object())
	v, err := r.Change(ctx, func(is row.Version[Row]) (next Row, changed bool, err error) {
		switch {
		case is.Absent():
			return next, false, pump.ErrNoWorkload
		case !is.Value.deleting.IsZero():
			return next, false, ErrDeleting
		case slices.Contains(is.Value.changes, id):
			return next, false, nil
		}
		if next, changed, err = change(is.Value); changed && err == nil {
			next.changes = append(slices.Clone(is.Value.changes), id)
			next.changes = next.changes[max(0, len(next.changes)-keptChanges):]
		}
		return next, changed, err
	})
	if row.NoTable(err) {
		err = pump.ErrNoWorkload
	}
	if err != nil {
		return nil, false, fmt.Errorf("workload %q: %w", workload, err)
	}
	return FromRow(t, workload, v), slices.Contains(v.Value.changes, id), nil
}

// ServerTime is a moment of the clock that stamps the rows of the workload and its members, and a
// local moment that is not before it. It writes a row and reads it back, to learn a time of the
// server without any machine's clock. It tries again for up to a minute.
func ServerTime(
	ctx context.Context, t storage.Table, workload string,
) (server, local time.Time, err error) {
	// The row is outside of what a View reads: "clock" comes before "owner.".
	c := row.ServerClock{Table: t, Partition: workload, Timeout: row.RequestTimeout}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	err = row.Retry(ctx, t, workload+"/"+row.ClockKey, row.RequestTimeout/5, func() (err error) {
		server, local, err = c.Read(ctx)
		return err
	})
	if err == nil && server.IsZero() {
		err = fmt.Errorf("workload %q: the clock row has no time", workload)
	}
	return server, local, err
}
