package closing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// sweepEvery is how often it is looked for objects of results whose runs are gone, and for bodies
	// that no task needs any more.
	sweepEvery = time.Hour
	// sweepFor is for how long another page is begun between two passes, and sweepAtOnce how many
	// blobs of it are removed at once. A request of 10 ms leaves 800 a second, which is the results of
	// 800,000 tasks.
	sweepFor, sweepAtOnce = closeAgain, 16
)

// sweeping is how far a closer has come with blobs that are not needed any more.
type sweeping struct {
	over    time.Time // when the last sweep was over
	far     time.Time // the horizon then
	bodies  bool      // there may be bodies
	account int       // of the queues' names, once for results and once for bodies; then the rows
	from    string
	began   time.Time                 // by the server's clock
	before  time.Time                 // a retention ago
	kept    map[codec.RunID]bool      // whether the row of a run is there
	until   map[codec.RunID]time.Time // bodies of a run go that were put before
	sums    *ledger.Sums
	held    *quarantined
}

// sweep removes objects of results, and rows that lead to them, if none of their runs has a row.
// Each is as old as the retention then, by the service's clock. What was put and never recorded
// goes so, too. It removes bodies as P3.10 says. A few pages are looked at between two passes.
func (c *Closer) sweep(ctx context.Context) (err error) {
	s := &c.swept
	if c.view == nil || s.kept == nil && time.Since(s.over) < sweepEvery {
		return nil
	}
	if s.kept == nil {
		used, err := false, error(nil)
		if c.once {
			used, err = bodies.Used(ctx, c.queues.Control, c.workload)
		}
		if err == nil && !used && !c.Results {
			s.over = time.Now()
		}
		if err != nil || !used && !c.Results {
			return err
		}
		server, _, err := workload.ServerTime(ctx, c.queues.Control, c.workload)
		if err != nil || server.IsZero() {
			return err
		}
		*s = sweeping{
			far: s.far, bodies: used, began: server, before: server.Add(-c.retain()),
			kept: map[codec.RunID]bool{}, until: map[codec.RunID]time.Time{},
		}
	}
	for began := time.Now(); err == nil && s.kept != nil && time.Since(began) < sweepFor; {
		err = c.sweepPage(ctx)
	}
	return err
}

// sweepPage looks at one page of blobs or of rows.
func (c *Closer) sweepPage(ctx context.Context) (err error) {
	s, names := &c.swept, c.queues.Names()
	switch n := s.account; {
	case n < len(names) && c.Results:
		s.from, err = c.sweepBlobs(ctx, names[n], results.Container(c.workload), s.from, c.staleResults)
	case n < len(names):
		s.from = ""
	case n < 2*len(names) && s.bodies:
		s.from, err = c.sweepBlobs(ctx, names[n-len(names)], bodies.Container(c.workload), s.from,
			c.staleBody)
	default:
		if s.from, err = c.sweepRows(ctx, s.from, s.before); err != nil || s.from == "" {
			*s = sweeping{over: time.Now(), far: c.horizon.At}
		}
		return err
	}
	if err != nil || s.from == "" {
		s.account, s.from = s.account+1, "" // an account that does not answer has its turn an hour later
	}
	return err
}

// sweepBlobs looks at a page of an account's blobs, removes the stale ones, and gives the name to
// go on from.
func (c *Closer) sweepBlobs(
	ctx context.Context, name, container, from string,
	stale func(context.Context, *storage.Blob) (bool, error),
) (next string, err error) {
	a, held := c.queues.Account(name), c.swept.held
	page, next, err := c.queues.Blobs(ctx, a, container, from)
	if err != nil {
		return "", err
	}
	g, failed := errgroup.WithContext(ctx)
	g.SetLimit(sweepAtOnce)
	for i := 0; i < len(page) && failed.Err() == nil; i++ {
		b := &page[i]
		is, err := stale(ctx, b)
		if c.swept.held != held { // what has left quarantine by now may be young since this page
			if err = g.Wait(); err != nil {
				return "", err
			}
			return c.sweepBlobs(ctx, name, container, from, stale)
		}
		if err == nil && !is {
			continue
		}
		g.Go(func() error {
			if err == nil {
				err = c.queues.Blob(ctx, a, container, cluster.OpDeleteBlob, 0,
					func(ctx context.Context, at storage.Container) error { return at.Delete(ctx, b.Name) })
			}
			if err == nil || storage.Is(err, storage.Gone) {
				return nil
			}
			return fmt.Errorf("removing %s/%s/%s: %w", name, container, b.Name, err)
		})
	}
	return next, g.Wait()
}

// staleResults reports whether an object of results is not needed any more.
func (c *Closer) staleResults(ctx context.Context, b *storage.Blob) (bool, error) {
	runs, told := results.RunsOf(b.Metadata)
	if !told || !b.Modified.Before(c.swept.before) {
		return false, nil // it is not of this package, or young
	}
	kept, err := c.anyKept(ctx, runs)
	return !kept, err
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
	return row.Next(found), row.RemoveFound(ctx, c.queues.Control, gone)
}

// HasBlobs reports whether an account has objects of results of runs with rows, or bodies, and
// names some of the runs.
func HasBlobs(
	ctx context.Context, cfg *pump.Config, f *queues.Set, w *workload.Workload, account string,
) (resultsOf, bodiesOf []codec.RunID, err error) {
	used, err := UsesResults(ctx, f, w)
	if err != nil || !used {
		return nil, nil, err
	}
	c := New(cfg, f, w)
	c.swept.kept = map[codec.RunID]bool{}
	a, all := f.Account(account), map[codec.RunID]bool{}
	err = eachBlob(ctx, f, a, results.Container(w.Name), func(b *storage.Blob) error {
		ids, _ := results.RunsOf(b.Metadata)
		_, err := c.anyKept(ctx, ids)
		return err
	})
	if err == nil {
		err = eachBlob(ctx, f, a, bodies.Container(w.Name), func(b *storage.Blob) error {
			if run, told := bodies.RunOf(b.Name); told {
				all[run] = true
			}
			return nil
		})
	}
	for id, kept := range c.swept.kept {
		if kept {
			resultsOf = append(resultsOf, id)
		}
	}
	return resultsOf, slices.Collect(maps.Keys(all)), err
}

// eachBlob visits all blobs of a container.
func eachBlob(
	ctx context.Context, f *queues.Set, a *queues.Account, container string,
	visit func(*storage.Blob) error,
) error {
	for from := ""; ; {
		page, next, err := f.Blobs(ctx, a, container, from)
		for i := range page {
			if err == nil {
				err = visit(&page[i])
			}
		}
		if from = next; err != nil || from == "" {
			return err
		}
	}
}

// UsesResults reports whether a row leads to results of a workload, or says that there are bodies.
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
