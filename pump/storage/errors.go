package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code says what a caller may conclude from a failure.
type Code uint8

// The codes. Which of them are worth a retry is the caller's decision; whether
// the request may have taken effect is [Error.Ambiguous].
const (
	// MaybeDone: a timeout, a broken connection, a 5xx or an answer that could
	// not be understood. The request may have taken effect, now or shortly.
	MaybeDone Code = iota
	// Throttled: the service said that it is too busy (503 ServerBusy, or 500
	// OperationTimedOut, which an overloaded partition also answers). Slow down.
	// Nothing guarantees that the request did not take effect.
	Throttled
	// Gone: the message (by that receipt), the row or the blob is not there.
	Gone
	// Missing: the queue, table or container itself is not there, is being deleted, or the account is
	// unknown or disabled. Stop using it and say so; a consumer never creates it.
	Missing
	// Precondition: the row's ETag is not the one given.
	Precondition
	// Exists: an insert found the row there.
	Exists
	// TooLarge: the text, property, row or batch is over a limit of the service.
	TooLarge
	// Auth: the credential is wrong, expired or does not allow this. A pause
	// and an alarm, never a reason to give up on a message.
	Auth
	// Invalid: the request is wrong and will be every time.
	Invalid
	// Canceled: the caller's context ended before the request was sent. The
	// request certainly had no effect. A context that ends later gives MaybeDone.
	Canceled
)

var codeNames = [...]string{
	"maybe-done", "throttled", "gone", "missing", "precondition", "exists", "too-large", "auth",
	"invalid", "canceled",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", c)
}

// Error is the failure of one request.
type Error struct {
	Code    Code
	Op      string // the request: "put", "get", "renew", "write", ...
	Account string
	Object  string // queue, table or container, and for rows the keys, for blobs the name
	// Status and Service are the HTTP status and the service's own error code,
	// zero and empty when no answer was understood.
	Status  int
	Service string
	// RetryAfter is the pause the service asked for, 0 if it did not.
	RetryAfter time.Duration
	// Index is the failed write of a transaction, -1 if not known or not one.
	Index int
	Err   error // the cause, without secrets; may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s: %s", e.Op, e.Account, e.Object, e.what())
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%s)", strings.TrimSpace(fmt.Sprint(e.Status, " ", e.Service)))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// what is the code in words for the reader of an error.
func (e *Error) what() string {
	switch {
	case e.Code == MaybeDone && e.Status == 0:
		return "no answer"
	case e.Code == MaybeDone:
		return "an answer that says nothing"
	case e.Code == Auth:
		return "access denied"
	}
	return e.Code.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Ambiguous reports whether the request may have taken effect although it failed.
func (e *Error) Ambiguous() bool { return e.Code == MaybeDone || e.Code == Throttled }

// NoAccount reports whether the account is disabled, unknown or not yet made, which says nothing of
// its queues and tables. Such an error is [Missing] as well.
func (e *Error) NoAccount() bool {
	return e.Code == Missing && strings.HasPrefix(e.Service, "Account")
}

// CodeOf gives the code of err. An error that is not an [*Error] is MaybeDone, because nothing is
// known of it. CodeOf must not be called with nil.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return MaybeDone
}

// Is reports whether err is a storage failure with the given code.
func Is(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// Ambiguous reports whether the request that failed with err may have taken effect. Ambiguous is
// false for nil.
func Ambiguous(err error) bool {
	if err == nil {
		return false
	}
	c := CodeOf(err)
	return c == MaybeDone || c == Throttled
}

// NotSent makes the error of a request that was never sent because the
// context had ended.
func NotSent(ctx context.Context, op, account, object string) *Error {
	return &Error{
		Code: Canceled, Op: op, Account: account, Object: object, Index: -1, Err: context.Cause(ctx),
	}
}
