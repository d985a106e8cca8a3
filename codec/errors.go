package codec

import (
	"errors"
	"fmt"
)

// What can be wrong with a message or a task. Every error of this package
// wraps one of these with the detail; test with [errors.Is]. The difference
// decides what a processor does: a foreign text is a task, a newer version is
// released until a processor understands it, everything else about a text
// is quarantined with its cause and never retried, because the same bytes will
// fail the same way.
var (
	// ErrForeign: the text is not an envelope of ours.
	ErrForeign = errors.New("codec: not an envelope")
	// ErrTruncated: the text is the beginning of an envelope.
	ErrTruncated = errors.New("codec: envelope truncated")
	// ErrCorrupt: the text is an envelope, and some of its bytes have changed.
	ErrCorrupt = errors.New("codec: envelope corrupt")
	// ErrVersion: the envelope is intact and of a newer format than [Version].
	ErrVersion = errors.New("codec: envelope of a newer version")
	// ErrBomb: the envelope declares or unpacks to more than the limits allow.
	ErrBomb = errors.New("codec: envelope exceeds the unpacking limits")
	// ErrTaskTooLarge: the task would not fit even into an empty envelope.
	ErrTaskTooLarge = errors.New("codec: task too large for a message")
	// ErrTooLarge: a changed header would push the text over 64 KiB.
	ErrTooLarge = errors.New("codec: envelope would exceed 64 KiB")
)

func truncated(format string, args ...any) error { return wrap(ErrTruncated, format, args...) }
func corrupt(format string, args ...any) error   { return wrap(ErrCorrupt, format, args...) }
func bomb(format string, args ...any) error      { return wrap(ErrBomb, format, args...) }

func wrap(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
}
