package pump

import (
	"bytes"
	"context"
	"slices"
	"time"
)

const (
	// pruneEvery is how often it is looked at whether runs that something is recorded of
	// are closed. Their rows are read for it, pruneRuns at most at a time.
	pruneEvery = time.Minute
	pruneRuns  = 32
)

// prune forgets what is recorded of runs that are closed (P3.7), until ctx ends.
func (c *recorder) prune(ctx context.Context) {
	var after RunID
	for n := uint64(0); waitFor(ctx, c.r.jitter.around(pruneEvery, "prune", c.r.cfg.Workload, n)); n++ {
		after = c.pruneSome(ctx, after)
	}
}

// awaitBegun waits for those who took a run for open before it was known to be closed.
func (c *recorder) awaitBegun() {
	c.closing.Lock()
	defer c.closing.Unlock()
}

// pruneSome looks at some runs, those after the one that was looked at last, and
// gives the last of them.
func (c *recorder) pruneSome(ctx context.Context, after RunID) RunID {
	runs := c.ledger.LiveRuns()
	i, _ := slices.BinarySearchFunc(runs, after, func(a, b RunID) int {
		if cmp := bytes.Compare(a[:], b[:]); cmp != 0 {
			return cmp
		}
		return -1 // behind it
	})
	runs = slices.Concat(runs[i:], runs[:i])
	runs = runs[:min(len(runs), pruneRuns)]
	var closed []RunID
	for _, id := range runs {
		if after = id; ctx.Err() == nil && c.r.runs.lookSince(ctx, id, time.Now().Add(-pruneEvery/2)) == runClosed {
			closed = append(closed, id)
		}
	}
	if len(closed) == 0 {
		return after
	}
	c.awaitBegun()
	try, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	if err := c.ledger.Prune(try, closed); err != nil {
		c.r.log.Warn("closed runs could not be forgotten yet", "runs", len(closed), "error", err)
		return after
	}
	c.r.log.Debug("closed runs are forgotten", "runs", len(closed))
	return after
}
