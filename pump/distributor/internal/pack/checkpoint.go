package pack

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Barrier is a checkpoint that waits for the envelopes with tasks from before it.
type Barrier struct {
	number int
	at     workload.Checkpoint
	tasks  int64 // before it
	taken  time.Time
}

// Tracker knows when a barrier may be saved. Barriers cut the run into
// intervals: interval i is what was read between barrier i and barrier i+1.
// Each interval counts what may still hold a task of it unacknowledged: the
// open or sent envelopes whose first task is of it, the bad lines on their way, and
// each lane until it has passed the barrier at its end. Barrier b is complete
// when all intervals before b are at zero. So the work is per envelope, not per task, and an
// envelope that reaches over a barrier holds back the barriers behind its first
// task, no earlier ones.
type Tracker struct {
	lanes int
	ready chan struct{} // capacity 1: a barrier became complete, or one was taken

	mu       sync.Mutex // guards what follows
	counts   []int      // of intervals base, base+1, ...
	base     int        // the first interval that is not at zero
	waiting  []*Barrier // taken and not complete, in order
	complete *Barrier   // the newest complete barrier that was not fetched yet
}

// NewTracker makes the tracker of a distribution with so many lanes.
func NewTracker(lanes int) *Tracker {
	return &Tracker{lanes: lanes, ready: make(chan struct{}, 1), counts: []int{lanes}}
}

// Opened counts an envelope or bad line whose first task was read in interval i.
// The interval must not be complete, which the caller's lane (or the reader, for the
// newest interval) guarantees by not having passed its end.
func (t *Tracker) Opened(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[i-t.base]++
}

// Done uncounts it: it is acknowledged.
func (t *Tracker) Done(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[i-t.base]--
	for len(t.counts) > 0 && t.counts[0] == 0 {
		t.counts = t.counts[1:]
		t.base++
	}
	for len(t.waiting) > 0 && t.waiting[0].number <= t.base {
		t.complete = t.waiting[0]
		t.waiting = t.waiting[1:]
		waits.Signal(t.ready)
	}
}

// Passed says that a lane has packed everything from before barrier b.
func (t *Tracker) Passed(b int) { t.Done(b - 1) }

// take begins the next interval with a barrier, which the caller must then send
// through every lane.
func (t *Tracker) take(b *Barrier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b.number = t.base + len(t.counts)
	t.counts = append(t.counts, t.lanes)
	t.waiting = append(t.waiting, b)
	waits.Signal(t.ready)
}

// fetch gives the newest complete barrier, once, and the oldest and newest that wait.
func (t *Tracker) fetch() (complete, oldest, newest *Barrier, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	complete, t.complete = t.complete, nil
	if n := len(t.waiting); n > 0 {
		oldest, newest = t.waiting[0], t.waiting[n-1]
	}
	return complete, oldest, newest, len(t.waiting)
}

// maxBarriers bounds the barriers that wait at once: each is a copy of the
// counters, 128 KiB at 16,384 segments.
const maxBarriers = 32

// Checkpointer saves barriers as they become complete, and forces those that wait too long.
type Checkpointer struct {
	Tracker *Tracker
	// nil without an election: checkpoints are not saved
	Save  func(ctx context.Context, checkpoint []byte) error
	Lanes []*Lane
	Log   *slog.Logger
	Turn  sim.Step

	Every, Age time.Duration
	Max        int64 // sim.Config.MaxUnsaved

	want  atomic.Bool   // the reader shall take a barrier
	Saved chan struct{} // capacity 1: SavedTasks grew
	// SavedTasks is the number of tasks before the last saved barrier.
	SavedTasks atomic.Int64
	pending    *Barrier     // complete, not saved yet; used by run, and after it by flush
	failing    logs.Limited // saves are
}

// Run saves until over is closed. It then waits for a save under way, which could otherwise land
// after the final save.
func (c *Checkpointer) Run(ctx context.Context, over <-chan struct{}) error {
	tick := time.NewTicker(min(c.Every, c.Age)/2 + time.Nanosecond)
	defer tick.Stop()
	next := time.Now().Add(c.Every)
	retry := time.Time{} // not before: after a failed save
	for {
		c.Turn.Wait("checkpoint")
		select {
		case <-over: // always, and not only if it is seen first of two (P9)
			return nil
		default:
		}
		complete, oldest, newest, waiting := c.Tracker.fetch()
		if complete != nil {
			c.pending = complete
		}
		now := time.Now()
		if c.pending != nil && !now.Before(retry) {
			if err := c.saveOnce(ctx); errors.Is(err, election.ErrDeposed) {
				return err
			} else if err != nil {
				c.failing.GoesOn(c.Log.Warn, "the checkpoint could not be saved; trying again", "error", err)
				retry = now.Add(c.Every)
			}
		}
		if oldest != nil {
			switch {
			case newest.tasks-c.SavedTasks.Load() > c.Max/2:
				c.force(newest)
			case time.Since(oldest.taken) >= c.Age:
				c.force(oldest)
			}
		}
		if now = time.Now(); !now.Before(next) && waiting < maxBarriers {
			c.want.Store(true)
			next = now.Add(c.Every)
		}
		select {
		case <-c.Tracker.ready:
		case <-tick.C:
		case <-over: // looked at above
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Checkpointer) force(b *Barrier) {
	for _, l := range c.Lanes {
		l.forceBefore(b.number)
	}
}

func (c *Checkpointer) saveOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waits.RequestTimeout)
	defer cancel()
	if err := c.Save(ctx, c.pending.at.Encode()); err != nil {
		return err
	}
	c.failing.IsOver(c.Log.Info, "checkpoints are saved again")
	c.SavedTasks.Store(c.pending.tasks)
	c.pending = nil
	waits.Signal(c.Saved)
	return nil
}

// Flush saves, after run, the last barrier that became complete, or the final
// one if everything is acknowledged.
func (c *Checkpointer) Flush(ctx context.Context, final *Barrier) error {
	if complete, _, _, _ := c.Tracker.fetch(); complete != nil {
		c.pending = complete
	}
	if final != nil {
		c.pending = final
	}
	if c.pending == nil {
		return nil
	}
	return c.saveOnce(ctx)
}
