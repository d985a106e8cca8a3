package source

import (
	"context"
	"log/slog"
)

// Fixer is a source whose input is looked up once for a distribution: what was fingerprinted is
// what is read, even if files come and go meanwhile. The log is told of what hangs.
type Fixer interface {
	Fix(ctx context.Context, log *slog.Logger) (Source, error)
}

// Checked is a source that can say whether it is valid before anything is made.
type Checked interface {
	Check() error
}

// Looker is a reader that can be tried without waiting for input that may never come.
type Looker interface {
	// Look does what can fail at once. It reports whether the first record can be read
	// without waiting.
	Look(ctx context.Context) (ready bool, err error)
}

// Pausing is a reader that says when it is about to read more: until then its records come without
// waiting.
type Pausing interface {
	// Pauses makes it call about before it reads, with true if that may take any time, and now and
	// then while it does.
	// An error of about becomes the reader's.
	Pauses(about func(wait bool) error)
}

// Placed is a reader that names the place of the record that it gave last.
type Placed interface {
	Where() string
}

// Lasting is a reader that was read to its end and can say whether that was all.
type Lasting interface {
	// Unchanged is an error if the source is not what was read.
	Unchanged() error
}
