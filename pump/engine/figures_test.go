package engine

import "time"

// What the worlds know of the halves' own figures, which no caller can name. A world that meets another
// figure fails.
const (
	knownPassMost           = 15 * time.Second
	knownAuthPatience       = 15 * time.Minute
	knownNeverBegun         = "its leader was lost before the run began; nothing of it was sent"
	knownCreateSlow         = 2 * time.Second
	knownLastWords          = 5 * time.Second
	knownLiveSealAge        = time.Second
	knownMostLease          = 5 * time.Minute
	knownLeaveWithin        = 5 * time.Second
	knownSuspectAfter       = 3
	knownPollIdleLeast      = 5 * time.Second
	knownPollIdleRate       = 10
	knownNamesKept          = 15 * time.Minute
	knownNamesWaited        = 5 * time.Minute
	knownPoisonGroups       = 8
	knownLivelyFor          = 15 * time.Second
	knownLivelyMore         = 10
	knownRunKnownFor        = 5 * time.Minute
	knownUncommittedPart    = 4
	knownDefaultConcurrency = 256
	knownStatePatience      = time.Hour
)

// knownIdleBound is how long an idle queue is left alone at most, where so many pairs of a processor
// and a queue are.
func knownIdleBound(pairs int) time.Duration {
	return max(knownPollIdleLeast, time.Duration(pairs)*time.Second/knownPollIdleRate)
}
