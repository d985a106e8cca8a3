// Package outcome has what a handler's error can ask for its task: the public errors of package
// pump carry it, and a processor reads it.
package outcome

import (
	"errors"
	"fmt"
	"time"
)

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
