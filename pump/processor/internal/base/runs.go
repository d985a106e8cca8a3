package base

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// How long knowledge of a run is believed. A run row is inserted before the run's first Put and
// never removed (P1.1), so "it exists" hardly ages; but an open run is closed some day. "Absent"
// and "could not be read" are asked again soon, because each sends messages somewhere.
const (
	RunKnownFor   = 5 * time.Minute
	RunUnknownFor = 10 * time.Second
	// runPatience bounds how long opening waits for the row.
	runPatience = 3 * time.Second
	maxRuns     = 4096 // whose verdicts are remembered
	// runsAhead is how many rows are read at once before they are asked for. If each run is one task,
	// each message needs a row: one after another, at 20 ms each, that is 50 messages a second.
	runsAhead = 16
)

// runReader reads run rows; *workload.Runs is one.
type runReader interface {
	Get(ctx context.Context, id pump.RunID) (workload.Run, error)
}

// runCache remembers run rows, and reads each once for all messages that ask.
type runCache struct {
	rows runReader
	log  *slog.Logger

	reading chan struct{} // one element for each row that is read ahead

	mu    sync.Mutex // guards known and what its entries say it guards
	known map[pump.RunID]*runEntry
}

type runEntry struct {
	asked   time.Time     // when reading the row began
	again   bool          // the row is being read once more; guarded by runCache.mu
	read    chan struct{} // closed when what follows is set
	verdict closing.Verdict
	unread  bool // the row could not be read, so the verdict is only what is best then
	// damaged: nor will it be, until somebody mends it or a newer program is here.
	damaged bool
	until   time.Time
}

// NewRunCache makes a cache of the rows of runs.
func NewRunCache(rows runReader, log *slog.Logger) *runCache {
	return &runCache{
		rows: rows, log: log, known: map[pump.RunID]*runEntry{}, reading: make(chan struct{}, runsAhead),
	}
}

// Ahead begins to read the rows of unknown runs, since a message will ask soon. It does not wait. A
// look that comes earlier reads the row itself.
func (c *runCache) Ahead(ctx context.Context, runs []pump.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range runs {
		if c.known[id] == nil {
			go c.readAhead(ctx, id)
		}
	}
}

func (c *runCache) readAhead(ctx context.Context, id pump.RunID) {
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.reading }()
	c.mu.Lock()
	if c.known[id] != nil {
		c.mu.Unlock()
		return
	}
	e := c.enter(id)
	c.mu.Unlock()
	c.readRow(ctx, id, e)
}

// Look gives the verdict on a run, reading its row if that is due. A run that was good to go on
// with stays so while its row is read again: if messages waited for that, a dark control plane
// would stop everything for runPatience again and again.
func (c *runCache) Look(ctx context.Context, id pump.RunID) closing.Verdict {
	return c.entry(ctx, id, time.Time{}).verdict
}

// LookSince is look for a caller that needs a row read after since (mode once). The segment's
// former owner may have found the run closed and dropped its records, so an older "open" would have
// copies done again.
func (c *runCache) LookSince(ctx context.Context, id pump.RunID, since time.Time) closing.Verdict {
	switch e := c.entry(ctx, id, since); {
	case e.damaged:
		return closing.Damaged
	case e.unread:
		return closing.Unread
	default:
		return e.verdict
	}
}

// Forget has the rows of runs read again: they have changed.
func (c *runCache) Forget(runs []pump.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range runs {
		delete(c.known, id)
	}
}

// ForgetAll has the rows of all runs read again.
func (c *runCache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.known)
}

// Stands reports whether a verdict on a run is still what is known, without a request.
func (c *runCache) Stands(id pump.RunID, verdict closing.Verdict) bool {
	c.mu.Lock()
	e := c.known[id]
	c.mu.Unlock()
	if e == nil {
		return false
	}
	select {
	case <-e.read:
		return e.verdict == verdict && !e.unread
	default:
		return false
	}
}

func (c *runCache) entry(ctx context.Context, id pump.RunID, since time.Time) *runEntry {
	c.mu.Lock()
	e := c.known[id]
	switch {
	case e == nil || e.asked.Before(since) || e.expired(time.Now()) && e.verdict != closing.GoOn:
		e = c.enter(id)
		c.mu.Unlock()
		c.readRow(ctx, id, e)
		return e
	case e.expired(time.Now()) && !e.again:
		e.again = true
		c.mu.Unlock()
		go c.readAgain(ctx, id, e)
		return e
	}
	c.mu.Unlock()
	<-e.read // bounded by runPatience
	return e
}

// enter makes a new entry, with the lock held.
func (c *runCache) enter(id pump.RunID) *runEntry {
	if len(c.known) >= maxRuns {
		clear(c.known) // ids come from outside; reading some rows again is cheap
	}
	e := newRunEntry()
	c.known[id] = e
	return e
}

func newRunEntry() *runEntry { return &runEntry{asked: time.Now(), read: make(chan struct{})} }

// readAgain replaces an entry once its row was read; until then the old one is looked at. An old
// answer from a row is better than a new answer without.
func (c *runCache) readAgain(ctx context.Context, id pump.RunID, old *runEntry) {
	fresh := newRunEntry()
	c.readRow(ctx, id, fresh)
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh.unread {
		fresh.asked, fresh.unread, fresh.damaged = old.asked, old.unread, old.damaged
	}
	if c.known[id] == old { // else a later answer stands there
		c.known[id] = fresh
	}
}

func (e *runEntry) expired(now time.Time) bool {
	select {
	case <-e.read:
		return !now.Before(e.until)
	default:
		return false
	}
}

func (c *runCache) readRow(ctx context.Context, id pump.RunID, e *runEntry) {
	ctx, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	run, err := c.rows.Get(ctx, id)
	lasts := RunUnknownFor
	switch {
	case err == nil:
		lasts = RunKnownFor
		e.verdict = closing.VerdictOf(&run)
	case errors.Is(err, pump.ErrNoRun):
		e.verdict = closing.Absent
	default:
		e.unread, e.damaged = true, errors.Is(err, row.ErrCorrupt)
		c.log.Warn("run row cannot be read", "run", id, "error", err)
	}
	e.until = time.Now().Add(lasts)
	close(e.read)
}
