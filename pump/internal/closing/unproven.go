package closing

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A sealed run is unproven while tasks of it are not recorded as settled. Mostly they are still to
// be done. Otherwise they were lost with their messages, and wait for a repair; or the run was
// closed and forgotten, and then its row came back older (a fail-over of the control account, a
// restored table). The ledger cannot tell these two apart. The closer ends both when nothing of the
// run can come any more, so that no run lives for ever: soon if all signs say that the run was
// forgotten, and a retention later if a repair may still mend it.

// askAgain is how often it is asked whether an unproven run is older than the retention.
const askAgain = 10 * time.Minute

// unproven decides about a sealed run with too few records.
func (w *closing) unproven(l *workload.LiveRun, k *observed) {
	c := w.c
	switch {
	case w.damaged, l.Tasks == 0:
	case !k.tallied:
		// A run that was sealed a moment ago waits: to read the notes of a run costs a request.
		if k.quiet >= c.quietFor()/4 {
			w.do(func(ctx context.Context) error { return c.endUnproven(ctx, l, k) })
		}
	case c.isQuiet(k):
		if time.Since(k.asked) >= askAgain {
			w.do(func(ctx context.Context) error { return c.endUnproven(ctx, l, k) })
		}
	case time.Since(k.since) >= 2*c.quietFor() && k.forgotten():
		c.waits.add(l.ID)
	}
}

// forgotten reports whether processors did tasks of a run without a done task in the ledger.
func (k *observed) forgotten() bool { return k.sum.Done == 0 && k.tally.Handled > 0 }

// endUnproven ends a sealed run if no task of it was met for long enough and nothing will mend it.
func (c *Closer) endUnproven(ctx context.Context, l *workload.LiveRun, k *observed) error {
	same, err := c.lookMet(ctx, l, k)
	if !same || err != nil {
		return err
	}
	note := "processors did tasks of it that the ledger has forgotten, as it " +
		"does when a run is closed: the run's row had come back as it was before"
	if !k.forgotten() {
		k.asked = time.Now()
		if old, err := c.isOld(ctx, l); !old || err != nil {
			return err
		}
		note = "tasks of it were not recorded as done within the retention"
	}
	return c.ended(c.Runs.OverSealed(ctx, l.ID, note), &c.told.unproven, l.ID,
		"a sealed run has ended that is not proven to be done", "tasks", l.Tasks, "done", k.sum.Done,
		"quarantined", k.sum.Quarantined, "handled", k.tally.Handled)
}

// isOld reports whether a run's row has not changed for the retention, by the server's clock, and
// nothing of the run was noted since.
func (c *Closer) isOld(ctx context.Context, l *workload.LiveRun) (bool, error) {
	noted, err := workload.LastNoted(ctx, c.queues.Control, c.workload, l.ID)
	if err != nil {
		return false, err
	}
	server, local, err := workload.ServerTime(ctx, c.queues.Control, c.workload)
	if err != nil || server.IsZero() {
		return false, err
	}
	before := server.Add(time.Since(local) - c.retain())
	return l.Changed.Before(before) && noted.Before(before), nil
}
