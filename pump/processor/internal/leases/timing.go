package leases

import (
	"errors"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// ErrEnded says that the receipt of a message is dead.
var ErrEnded = errors.New("the message's lease has ended; it will be delivered again")

// The terms on which messages are taken and put back, if the user fixes none (origins W5: the
// worker keeps metrics of its own past).
const (
	// FirstLease is asked for before anything was measured.
	FirstLease = time.Minute
	// Leases follow the work between these. Under half a minute a lost renewal leaves no time for
	// another, and a delete that is throttled once loses its message. Above five minutes a renewal
	// costs next to nothing, while the tasks of a process that died wait longer by each minute.
	LeastLease = 30 * time.Second
	MostLease  = 5 * time.Minute
	// A message that is settled before its first renewal does not need one, and that is due after four
	// to five fifteenths of the lease (Keeper.interval). So a lease is 15/4 of what the slowest
	// messages except leaseBeyond take.
	LeasePart   = 15
	LeaseOf     = 4
	leaseBeyond = 0.05

	// firstRetry bounds the first delay of a task that takes less than a second: what fails quickly
	// may be tried again quickly, once. The delays of later retries grow from secondRetry: the eight
	// attempts even of quick tasks last for about two minutes, or a store that is away for one minute
	// would put them all into quarantine.
	firstRetry  = time.Second
	secondRetry = 2 * time.Second
)

// Timing are how long leases are and how soon failed tasks are tried again.
type Timing struct {
	visibility time.Duration                    // of every lease; 0: it follows the work
	retry      atomic.Pointer[pump.RetryPolicy] // Base 0: it follows the work

	mu    sync.Mutex // guards what follows
	held  Spans      // messages, from the get that brought them until they were settled
	tasks Spans      // tasks, or batches, in the handler
}

// NewTiming makes the terms of a processor; what is zero follows the work.
func NewTiming(visibility time.Duration, retry pump.RetryPolicy) *Timing {
	t := &Timing{visibility: visibility}
	t.retry.Store(&retry)
	return t
}

// Retry says how often and when failed tasks are tried again; SetRetry changes it.
func (t *Timing) Retry() *pump.RetryPolicy { return t.retry.Load() }

// SetRetry is for an operator's change while the processor runs.
func (t *Timing) SetRetry(p pump.RetryPolicy) { t.retry.Store(&p) }

// Settled notes that a message whose tasks were handled was in hand for so long.
func (t *Timing) Settled(held time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held.Add(held, time.Now())
}

// Handled notes that a handler was at work for so long until now.
func (t *Timing) Handled(took time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks.Add(took, now)
}

// Lease is for how long a message that is got now should be hidden, in whole seconds.
func (t *Timing) Lease() time.Duration {
	if t.visibility > 0 {
		return t.visibility
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.held.quantile(1 - leaseBeyond)
	if held == 0 {
		return FirstLease
	}
	return leaseFor(held)
}

// Longer is how long a message should stay hidden after such a lease, if its tasks have been worked
// on for held: as if held were half of the work. So renewals get rarer while a task lasts, before
// one of its kind has ended, and the delay by a crash stays in proportion to the work that the
// crash undoes.
func (t *Timing) Longer(lease, held time.Duration) time.Duration {
	if t.visibility > 0 {
		return lease
	}
	return max(lease, leaseFor(held))
}

// leaseFor is the shortest lease that needs no renewal if a message is held for so long.
func leaseFor(held time.Duration) time.Duration {
	lease := min(held, MostLease) * LeasePart / LeaseOf
	lease = InWholeSeconds(lease) // the service's unit
	return min(max(lease, LeastLease), MostLease)
}

// Task is how long a task usually takes, 0 if none has ended.
func (t *Timing) Task() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tasks.quantile(0.5)
}

// Backoff bounds the delay before a task is tried again after n earlier attempts. The delay is
// drawn from in between.
func (t *Timing) Backoff(n uint64) (least, most time.Duration) {
	policy := t.Retry()
	if base := policy.Base; base > 0 {
		return 0, waits.Doubled(base, policy.Max, n)
	}
	took := t.Task()
	least = min(took, policy.Max/2)
	if n == 0 && took < firstRetry/2 {
		return least, min(firstRetry, policy.Max)
	}
	return least, waits.Doubled(max(secondRetry, 2*took), policy.Max, n)
}

// Spans is how durations are distributed, of late: a histogram whose counts fade away. Its buckets
// are a quarter of a power of two wide, so that leases change seldom, and by a fifth. Counts are
// only added to, and fade by the time that has passed: the order in which things end in one instant
// does not change the result (P9).
type Spans struct {
	counts [4 * 64]float64
	total  float64
	faded  time.Time
}

// fadeEvery is how often counts are made smaller, at most.
const fadeEvery = time.Second

// Add counts a duration that has ended now.
func (s *Spans) Add(d time.Duration, now time.Time) {
	if passed := now.Sub(s.faded); passed >= fadeEvery {
		s.fade(passed)
		s.faded = now
	}
	s.counts[SpanBucket(d)]++
	s.total++
}

// fade forgets half of the counts in a minute, or in eight times the longest duration if that is
// longer: few durations of minutes end in a minute.
func (s *Spans) fade(passed time.Duration) {
	if s.total == 0 {
		return
	}
	half := max(time.Minute, 8*s.quantile(1-leaseBeyond))
	keep := math.Exp2(-float64(passed) / float64(half))
	s.total = 0
	for i := range s.counts {
		s.counts[i] *= keep
		if s.counts[i] < 1e-6 {
			s.counts[i] = 0
		}
		s.total += s.counts[i]
	}
}

// quantile is what the given part of all take at most, 0 if nothing is known.
func (s *Spans) quantile(part float64) time.Duration {
	if s.total == 0 {
		return 0
	}
	sum := 0.0
	for i, n := range s.counts {
		if sum += n; n > 0 && sum >= part*s.total {
			return SpanOf(i)
		}
	}
	return 0
}

// SpanBucket is the bucket of a duration: its power of two and its next two bits.
func SpanBucket(d time.Duration) int {
	n := uint64(max(d, 4))
	power := bits.Len64(n) - 1
	return 4*power + int(n>>(power-2)&3)
}

// SpanOf is the longest duration in a bucket.
func SpanOf(bucket int) time.Duration {
	power := bucket / 4
	return time.Duration(uint64(4+bucket%4+1)<<(power-2) - 1)
}

// InWholeSeconds rounds a delay up to the service's unit: the service hides a message for whole
// seconds.
func InWholeSeconds(delay time.Duration) time.Duration {
	return (delay + time.Second - 1).Truncate(time.Second)
}
