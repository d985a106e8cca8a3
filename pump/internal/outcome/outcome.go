// Package outcome has the errors by which the halves of the pump and their callers understand each
// other: what a handler's error asks for its task, and that a process was told to stop.
package outcome

import (
	"errors"
	"fmt"
	"time"
)

// ErrHalted is the cause with which a process that is told to stop ends what it reads.
var ErrHalted = errors.New("the distributor was told to stop")

// Wish is a handler's wish for one task, carried as an error.
type Wish struct {
	After   time.Duration // of a retry, and of a release that is not to come back at once
	Reject  bool
	Release bool
	Skip    bool // it is settled without having been done
	Busy    bool // what the handler uses said "not now"; After is its hint
	Err     error
}

func (o *Wish) Error() string {
	switch {
	case o.Err != nil:
		return o.Err.Error()
	case o.Reject:
		return "rejected"
	case o.Release:
		return "put back untried"
	case o.Skip:
		return "skipped"
	case o.Busy:
		return "told \"not now\""
	default:
		return fmt.Sprintf("retry after %v", o.After)
	}
}

func (o *Wish) Unwrap() error { return o.Err }

// Answer is a handler's error that may say "not now" of what the handler asked, or only of its
// task: the processor tells them apart by what other tasks were told.
type Answer interface {
	error
	// NotNow is what such an answer is called in metrics, such as "429"; empty: it is a failure of its
	// task. The task is not tried again before the hint.
	NotNow() (cause string, hint time.Duration)
}

// Ended is a handler's error that says that the process which had this task alone, and no other,
// has ended with it.
type Ended interface {
	error
	Ended()
}

// Of finds what a handler asked for in the error it returned.
func Of(err error) (o *Wish, ok bool) {
	return errors.AsType[*Wish](err)
}
