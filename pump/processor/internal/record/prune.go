package record

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// How often the recorder looks whether the ledger has something of finished runs: seldom, and soon
// again after it had. Each processor reads one small row for it, and less often if there are many
// processors.
const (
	pruneEvery = 15 * time.Second
	pruneAgain = 2 * time.Second
	pruneCrowd = 64 // processors beyond which they look less often
	// restsEvery is how often old rests are looked for, whose runs' rows are read.
	restsEvery = 10 * time.Minute
	restsMost  = 64 // of each kind in one round; the others come in later rounds
)

// turn is how far runs have been looked at, in the order of their ids.
type turn struct {
	last pump.RunID
	more bool      // some have not had their turn
	at   time.Time // when some had theirs
}

// due reports whether some runs have their turn: the next ones, or after a while the first ones
// again when all are through. *A kind that was through began again while the other was not: with
// hundreds of both kinds hardly any turn ended.*
func (t *turn) due() bool { return t.more || time.Since(t.at) >= restsEvery }

// next gives those runs, sorted, whose turn it is.
func (t *turn) next(runs []pump.RunID) []pump.RunID {
	if !t.due() {
		return nil
	}
	t.at = time.Now()
	i, found := slices.BinarySearchFunc(runs, t.last, workload.CompareRuns)
	if found {
		i++
	}
	runs = runs[i:]
	if t.more = len(runs) > restsMost; !t.more {
		t.last = pump.RunID{}
		return runs
	}
	t.last = runs[restsMost-1]
	return runs[:restsMost]
}

// Prune forgets what is recorded of runs that are done with (P3.7), until ctx ends.
func (c *Recorder) Prune(ctx context.Context) {
	if !c.Once {
		return
	}
	var runs, foreign, rests logs.Limited
	wait := pruneEvery
	for n := uint64(0); waits.Wait(ctx, c.r.Jitter.Around(wait, "prune", c.r.Cfg.Workload, n)); n++ {
		wait = pruneEvery * time.Duration(max(1, c.crowd()/pruneCrowd))
		pruned, err := c.pruneListed(ctx)
		if err == nil && pruned {
			wait = pruneAgain
		}
		runs.Tell(ctx, c.r.Log, err, "runs that are done with could not be forgotten yet",
			"runs that are done with are forgotten again")
		c.warnFull()
		foreign.Tell(ctx, c.r.Log, c.pruneNames(ctx),
			"foreign messages that are done with could not be forgotten yet",
			"foreign messages that are done with are forgotten again")
		if c.aged.due() || c.crowded.due() {
			rests.Tell(ctx, c.r.Log, c.pruneRests(ctx),
				"old tasks in quarantine could not be forgotten yet",
				"old tasks in quarantine are forgotten again")
		}
	}
}

// crowd is how many processors there are.
func (c *Recorder) crowd() int {
	if m := c.r.Member.Load(); m != nil {
		if v := m.View(); v != nil {
			return len(v.Processors())
		}
	}
	return 1
}

// awaitBegun waits for the calls that took a run for open before it was known to be closed.
func (c *Recorder) awaitBegun() {
	c.closing.Lock()
	defer c.closing.Unlock()
}

// pruneListed takes out what the closer says is done with.
func (c *Recorder) pruneListed(ctx context.Context) (pruned bool, err error) {
	list, err := c.rows.Prunable(ctx)
	if err != nil {
		return false, err
	}
	c.r.Runs.Forget(slices.DeleteFunc(list.Ended, func(id pump.RunID) bool {
		return !c.r.Runs.Stands(id, closing.GoOn)
	}))
	closed, over := c.live(list.Closed), c.Ledger.Keeps(list.Over)
	return len(closed)+len(over) > 0, c.forget(ctx, closed, over)
}

// live are the closed runs with more than a rest in the ledger.
func (c *Recorder) live(closed []pump.RunID) []pump.RunID {
	live := c.Ledger.LiveRuns()
	return slices.DeleteFunc(closed, func(id pump.RunID) bool {
		_, found := slices.BinarySearchFunc(live, id, workload.CompareRuns)
		return !found
	})
}

// forget takes runs out of the ledger: closed runs except for their tasks in quarantine. Before
// that their rows are marked to be read again, and every caller that took them for open has been
// told what is recorded.
func (c *Recorder) forget(ctx context.Context, closed, over []pump.RunID) error {
	if len(closed)+len(over) == 0 {
		return nil
	}
	c.r.Runs.Forget(closed)
	c.r.Runs.Forget(over)
	c.awaitBegun()
	try, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	err := c.Ledger.Prune(try, closed, over...)
	if err == nil {
		c.r.Log.Debug("runs that are done with are forgotten", "closed", len(closed), "over", len(over))
	}
	return err
}

// pruneRests takes out rests whose runs are over or gone, and ends the oldest where there are too
// many. A rest stays if its run's row cannot be read, or came back as it was before the run was
// closed: the closer ends such a run, too. Rests that stay do not hold up the others. This
// machine's clock only says when to look.
func (c *Recorder) pruneRests(ctx context.Context) error {
	hours := uint64(max(0, time.Now().Add(-c.r.Queues.Values().Retention).Unix()/3600))
	aged, crowded := c.Ledger.OldRests(hours)
	var over []pump.RunID
	for _, id := range c.crowded.next(crowded) {
		switch err := c.rows.Over(ctx, id, ""); {
		case err == nil, errors.Is(err, pump.ErrNoRun):
			over = append(over, id)
		case !errors.Is(err, pump.ErrRunState) && !errors.Is(err, row.ErrCorrupt):
			return errors.Join(err, c.forget(ctx, nil, over))
		}
	}
	for _, id := range c.aged.next(aged) {
		switch v := c.r.Runs.LookSince(ctx, id, time.Now().Add(-restsEvery/2)); v {
		case closing.Spent, closing.Over, closing.Dropped, closing.Absent:
			over = append(over, id)
		}
	}
	return c.forget(ctx, nil, over)
}

// warnFull says once a minute that a segment's ledger is half full or more.
func (c *Recorder) warnFull() {
	use := c.Ledger.Use()
	if use.Fullest() >= closing.Pressure {
		c.r.AlarmOnce("ledger use", "a segment's ledger is half full or more; "+
			"at a bound tasks of further runs, or further foreign messages, "+
			"wait until others are done with; see what lives with: distributor runs list",
			closing.UseAttrs(use)...)
	}
}
