package closing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// sweepEvery is how often objects of results are looked for, if their runs are gone.
	sweepEvery = time.Hour
	// sweepMost is how many go between two passes.
	sweepMost = 200
)

// sweeping is how far a closer has come with the results of runs that are gone.
type sweeping struct {
	over    time.Time // when the last sweep was over
	account int       // of the queues' names; behind them come the rows
	from    string
	kept    map[codec.RunID]bool // whether the row of a run is there
}

// sweep removes objects of results, and rows that lead to them, if none of their runs has a row.
// Each is as old as the retention then, by the service's clock. What was put and never recorded
// goes so, too. One page is looked at between two passes.
func (c *Closer) sweep(ctx context.Context) error {
	s := &c.swept
	if !c.Results || c.view == nil || s.kept == nil && time.Since(s.over) < sweepEvery {
		return nil
	}
	server, local, err := workload.ServerTime(ctx, c.queues.Control, c.workload)
	if err != nil || server.IsZero() {
		return err
	}
	before := server.Add(time.Since(local) - c.retain())
	if s.kept == nil {
		*s = sweeping{kept: map[codec.RunID]bool{}}
	}
	names := c.queues.Names()
	if s.account >= len(names) {
		if s.from, err = c.sweepRows(ctx, s.from, before); err != nil || s.from == "" {
			*s = sweeping{over: time.Now()}
		}
		return err
	}
	s.from, err = c.sweepObjects(ctx, names[s.account], s.from, before)
	if err != nil || s.from == "" {
		s.account, s.from = s.account+1, "" // an account that does not answer has its turn an hour later
	}
	return err
}

// sweepObjects looks at a page of an account's objects, and gives the name to go on from.
func (c *Closer) sweepObjects(
	ctx context.Context, name, from string, before time.Time,
) (next string, err error) {
	a, container, gone := c.queues.Account(name), results.Container(c.workload), 0
	page, next, err := c.queues.Blobs(ctx, a, container, from)
	for i := range page {
		b := &page[i]
		if gone == sweepMost {
			return b.Name, nil
		}
		runs, told := results.RunsOf(b.Metadata)
		if !told || !b.Modified.Before(before) {
			continue // it is not of this package, or young
		}
		switch kept, err := c.anyKept(ctx, runs); {
		case err != nil:
			return "", err
		case kept:
			continue
		}
		err := c.queues.Blob(ctx, a, container, cluster.OpDeleteBlob,
			func(ctx context.Context, at storage.Container) error { return at.Delete(ctx, b.Name) })
		if err != nil && !storage.Is(err, storage.Gone) {
			return "", fmt.Errorf("removing results %s/%s: %w", name, b.Name, err)
		}
		gone++
	}
	return next, err
}

// anyKept reports whether one of the runs has a row, or one that cannot be read.
func (c *Closer) anyKept(ctx context.Context, runs []codec.RunID) (bool, error) {
	for _, id := range runs {
		kept, known := c.swept.kept[id]
		if !known {
			_, err := c.Runs.Get(ctx, id)
			if kept = !errors.Is(err, pump.ErrNoRun); kept && err != nil && !errors.Is(err, row.ErrCorrupt) {
				return true, err
			}
			c.swept.kept[id] = kept
		}
		if kept {
			return true, nil
		}
	}
	return false, nil
}

// sweepRows looks at up to a thousand rows that lead to results, and gives the key to go on from.
func (c *Closer) sweepRows(ctx context.Context, from string, before time.Time) (string, error) {
	found, err := row.MustFind(ctx, c.queues.Control, storage.Query{
		Partition: results.Partition(c.workload), From: from, Select: []string{row.FormatProperty},
	}, row.PageSize)
	if err != nil {
		return "", err
	}
	var gone []storage.Entity
	for _, e := range found {
		id, err := codec.ParseRunID(e.Row[:min(len(e.Row), 2*len(codec.RunID{}))])
		if err != nil || !e.Modified.Before(before) {
			continue
		}
		kept, err := c.anyKept(ctx, []codec.RunID{id})
		if err != nil {
			return "", err
		}
		if !kept {
			gone = append(gone, e)
		}
	}
	if len(found) == row.PageSize {
		from = row.After(found[len(found)-1].Row)
	} else {
		from = ""
	}
	return from, row.RemoveFound(ctx, c.queues.Control, gone)
}

// HasResults reports whether an account has objects of results of runs with rows, and names some of
// the runs.
func HasResults(
	ctx context.Context, cfg *pump.Config, f *queues.Set, w *workload.Workload, account string,
) (runs []codec.RunID, err error) {
	used, err := UsesResults(ctx, f, w)
	if err != nil || !used {
		return nil, err
	}
	c := New(cfg, f, w)
	c.swept.kept = map[codec.RunID]bool{}
	for from := ""; ; {
		page, next, err := f.Blobs(ctx, f.Account(account), results.Container(w.Name), from)
		if err != nil {
			return nil, err
		}
		for _, b := range page {
			ids, _ := results.RunsOf(b.Metadata)
			if _, err := c.anyKept(ctx, ids); err != nil {
				return nil, err
			}
		}
		if from = next; from == "" {
			break
		}
	}
	for id, kept := range c.swept.kept {
		if kept {
			runs = append(runs, id)
		}
	}
	return runs, nil
}

// UsesResults reports whether a row leads to results of a workload.
func UsesResults(ctx context.Context, f *queues.Set, w *workload.Workload) (bool, error) {
	found, err := row.MustFind(ctx, f.Control, storage.Query{
		Partition: results.Partition(w.Name), Select: []string{row.FormatProperty},
	}, 1)
	if err != nil || len(found) > 0 || w.Delivery != string(pump.Once) {
		return len(found) > 0, err
	}
	sums, err := ledger.ReadSums(ctx, f.Control, w.Name, w.Map.Segments)
	return sums != nil && len(sums.Results) > 0, err
}
