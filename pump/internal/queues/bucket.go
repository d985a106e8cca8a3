package queues

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// bucket is the limiter of a budget: what a rate has granted and is not spent, up to a burst, or
// what is spent and not granted yet. It does two things that a limiter leaves to its callers. A
// cost above the burst is paid when the bucket is full and leaves a debt; a limiter would refuse
// it. And the bucket takes back what turned out not to be needed. CancelAt cannot do that, because
// it takes back nothing once the time to act has come, and here the answer comes later; a negative
// reservation can (golang/go#54082; TestWhatIsGivenBackIsThereAgain holds it). The budget's mutex
// keeps calls that belong together apart from others.
type bucket struct {
	*rate.Limiter
	Burst int // the limiter's, without its lock
}

// newBucket is full.
func newBucket(perSecond float64, burst int) bucket {
	return bucket{rate.NewLimiter(rate.Limit(perSecond), burst), burst}
}

// set gives the bucket another rate and burst from now on.
func (b *bucket) set(now time.Time, perSecond float64, burst int) {
	b.SetLimitAt(now, rate.Limit(perSecond))
	b.SetBurstAt(now, burst)
	b.Burst = burst
}

// take spends cost if it is there, or if the bucket is full.
func (b *bucket) take(now time.Time, cost int) bool {
	atOnce := min(cost, b.Burst)
	if !b.AllowN(now, atOnce) {
		return false
	}
	b.Owe(now, cost-atOnce)
	return true
}

// Owe spends cost even without tokens; a negative cost is given back.
func (b *bucket) Owe(now time.Time, cost int) {
	for cost != 0 {
		part := min(cost, b.Burst)
		b.ReserveN(now, part)
		cost -= part
	}
}

// wait is how long it will be until take succeeds, if nothing is spent meanwhile.
func (b *bucket) wait(now time.Time, cost int) time.Duration {
	r := b.ReserveN(now, min(cost, b.Burst))
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// burstOf is 50 ms' worth of a share: enough to hide timer granularity, too little
// to overrun a server's own bucket. A get of 32 may cost more than that: it is paid when
// the bucket is full, and leaves a debt, as at the server.
func burstOf(target float64, least int) int { return max(int(math.Floor(target/20)), least) }

const leastBurst = 8
