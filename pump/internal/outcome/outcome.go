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
	default:
		return fmt.Sprintf("retry after %v", o.After)
	}
}

func (o *Wish) Unwrap() error { return o.Err }

// Of finds what a handler asked for in the error it returned.
func Of(err error) (o *Wish, ok bool) {
	return errors.AsType[*Wish](err)
}
