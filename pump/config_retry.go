package pump

import (
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// RetryPolicy says how often and when a task that failed is handled again.
// Zero fields take their defaults.
type RetryPolicy struct {
	// MaxAttempts is how often a task is handled before it is quarantined, those
	// that asked for a retry included. Default 8; negative: without limit.
	MaxAttempts int
	// Base and Max bound the delay before the next attempt: a random time from 0
	// to Base, which doubles with each attempt up to Max. Default of Max 10 min; of
	// Base 0: it follows how long a task takes, as measured lately. Then a task waits for at
	// least as long as one takes (Max/2 at most), and up to 2 s or twice that, doubled with each
	// attempt; only the first delay of a task that takes less than half a second is 1 s at most.
	Base, Max time.Duration
	// MaxAge quarantines a task that fails when its message is older than that,
	// by the service's clock. Default 0: no limit.
	MaxAge time.Duration
}

func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 8
	}
	if p.Max == 0 {
		p.Max = max(10*time.Minute, p.Base)
	}
	switch {
	case p.Base < 0 || p.Base > storage.MaxVisibility:
		return p, &ConfigError{Field: "retry.base", Problem: p.Base.String() + " is out of range", Fix: "use up to 168h, or leave it out for one that follows how long tasks take"}
	case p.Max < p.Base || p.Max > storage.MaxVisibility:
		return p, &ConfigError{Field: "retry.max", Problem: p.Max.String() + " is out of range", Fix: "use at least retry.base and at most 168h"}
	case p.MaxAge < 0:
		return p, &ConfigError{Field: "retry.maxAge", Problem: p.MaxAge.String() + " is negative", Fix: "use 0 for no limit"}
	}
	return p, nil
}
