package queues

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Class orders the requests that wait for one budget (P8.1): those that end work come before those
// that keep it, and both before those that bring new work. Otherwise gets eat the budget that
// deletes need, and every lease runs out (window 27).
type Class uint8

// The classes, the first that is served first.
const (
	ClassSettle Class = iota
	ClassRenew
	ClassPut
	ClassGet
	classes
)

// The back-off of a throttled budget. A throttle cuts the rate, but at most once per CutEvery,
// because a burst of answers to requests sent together is one piece of news. A first cut leaves
// firstCut of the rate, for a limit that was only just reached. When throttles go on within
// cutWindow of a cut, the next cut goes a little below what the service has let through since, but
// to deepestCut of the rate at least, because requests under way are not counted yet. Afterwards
// the rate grows by climb of the target a second. So if others use a part of a limit, the rate
// finds what they leave within a second and swings between 0.9 and 1 of it. (Cuts to 0.7, one after
// another, made that 82 % on average.) 2 % a second find it again every few seconds, with a refusal
// or two each time (0.04 % of requests; a steeper climb finds it more often). The longer the
// service refuses nothing, the quicker the rate grows, in each climbDoubling by as much more. It
// reaches the target within 8 s of a limit that was a third lower for a while, and in 18 s from
// next to nothing.
const (
	firstCut      = 0.9
	laterCut      = 0.95
	deepestCut    = 0.5
	cutWindow     = time.Second
	CutEvery      = 250 * time.Millisecond
	climb         = 0.02
	climbDoubling = 10 * time.Second
	leastRate     = 0.01 // of the target: never silent, or recovery would not be noticed
)

// Budget is the rate at which this process may spend on one account or queue:
// its target, the share of a limit that all processes keep together
// (share.go), lowered while the service throttles. It may be used from many
// goroutines at once.
type Budget struct {
	Limit      float64 // of all processes together; it changes with mu held (SetLimit)
	leastBurst int

	mu     sync.Mutex // guards what follows; never held across a wait
	target float64    // this process's share of the limit
	Bucket bucket
	cutAt  time.Time // of the last cut; zero while the rate is at its target
	cutTo  float64
	// Since the last cut; at the service's limit each request that is refused costs nothing.
	spent, refused float64
	waiting        [classes][]*waiter
	timer          *time.Timer
	use            use
}

// waiter is one waiting call.
type waiter struct {
	cost    int
	granted chan struct{} // closed under the budget's mutex
}

// NewBudget makes a budget of limit messages a second, all of it this process's
// own until SetTarget says otherwise.
func NewBudget(limit float64) *Budget { return NewWithBurst(limit, leastBurst) }

// NewWithBurst makes a budget whose bursts are never less than that.
func NewWithBurst(limit float64, leastBurst int) *Budget {
	return &Budget{
		Limit: limit, target: limit, leastBurst: leastBurst,
		Bucket: newBucket(limit, burstOf(limit, leastBurst)),
		use:    use{since: time.Now()},
	}
}

// SetTarget gives the process another share of the limit. A rate that is cut
// stays cut in proportion: what the throttles said of the limit holds for each share of
// it.
func (b *Budget) SetTarget(target float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setTarget(target)
}

// SetLimit changes the limit of all processes together. The share of this process changes in
// proportion, until SetTarget says what it is.
func (b *Budget) SetLimit(limit float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	target := b.target * limit / b.Limit
	b.Limit = limit
	b.setTarget(target)
}

// setTarget is called with the lock held.
func (b *Budget) setTarget(target float64) {
	if target == b.target {
		return
	}
	now := time.Now()
	b.cutTo *= target / b.target
	b.target = target
	b.Bucket.set(now, b.rateAt(now), burstOf(target, b.leastBurst))
	b.grant() // waiting requests may have to wait less long, or longer
}

// TrySpend spends cost if that needs no waiting.
func (b *Budget) TrySpend(c Class, cost int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spendNow(c, cost)
}

// spendNow spends cost if it is there and no request goes before. The lock is held.
func (b *Budget) spendNow(c Class, cost int) bool { return !b.anyWaiting(c) && b.takeTokens(cost) }

// Spend waits until cost may be spent, or the context ends.
func (b *Budget) Spend(ctx context.Context, c Class, cost int) error {
	b.mu.Lock()
	if b.spendNow(c, cost) {
		b.mu.Unlock()
		return nil
	}
	s := &waiter{cost: cost, granted: make(chan struct{})}
	b.use.beginWait(time.Now())
	b.waiting[c] = append(b.waiting[c], s)
	b.schedule()
	b.mu.Unlock()

	select {
	case <-s.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-s.granted: // granted in the same instant: it is spent, so use it
		return nil
	default:
	}
	for i, w := range b.waiting[c] {
		if w == s {
			b.waiting[c] = append(b.waiting[c][:i], b.waiting[c][i+1:]...)
			break
		}
	}
	b.grant()
	return context.Cause(ctx)
}

// Charge spends, without waiting, what turned out to be due after the fact; the next requests wait
// for it. A negative cost gives back what was paid and is not due.
func (b *Budget) Charge(cost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use.spent += float64(cost)
	b.spent += float64(cost)
	b.Bucket.Owe(time.Now(), cost)
	if cost < 0 {
		b.grant()
	}
}

// Throttled lowers the rate: multiplicative decrease, additive increase.
func (b *Budget) Throttled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	before := b.rateAt(now)
	to := before * firstCut
	if !b.cutAt.IsZero() {
		since := now.Sub(b.cutAt)
		b.refused++
		if since < CutEvery {
			return
		}
		if since < cutWindow {
			passed := (b.spent - b.refused) / since.Seconds()
			to = max(laterCut*min(before, passed), deepestCut*before)
		}
	}
	b.cutTo = max(to, b.target*leastRate)
	b.cutAt, b.spent, b.refused = now, 0, 0
	b.Bucket.SetLimitAt(now, rate.Limit(b.cutTo))
}

// Rate is what may be spent a second now.
func (b *Budget) Rate() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rateAt(time.Now())
}

func (b *Budget) rateAt(now time.Time) float64 {
	if b.cutAt.IsZero() {
		return b.target
	}
	since := now.Sub(b.cutAt)
	return min(b.target,
		b.cutTo+b.target*climb*since.Seconds()*(1+since.Seconds()/climbDoubling.Seconds()))
}

// anyWaiting reports whether a waiting request goes before a new one of class c.
func (b *Budget) anyWaiting(c Class) bool {
	for w := range c + 1 {
		if len(b.waiting[w]) > 0 {
			return true
		}
	}
	return false
}

// takeTokens spends cost if the tokens are there, after raising the rate as is due by now.
func (b *Budget) takeTokens(cost int) bool {
	now := time.Now()
	if !b.cutAt.IsZero() {
		r := b.rateAt(now)
		b.Bucket.SetLimitAt(now, rate.Limit(r))
		if r >= b.target {
			b.cutAt = time.Time{}
		}
	}
	if !b.Bucket.take(now, cost) {
		return false
	}
	b.use.spent += float64(cost)
	b.spent += float64(cost)
	return true
}

// grant lets requests go that can be paid for, in the order of their classes.
func (b *Budget) grant() {
	for c := range b.waiting {
		for len(b.waiting[c]) > 0 {
			if !b.takeTokens(b.waiting[c][0].cost) {
				b.schedule()
				return
			}
			close(b.waiting[c][0].granted)
			b.waiting[c] = b.waiting[c][1:]
		}
		b.waiting[c] = nil // lets go of the backing array after a storm
	}
	b.use.endWait(time.Now())
}

// schedule arms the timer for when the first in order can be paid for.
func (b *Budget) schedule() {
	for c := range b.waiting {
		if len(b.waiting[c]) == 0 {
			continue
		}
		wait := max(b.Bucket.wait(time.Now(), b.waiting[c][0].cost), 50*time.Microsecond)
		if b.timer == nil {
			b.timer = time.AfterFunc(wait, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.grant()
			})
		} else {
			b.timer.Reset(wait)
		}
		return
	}
}

// TasksShare is what the demand for tasks is called among those for accounts, in the beats.
// No account has that name (storage accounts are letters and digits).
const TasksShare = "(tasks)"

// At is the rate a second at a moment, and the target that it grows to.
func (b *Budget) At(now time.Time) (rate, target float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rateAt(now), b.target
}
