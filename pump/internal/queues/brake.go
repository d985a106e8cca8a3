package queues

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Brake is a budget without a stated limit: refusals of tasks show the limit (P8.4). The brake is
// off until Refused puts it on at the rate that was let through. It then goes down as a Budget
// does. It grows by climb of itself and of evenBrake a second, faster the longer nothing is
// refused. It is off again when it holds nothing back any more.
type Brake struct {
	most   float64      // tasks a second above which it may be off
	done   func() int64 // how many tasks were let through so far
	budget *Budget

	on atomic.Bool // changes with mu held

	mu    sync.Mutex // guards what follows
	cut   brakeMark  // the last cut
	rate  float64    // after it
	marks [2]brakeMark
}

// brakeMark is how many tasks were let through until a time.
type brakeMark struct {
	at   time.Time
	done int64
}

const (
	// leastBrake is the least that it is cut to. With its growth in between that is about a task a
	// second while all are refused, so an endpoint that is back is noticed.
	leastBrake = 0.2
	// evenBrake is the least that a brake begins with, in tasks a second. It also grows by climb of
	// evenBrake, so a process that is far behind others gains on them.
	evenBrake = 3
	// calmBrake is after how long without a refusal a brake is taken off.
	calmBrake = 10 * time.Second
)

// NewBrake makes a brake that is off.
func NewBrake(most float64, done func() int64) *Brake {
	now := brakeMark{at: time.Now()}
	return &Brake{
		most: most, done: done, budget: NewWithBurst(most, 1), marks: [2]brakeMark{now, now},
	}
}

// Refused says that a task that started at began was refused, and reports whether that has put the
// brake on. Begin is whether it may.
func (b *Brake) Refused(began time.Time, begin bool) (begun bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := brakeMark{time.Now(), b.done()}
	since := now.at.Sub(b.cut.at)
	switch {
	case !b.on.Load() && !begin:
		return false
	case !b.on.Load():
		begun = true
		b.rate = max(laterCut*b.passed(now), evenBrake)
	case began.Before(b.cut.at), since < CutEvery: // the cut has not been felt yet
		return false
	default:
		before := b.rateAt(now.at)
		b.rate = firstCut * before
		if since < cutWindow {
			passed := float64(now.done-b.cut.done) / since.Seconds()
			b.rate = max(laterCut*min(before, passed), deepestCut*before)
		}
	}
	b.rate = max(b.rate, leastBrake)
	b.cut = now
	b.budget.SetTarget(b.rate)
	b.on.Store(true)
	return begun
}

// passed is how many tasks a second were let through in the last second or two.
func (b *Brake) passed(now brakeMark) float64 {
	from := b.marks[0]
	return float64(now.done-from.done) / max(now.at.Sub(from.at), time.Second).Seconds()
}

func (b *Brake) rateAt(now time.Time) float64 {
	since := now.Sub(b.cut.at)
	grown := climb * since.Seconds() * (1 + since.Seconds()/(2*climbDoubling.Seconds()))
	return (b.rate+evenBrake)*math.Exp(min(grown, 100)) - evenBrake
}

// Grow is called about once a second. It reports whether it has taken the brake off.
func (b *Brake) Grow(at time.Time) (off bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := brakeMark{at, b.done()}
	passed := b.passed(now)
	b.marks[0], b.marks[1] = b.marks[1], now
	if !b.on.Load() {
		return false
	}
	rate := b.rateAt(at)
	if at.Sub(b.cut.at) >= calmBrake && rate >= max(b.most, 2*passed) {
		b.on.Store(false)
		b.budget.SetTarget(math.MaxInt32) // all that wait may go
		return true
	}
	b.budget.SetTarget(rate)
	return false
}

// Rate is how many tasks a second may be started now; 0: as many as there are.
func (b *Brake) Rate() float64 {
	if !b.on.Load() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rateAt(time.Now())
}

// Spend waits until so many tasks may be started, or the context ends.
func (b *Brake) Spend(ctx context.Context, tasks int) error {
	if !b.on.Load() {
		return nil
	}
	return b.budget.Spend(ctx, ClassGet, tasks)
}
