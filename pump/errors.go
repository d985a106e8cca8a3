package pump

import (
	"errors"
	"fmt"
)

// ErrNoWorkload is the answer to a name that no distributor has made a workload of.
var ErrNoWorkload = errors.New("the workload does not exist")

// ConfigError is a configuration that cannot be used.
type ConfigError struct {
	Field   string // as it stands in the configuration file, for example "accounts[1].queues"
	Problem string
	Fix     string
	Err     error // the cause, if another package found it
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Field, e.Problem, e.Fix) }

func (e *ConfigError) Unwrap() error { return e.Err }

// MismatchError says where a configuration disagrees with the row of a workload that exists.
type MismatchError struct {
	Workload string
	Field    string // as in the configuration: "segments", "delivery", "accounts"
	Problem  string
	Fix      string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("workload %q: %s: %s; %s", e.Workload, e.Field, e.Problem, e.Fix)
}

// Invalid is the error of a field, as it stands in the configuration file: what is wrong with it,
// and what to write instead.
func Invalid(field, problem, fix string) *ConfigError {
	return &ConfigError{Field: field, Problem: problem, Fix: fix}
}
<<<<<<< HEAD
=======

// RetryAfter as a handler's error asks that the task be delivered again not before d from now, or
// RetryPolicy.Max if that is less, counting as an attempt. The cause may be nil.
func RetryAfter(d time.Duration, cause error) error {
	return &outcome.Wish{After: max(d, 0), Err: cause}
}

// Reject as a handler's error says that the task will never succeed: it is
// quarantined at once, with the cause.
func Reject(cause error) error {
	return &outcome.Wish{Reject: true, Err: cause}
}

// Release as a handler's error says that the task was not tried: it is put back at once and no
// attempt is counted. It is for trouble that is not the task's, such as a store that the handler
// cannot reach, when the processor stops. A processor that goes on gets the task again
// immediately, so there the handler should hold the task until it can be tried. The cause may be
// nil.
func Release(cause error) error {
	return &outcome.Wish{Release: true, Err: cause}
}

// Busy as a handler's error says that what it uses cannot take the task now: no attempt is counted.
// The task is delivered again after hint, or after a delay of its own that grows, if that is
// longer; but not later than after RetryPolicy.Max. It goes into quarantine when it has been told
// so for RetryPolicy.MaxBusy. While tasks are told so, the processor starts fewer of them. The
// cause may be nil.
func Busy(hint time.Duration, cause error) error {
	return &outcome.Wish{Busy: true, After: max(hint, 0), Err: cause}
}

// OutcomeOf is what a handler's error means for its task, as a processor takes it: "done" if it is
// nil; "retry", with the time asked for; "busy", with its hint; "rejected"; "untried" if it was
// released; else "failed".
func OutcomeOf(err error) (outcomeWord string, after time.Duration) {
	wish, ok := outcome.Of(err)
	if answer, is := errors.AsType[outcome.Answer](err); is {
		if cause, hint := answer.NotNow(); cause != "" {
			return "busy", hint
		}
	}
	switch {
	case err == nil, ok && wish.Skip:
		return "done", 0
	case !ok:
		return "failed", 0
	case wish.Reject:
		return "rejected", 0
	case wish.Release:
		return "untried", 0
	case wish.Busy:
		return "busy", wish.After
	}
	return "retry", wish.After
}
>>>>>>> house
