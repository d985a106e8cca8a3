// This file tells how much time has passed on a machine that may have been
// suspended meanwhile.
//
// While a machine is suspended (a laptop's lid, a virtual machine that is paused or moved) the
// monotonic clock of some systems stands still, Linux among them, and only the wall clock has moved
// on when it wakes. Trust that was given for some seconds (P5.2, docs/protocols.md) must not last
// through that. So the longer of the two times counts. A wall clock that is set back changes
// nothing. A wall clock that is set forward by more than what is left of trust ends the trust,
// which costs as much as one late beat: the next beat brings trust back.

package waits

import "time"

// Clock compares the two clocks of this machine. The zero value is right; it may
// be used by many goroutines at once.
type Clock struct {
	// Ahead is how far the wall clock is ahead of itself at a time: in virtual time both clocks move
	// together, so tests of suspended machines say the difference here. nil: none.
	Ahead func(at time.Time) time.Duration
}

// Since is how much time has passed since t, which must come from time.Now in
// this process: the longer of what the two clocks say.
func (c Clock) Since(t time.Time) time.Duration { return time.Since(t) + c.Slept(t) }

// Slept is how long the monotonic clock has stood still since t, as far as the wall clock tells; 0
// if the wall clock was set back.
func (c Clock) Slept(t time.Time) time.Duration {
	now := time.Now()
	slept := now.Round(0).Sub(t.Round(0)) - now.Sub(t)
	if c.Ahead != nil {
		slept += c.Ahead(now) - c.Ahead(t)
	}
	return max(slept, 0)
}
