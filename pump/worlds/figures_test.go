package worlds

import "time"

// These are the halves' own figures, which no caller can name. A world that meets another figure
// fails.
const (
	passMost           = 15 * time.Second
	authPatience       = 15 * time.Minute
	neverBegun         = "no later leader learned of it, so its own was probably lost before it began; no beat says that anything of it was sent"
	createSlow         = 2 * time.Second
	lastWords          = 5 * time.Second
	liveSealAge        = time.Second
	mostLease          = 5 * time.Minute
	leaveWithin        = 5 * time.Second
	suspectAfter       = 3
	pollIdleLeast      = 5 * time.Second
	pollIdleRate       = 10
	namesKept          = 15 * time.Minute
	putOffMost         = 5 * time.Minute
	namesWaited        = 5 * time.Minute
	poisonGroups       = 8
	livelyFor          = 15 * time.Second
	livelyMore         = 10
	runKnownFor        = 5 * time.Minute
	uncommittedPart    = 4
	defaultConcurrency = 256
	statePatience      = time.Hour
)

// idleBound is how long an idle queue is left alone at most, where so many pairs of a processor
// and a queue are.
func idleBound(pairs int) time.Duration {
	return max(pollIdleLeast, time.Duration(pairs)*time.Second/pollIdleRate)
}
