package pump

import "time"

// bucket is what has been granted of a rate and not been spent, up to a burst, or has been
// spent and not been granted yet. Other than a rate.Limiter it takes back what turned
// out not to be needed, and a cost above the burst leaves a debt instead of counting less
// than it is. It is guarded by the budget's mutex.
type bucket struct {
	rate   float64 // a second
	burst  float64
	tokens float64 // at the time of; below zero: owed
	at     time.Time
}

func (b *bucket) fill(now time.Time) {
	b.tokens = min(b.tokens+b.rate*now.Sub(b.at).Seconds(), b.burst)
	b.at = now
}

// set gives the bucket another rate and burst from now on.
func (b *bucket) set(now time.Time, rate, burst float64) {
	b.fill(now)
	b.rate, b.burst = rate, burst
	b.tokens = min(b.tokens, burst)
}

// take spends cost if it is there, or if the bucket is full.
func (b *bucket) take(now time.Time, cost float64) bool {
	b.fill(now)
	if b.tokens < min(cost, b.burst) {
		return false
	}
	b.tokens -= cost
	return true
}

// owe spends cost whatever is there; a negative one is given back.
func (b *bucket) owe(now time.Time, cost float64) {
	b.fill(now)
	b.tokens = min(b.tokens-cost, b.burst)
}

// wait is how long it will be until take succeeds, if nobody spends meanwhile.
func (b *bucket) wait(now time.Time, cost float64) time.Duration {
	b.fill(now)
	missing := min(cost, b.burst) - b.tokens
	return time.Duration(max(missing, 0)/b.rate*float64(time.Second)) + 1 // rounded up, or the last nanosecond comes again and again
}
