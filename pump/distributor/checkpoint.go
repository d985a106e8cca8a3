package distributor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// barrier is a checkpoint that waits for the envelopes with tasks from before it.
type barrier struct {
	number int
	at     workload.Checkpoint
	tasks  int64 // before it
	taken  time.Time
}

// tracker knows when a barrier may be saved. Barriers cut the run into
// intervals: interval i is what was read between barrier i and barrier i+1.
// Each interval counts what may still hold a task of it unacknowledged: the
// open or sent envelopes whose first task is of it, the bad lines on their way, and
// each lane until it has passed the barrier at its end. Barrier b is complete
// when all intervals before b are at zero. So the work is per envelope, not per task, and an
// envelope that reaches over a barrier holds back the barriers behind its first
// task, no earlier ones.
type tracker struct {
	lanes int
	ready chan struct{} // capacity 1: a barrier became complete, or one was taken

	mu       sync.Mutex // guards what follows
	counts   []int      // of intervals base, base+1, ...
	base     int        // the first interval that is not at zero
	waiting  []*barrier // taken and not complete, in order
	complete *barrier   // the newest complete one that was not fetched yet
}

func newTracker(lanes int) *tracker {
	return &tracker{lanes: lanes, ready: make(chan struct{}, 1), counts: []int{lanes}}
}

// opened counts an envelope or bad line whose first task was read in interval i.
// The interval must not be complete, which the caller's lane (or the reader, for the
// newest interval) guarantees by not having passed its end.
func (t *tracker) opened(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[i-t.base]++
}

// done uncounts it: it is acknowledged.
func (t *tracker) done(i int) {
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
		backoff.Signal(t.ready)
	}
}

// passed says that a lane has packed everything from before barrier b.
func (t *tracker) passed(b int) { t.done(b - 1) }

// take begins the next interval with a barrier, which the caller must then send
// through every lane.
func (t *tracker) take(b *barrier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b.number = t.base + len(t.counts)
	t.counts = append(t.counts, t.lanes)
	t.waiting = append(t.waiting, b)
	backoff.Signal(t.ready)
}

// fetch gives the newest complete barrier, once, and the oldest and newest that wait.
func (t *tracker) fetch() (complete, oldest, newest *barrier, waiting int) {
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

// checkpointer saves barriers as they become complete, and forces those that wait too long.
type checkpointer struct {
	tracker *tracker
	save    func(ctx context.Context, checkpoint []byte) error // nil: there is no election, nothing is saved
	lanes   []*lane
	log     *slog.Logger
	turn    backoff.Step

	every, age time.Duration
	max        int64 // Config.Private.MaxUnsaved

	want  atomic.Bool   // the reader shall take a barrier
	saved chan struct{} // capacity 1: savedTasks grew
	// savedTasks is the number of tasks before the last saved barrier.
	savedTasks atomic.Int64
	pending    *barrier // complete, not saved yet; used by run, and after it by flush
}

// run saves until over is closed. A save under way is waited for then: given up
// half-way, it could land after the final one.
func (c *checkpointer) run(ctx context.Context, over <-chan struct{}) error {
	tick := time.NewTicker(min(c.every, c.age)/2 + time.Nanosecond)
	defer tick.Stop()
	next := time.Now().Add(c.every)
	retry := time.Time{} // not before: after a failed save
	for {
		c.turn.Wait("checkpoint")
		select {
		case <-over: // and not now and then, whichever of two is seen first (P9)
			return nil
		default:
		}
		complete, oldest, newest, waiting := c.tracker.fetch()
		if complete != nil {
			c.pending = complete
		}
		now := time.Now()
		if c.pending != nil && !now.Before(retry) {
			if err := c.saveOnce(ctx); errors.Is(err, election.ErrDeposed) {
				return err
			} else if err != nil {
				c.log.Warn("the checkpoint could not be saved; trying again", "error", err)
				retry = now.Add(c.every)
			}
		}
		if oldest != nil {
			switch {
			case newest.tasks-c.savedTasks.Load() > c.max/2:
				c.force(newest)
			case time.Since(oldest.taken) >= c.age:
				c.force(oldest)
			}
		}
		if now = time.Now(); !now.Before(next) && waiting < maxBarriers {
			c.want.Store(true)
			next = now.Add(c.every)
		}
		select {
		case <-c.tracker.ready:
		case <-tick.C:
		case <-over: // looked at above
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *checkpointer) force(b *barrier) {
	for _, l := range c.lanes {
		l.forceBefore(b.number)
	}
}

func (c *checkpointer) saveOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backoff.RequestTimeout)
	defer cancel()
	if err := c.save(ctx, c.pending.at.Encode()); err != nil {
		return err
	}
	c.savedTasks.Store(c.pending.tasks)
	c.pending = nil
	backoff.Signal(c.saved)
	return nil
}

// flush saves, after run, the last barrier that became complete, or the final
// one if everything is acknowledged.
func (c *checkpointer) flush(ctx context.Context, final *barrier) error {
	if complete, _, _, _ := c.tracker.fetch(); complete != nil {
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
