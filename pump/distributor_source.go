package pump

import (
	"context"
	"fmt"
)

// Source is what a distribution reads: a stream of records in a fixed order.
type Source interface {
	// Fingerprint identifies what will be read and how, so that a run is only
	// continued on the same input (P2.3). It changes when the input does. An
	// empty fingerprint says that the source cannot be read again: a run over
	// it is not resumed (P2.4).
	Fingerprint(ctx context.Context) (string, error)
	// Open begins to read after the given cursor, nil for the beginning.
	Open(ctx context.Context, cursor []byte) (Reader, error)
}

// Reader reads one source once. It is used by one goroutine.
type Reader interface {
	// Next gives the next record, whose bytes are valid until the call after.
	// io.EOF is the end. After a [*BadInput] the reader goes on behind the bad
	// record; any other error ends the reading.
	Next(ctx context.Context) (Record, error)
	// AppendCursor appends the position behind the record or bad record that
	// Next gave last. It is at most 2 KiB long.
	AppendCursor(dst []byte) []byte
	// Progress is how much has been read of how much, in the source's own unit
	// (bytes or files); total is 0 if it is not known.
	Progress() (done, total int64)
	Close() error
}

// Record is one task as a source gives it.
type Record struct {
	Key  []byte // what the task is segmented by; may be empty
	ID   string // the user's own name of the task; may be empty
	Body []byte
}

// BadInput is a record that cannot become a task.
type BadInput struct {
	Where string // file and line, for example "tasks.jsonl:17"
	Raw   []byte // what was read, at most MaxText bytes of it
	Err   error
}

func (e *BadInput) Error() string { return fmt.Sprintf("%s: %v", e.Where, e.Err) }

func (e *BadInput) Unwrap() error { return e.Err }
