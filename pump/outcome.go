package pump

import (
	"errors"
	"fmt"
	"time"
)

// Outcome is what a handler's error means for its task.
type Outcome string

// The outcomes.
const (
	OutcomeDone     Outcome = "done"
	OutcomeFailed   Outcome = "failed"   // an attempt is counted
	OutcomeRetry    Outcome = "retry"    // the same, and the handler says when to try again
	OutcomeBusy     Outcome = "busy"     // what the handler uses said "not now"
	OutcomeRejected Outcome = "rejected" // the task goes into quarantine
	OutcomeUntried  Outcome = "untried"  // the task is put back, and no attempt is counted
)

// TaskError is a handler's error that says the outcome of its task. [RetryAfter], [Reject],
// [Release] and [Busy] make one. A nil one, and one with another outcome, is a failure.
type TaskError struct {
	Outcome Outcome
	After   time.Duration // the task is not tried again earlier than this
	// Answer is the name of what said "not now", as metrics show it: "429". The outcome is then
	// OutcomeBusy only if half of the last tasks were told so too, and otherwise OutcomeFailed: the
	// answer concerned its task. Empty: the handler knows.
	Answer string
	Err    error // the cause; it may be nil
}

func (e *TaskError) Error() string {
	switch {
	case e == nil:
		return "a *pump.TaskError that is nil"
	case e.Err != nil:
		return e.Err.Error()
	case e.Outcome == OutcomeRetry:
		return fmt.Sprintf("retry after %v", e.After)
	case e.Outcome == OutcomeUntried:
		return "put back untried"
	case e.Outcome == OutcomeBusy:
		return `told "not now"`
	case e.Outcome == OutcomeDone:
		return "skipped"
	}
	return string(e.Outcome)
}

func (e *TaskError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// RetryAfter as a handler's error asks that the task be delivered again not before d from now, or
// RetryPolicy.Max if that is less, counting as an attempt. The cause may be nil.
func RetryAfter(d time.Duration, cause error) error {
	return &TaskError{Outcome: OutcomeRetry, After: max(d, 0), Err: cause}
}

// Reject as a handler's error says that the task will never succeed: it is
// quarantined at once, with the cause.
func Reject(cause error) error {
	return &TaskError{Outcome: OutcomeRejected, Err: cause}
}

// Release as a handler's error says that the task was not tried: it is put back at once and no
// attempt is counted. It is for trouble that is not the task's, such as a store that the handler
// cannot reach, when the processor stops. A processor that goes on gets the task again
// immediately, so there the handler should hold the task until it can be tried. The cause may be
// nil.
func Release(cause error) error {
	return &TaskError{Outcome: OutcomeUntried, Err: cause}
}

// Busy as a handler's error says that what it uses cannot take the task now: no attempt is counted.
// The task is delivered again after hint, or after a delay of its own that grows, if that is
// longer; but not later than after RetryPolicy.Max. It goes into quarantine when it has been told
// so for RetryPolicy.MaxBusy. While tasks are told so, the processor starts fewer of them. The
// cause may be nil.
func Busy(hint time.Duration, cause error) error {
	return &TaskError{Outcome: OutcomeBusy, After: max(hint, 0), Err: cause}
}

// OutcomeOf is what a handler's error means for its task, as a processor takes it, and the time or
// the hint that the handler gave with it.
func OutcomeOf(err error) (is Outcome, after time.Duration) {
	if err == nil {
		return OutcomeDone, 0
	}
	e, _ := errors.AsType[*TaskError](err)
	if e == nil {
		return OutcomeFailed, 0
	}
	switch e.Outcome {
	case OutcomeDone, OutcomeRejected:
		return e.Outcome, 0
	case OutcomeFailed, OutcomeRetry, OutcomeBusy, OutcomeUntried:
		return e.Outcome, max(e.After, 0)
	}
	return OutcomeFailed, 0
}
