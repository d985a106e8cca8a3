package pump

import "time"

// RetryPolicy says how often and when a task that failed is handled again.
// Zero fields take their defaults.
type RetryPolicy struct {
	// MaxAttempts is how often a task is handled before it is quarantined, attempts that asked for a
	// retry included. Default 8; negative: without limit.
	MaxAttempts int
	// Max bounds every delay before the next attempt. The delay after a failure is a random time from
	// 0 to Base, where Base doubles with each attempt up to Max. Default of Max 10 min; of Base 0: the
	// delay follows how long a task takes, as measured lately. Then a task waits for at least as long
	// as one takes (Max/2 at most), and up to 2 s or twice that, doubled with each attempt; only the
	// first delay of a task that takes less than half a second is 1 s at most.
	Base, Max time.Duration
	// MaxAge quarantines a task that fails, or is told "not now", when its message is older than that,
	// by the service's clock. Default 0: no limit.
	MaxAge time.Duration
	// MaxBusy quarantines a task that is told "not now" ([Busy]) so long after it was told so for the
	// first time. Default 24 h; negative: no limit.
	MaxBusy time.Duration
}
