package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// retireMost is how many runs one call looks at, and retireTogether how many at once if there are
	// more than a few. A run takes four requests at most, so a minute suffices for a call while the
	// table answers within a second.
	retireMost     = 200
	retireTogether = 16
	retireAlone    = 8
)

// freedProperty marks a row by time whose run had a name and was removed. Until that row goes too,
// the run's election row says that the name is taken.
const freedProperty = "Freed"

// NameKept is how much longer than its run a name is taken. The next run of the name has the same
// id: by then no processor believes that the run is closed, and no ledger has a rest of it.
const NameKept = time.Hour

// Retire removes the rows of runs that finished before a moment of the server's clock: closed or
// over, and unchanged since. If nothing records what is done (counted is false: delivery at least
// once), no run ever closes; then it removes runs that are sealed, broken or abandoned, unchanged
// since. A run stays if a task of it was met or hidden since, unless none of it can be redriven.
// Their tallies go first, then the run's row and its row by time together. The name of a run is
// free if its row went before the moment free and nothing is held of it any more. It looks at up to
// two hundred runs that began before that moment, those from a key on ("" at first), and gives the
// key to go on from, "" at the end. Damage names rows that cannot be read, which stay; the others
// go.
func (r *Runs) Retire(
	ctx context.Context, before, free time.Time, from string, counted bool,
	held func(codec.RunID) bool,
) (removed int, next string, damage, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	if from == "" {
		from = fmt.Sprintf("%s%013d", byTime, min(max(lastMilli-before.UnixMilli(), 0), lastMilli))
	}
	noted, err := r.findNoted(ctx, from, retireMost)
	if err != nil {
		return 0, from, nil, fmt.Errorf("looking for old runs of %s: %w", r.workload, err)
	}
	var g errgroup.Group
	g.SetLimit(1)
	if len(noted) > retireAlone {
		g.SetLimit(retireTogether)
	}
	var count atomic.Int64
	damaged := make([]error, len(noted))
	for i, n := range noted {
		g.Go(func() error {
			gone, err := r.retireOne(ctx, n, before, free, counted, held)
			if err != nil {
				err = fmt.Errorf("removing run %s: %w", n.run, err)
			}
			if errors.Is(err, row.ErrCorrupt) {
				damaged[i] = err
				return nil
			}
			if err != nil {
				return err
			}
			if gone {
				count.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	removed, damage = int(count.Load()), errors.Join(damaged...)
	switch {
	case err != nil:
		return removed, from, damage, err
	case len(noted) < retireMost:
		return removed, "", damage, nil
	}
	return removed, row.After(noted[len(noted)-1].key), damage, nil
}

func (r *Runs) retireOne(
	ctx context.Context, n noted, before, free time.Time, counted bool, held func(codec.RunID) bool,
) (gone bool, err error) {
	if n.err != nil {
		return false, n.err
	}
	v, err := r.row(n.run).MustRead(ctx)
	if err != nil {
		return false, err
	}
	writes := []storage.Write{
		{Mode: storage.Remove, Entity: storage.Entity{Partition: r.partition(), Row: n.key}},
	}
	switch run := v.Value; {
	case v.Absent() && n.freed && held(n.run):
		return false, nil
	case v.Absent() && n.freed:
		return r.freeName(ctx, n, free, writes)
	// left by a Create that did not get further, or was made again
	case v.Absent() || r.timeKey(run) != n.key:
		return true, row.RemoveAll(ctx, r.table, writes)
	case !run.doneWith(counted), !v.Modified.Before(before):
		return false, nil
	}
	tallies, err := r.tallyRows(ctx, n.run)
	if err != nil {
		return false, err
	}
	met := slices.ContainsFunc(tallies, func(e storage.Entity) bool {
		f := &row.Fields{Props: e.Properties}
		return !e.Modified.Add(f.Duration("Hides")).Before(before)
	})
	if met && (!counted || v.Value.Over || v.Value.Rest > 0) { // a redriven task of it may come back
		return false, nil
	}
	if err := row.RemoveFound(ctx, r.table, tallies); err != nil {
		return false, err
	}
	if v.Value.Name != "" {
		if err := r.keepName(ctx, n.run); err != nil {
			return false, err
		}
		writes[0] = r.noteOf(n.run, n.key)
		writes[0].Entity.Properties[freedProperty] = true
	}
	writes = append(writes, storage.Write{
		Mode:   storage.Remove,
		Entity: storage.Entity{Partition: r.partition(), Row: n.run.String(), ETag: v.ETag},
	})
	return true, row.RemoveAll(ctx, r.table, writes)
}

// keepName has a run's election row say that the run was sent. The process that sealed the run may
// have died before it could, and the row may be gone.
func (r *Runs) keepName(ctx context.Context, run codec.RunID) error {
	props := map[string]any{
		row.FormatProperty: int64(row.Format), "Phase": "idle", "Run": run.String(),
	}
	return row.RemoveAll(ctx, r.table, []storage.Write{{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: ElectionPartition(r.workload), Row: NamedKey(run), Properties: props,
	}}})
}

// freeName lets a name be used again whose run's row is gone.
func (r *Runs) freeName(
	ctx context.Context, n noted, free time.Time, writes []storage.Write,
) (gone bool, err error) {
	if !n.modified.Before(free) {
		return false, nil
	}
	// What leads to the results of this run would be taken for that of the next one of the name.
	led, err := row.MustFind(ctx, r.table, storage.Query{
		Partition: ResultsPartition(r.workload), From: n.run.String() + ".", To: n.run.String() + "~",
		Select: []string{row.FormatProperty},
	}, -1)
	if err == nil {
		err = row.RemoveFound(ctx, r.table, led)
	}
	if err != nil {
		return false, err
	}
	election := storage.Entity{Partition: ElectionPartition(r.workload), Row: NamedKey(n.run)}
	err = row.RemoveAll(ctx, r.table, []storage.Write{{Mode: storage.Remove, Entity: election}})
	if err != nil {
		return false, err
	}
	return true, row.RemoveAll(ctx, r.table, writes)
}

// doneWith reports whether a run's rows may go when they are old enough. Rows of a run that an
// operator has ended say what becomes of its tasks, and stay unless the ledger says that the run is
// over.
func (run *Run) doneWith(counted bool) bool {
	if run.State == RunClosed || run.Over {
		return true
	}
	return !counted && (run.State == RunSealed || run.State == RunBroken || run.State == RunAbandoned)
}

func (r *Runs) tallyRows(ctx context.Context, id codec.RunID) ([]storage.Entity, error) {
	q := storage.Query{
		Partition: TallyPartition(r.workload), From: id.String() + ".", To: id.String() + "~",
		Select: []string{"Hides"},
	}
	return row.MustFind(ctx, r.table, q, -1)
}
