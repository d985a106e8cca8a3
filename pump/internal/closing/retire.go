package closing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// How often it is looked for rows that are older than the retention.
const (
	retireEvery = 10 * time.Minute
	retireLeast = time.Minute // of a short retention; else a twentieth of it
	// claimPages is how many pages of claims are looked at between two passes.
	claimPages = 8
)

// retired is how far a closer has come with removing old rows.
type retired struct {
	at           time.Time // when it was looked last
	claims, keys sweep
}

// sweep is how far old rows of several partitions are removed.
type sweep struct {
	part int
	from string
	more bool // more are to be looked at, at once
}

// retire removes the rows of runs that finished a retention ago by the server's clock, their
// tallies, and claims of that time, until it finds no more.
func (c *Closer) retire(ctx context.Context) error {
	if c.view == nil {
		return nil
	}
	due := time.Since(c.retired.at) >= min(retireEvery, max(retireLeast, c.retain()/20))
	if !due && !c.retired.claims.more && !c.retired.keys.more {
		return nil
	}
	server, local, err := workload.ServerTime(ctx, c.queues.Control, c.workload)
	if err != nil || server.IsZero() {
		return err
	}
	now := server.Add(time.Since(local))
	before, free := now.Add(-c.retain()), now.Add(-workload.NameKept)
	if !due {
		return c.retireClaims(ctx, before)
	}
	c.retired.at = time.Now()
	removed, damaged := 0, error(nil)
	for next := ""; ; {
		n, from, damage, err := c.Runs.Retire(ctx, before, free, next, c.once, c.holds)
		removed, damaged = removed+n, errors.Join(damaged, damage)
		if next = from; err != nil || next == "" || ctx.Err() != nil {
			c.tellRetired(removed)
			if err != nil {
				return errors.Join(damaged, err)
			}
			break
		}
	}
	return errors.Join(damaged, c.retireClaims(ctx, before), context.Cause(ctx))
}

// holds reports whether the ledger knows a run, or may know it: another run of its name would have
// its id, and tasks of that one would be taken for those in quarantine.
func (c *Closer) holds(id pump.RunID) bool {
	s := c.whole
	if !c.once || s == nil || time.Since(c.summed) > 2*SumsEvery {
		return c.once
	}
	_, lives := s.Runs[id]
	return lives || s.Rests[id] > 0
}

// retireClaims removes old claims, and keys of posts. Before is a retention before now.
func (c *Closer) retireClaims(ctx context.Context, before time.Time) error {
	t, keep := c.queues.Control, func(f *row.Fields) time.Duration { return f.Duration("Keep") }
	claims := func(part int) string { return workload.ClaimsPartition(c.workload, part) }
	keys := func(part int) string { return workload.KeysPartition(c.workload, part) }
	return errors.Join(
		c.retired.claims.pages(ctx, t, before, claimInterval, workload.ClaimParts, claims),
		c.retired.keys.pages(ctx, t, before.Add(c.retain()), keep, workload.KeyParts, keys,
			row.FormatProperty, "Keep"))
}

// pages removes old rows of one of so many parts, and goes on with the next part if there were
// some.
func (s *sweep) pages(
	ctx context.Context, t storage.Table, before time.Time, intervalOf func(*row.Fields) time.Duration,
	parts int, partition func(part int) string, fields ...string,
) error {
	for range claimPages {
		q := storage.Query{Partition: partition(s.part % parts), From: s.from, Select: fields}
		removed, next, err := retireRows(ctx, t, q, before, intervalOf)
		if s.from = next; err == nil && next == "" {
			s.part++
		}
		if s.more = removed > 0 || next != ""; err != nil || !s.more {
			return err
		}
	}
	return nil
}

// claimInterval is the interval of a claim's row, which says how long it counts. Package
// coordination takes the same rows for damaged: they stay, for an operator to look at.
func claimInterval(f *row.Fields) time.Duration {
	if f.Text("Task") == "" || f.Text("Owner") == "" || f.Flag("Running") && f.Duration("Took") != 0 {
		f.Fail("Task, Owner or Running", "is not as a claim has it")
	}
	return f.Duration("Interval")
}

// retireRows removes rows that were written before a moment of the server's clock, and whose
// interval was over then too. It looks at up to a thousand rows of a query, and gives the key to go
// on from, "" at the end.
func retireRows(
	ctx context.Context, t storage.Table, q storage.Query, before time.Time,
	intervalOf func(*row.Fields) time.Duration,
) (removed int, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	found, err := row.MustFind(ctx, t, q, row.PageSize)
	if err != nil {
		return 0, q.From, fmt.Errorf("looking for old rows of %s: %w", q.Partition, err)
	}
	var old []storage.Entity
	for _, e := range found {
		f := &row.Fields{Props: e.Properties}
		interval := row.ReadFormat(f, intervalOf)
		if f.Err == nil && interval > 0 && e.Modified.Add(interval).Before(before) {
			old = append(old, e)
		}
	}
	return len(old), row.Next(found), row.RemoveFound(ctx, t, old)
}

func (c *Closer) tellRetired(removed int) {
	if removed > 0 {
		c.log.Info("rows of runs that were done with are removed", "runs", removed, "after", c.retain())
	}
}

// resumeEnded takes away the marks of paused runs that are closed or have ended: nothing else
// would, and only then can the rest of such a run meet its end. The damaged row of one run does not
// hold up another run.
func (c *Closer) resumeEnded(ctx context.Context) error {
	if c.view == nil {
		return nil
	}
	var errs []error
	for _, p := range c.view.Workload.PausedParts {
		if p.Run.IsZero() {
			continue
		}
		run, err := c.Runs.Get(ctx, p.Run)
		switch {
		case errors.Is(err, pump.ErrNoRun):
		case err != nil:
			errs = append(errs, err)
		case run.State == workload.RunClosed, run.State == workload.RunEnded:
			p.Since = time.Time{}
			_, changed, err := workload.SetPausedPart(ctx, c.queues.Control, c.workload, p)
			errs = append(errs, err)
			if changed {
				c.log.Info("a run that was paused is done with, and is paused no more",
					"run", p.Run.String(), "state", string(run.State))
			}
		}
	}
	return errors.Join(errs...)
}
