package pump

import (
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/outcome"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// ErrNoWorkload is the answer to a name that no distributor has made a workload of.
var ErrNoWorkload = workload.ErrNoWorkload

// MismatchError is a configuration that says something else than what the workload has pinned.
type MismatchError = workload.MismatchError

// ConfigError is a configuration that cannot be used.
type ConfigError struct {
	Field   string // as it stands in the configuration file, for example "accounts[1].queues"
	Problem string
	Fix     string
	Err     error // the cause, if another package found it
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Field, e.Problem, e.Fix) }

func (e *ConfigError) Unwrap() error { return e.Err }

// RetryAfter as a handler's error asks that the task be delivered again not before d from now (0 to
// 7 days; more is cut to that), counting as an attempt. The cause may be nil.
func RetryAfter(d time.Duration, cause error) error {
	return &outcome.Wish{After: max(d, 0), Err: cause}
}

// Reject as a handler's error says that the task will never succeed: it is
// quarantined at once, with the cause.
func Reject(cause error) error {
	return &outcome.Wish{Reject: true, Err: cause}
}

// Release as a handler's error says that the task was not tried: it is put back
// at once and no attempt is counted. It is for what is no fault of the task, such as
// a store that the handler cannot reach, at the end of a processor: one that goes on gets
// the task again immediately, and should rather hold it until it can be tried. The
// cause may be nil.
func Release(cause error) error {
	return &outcome.Wish{Release: true, Err: cause}
}

// OutcomeOf is what a handler's error means for its task, as a processor takes it: "done" if it is
// nil; "retry", with the time asked for; "rejected"; "untried" if it was released; else "failed".
func OutcomeOf(err error) (outcomeWord string, after time.Duration) {
	wish, ok := outcome.Of(err)
	switch {
	case err == nil, ok && wish.Skip:
		return "done", 0
	case !ok:
		return "failed", 0
	case wish.Reject:
		return "rejected", 0
	case wish.Release:
		return "untried", 0
	}
	return "retry", wish.After
}
