package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
)

// ErrHalted is the cause of the end of a reader's context if the distributor was told to stop.
var ErrHalted = errors.New("the distributor was told to stop")

// Source is what a distribution reads: a stream of records in a fixed order.
// [TextSource], [Files] and [FromSeq] are the ready ones.
type Source interface {
	// Fingerprint identifies what will be read and how, so that a run is only
	// continued on the same input. It changes when the input
	// does. An empty fingerprint says that the source cannot be read again: a
	// run over it is not resumed. It is at most 1 KiB long. An error says that the input
	// cannot be read on this machine now; with [distributor.Options].Every others then try.
	Fingerprint(ctx context.Context) (string, error)
	// Open begins to read after the given cursor, nil for the beginning.
	Open(ctx context.Context, cursor []byte) (Reader, error)
}

// Reader reads one source once. It is used by one goroutine.
type Reader interface {
	// Next gives the next record, whose bytes are valid until the call after. io.EOF is the end.
	// After a [*BadInput] the reader goes on behind the bad record; any other error ends the
	// reading. With [distributor.Options].Every such an error counts as trouble of this machine:
	// another distributor, or this one later, reads on at the cursor. But an error that wraps
	// [ErrSourceChanged] breaks the run. Next returns soon after ctx ends, even while its input is
	// silent: a distributor that is told to stop waits for it.
	Next(ctx context.Context) (Record, error)
	// AppendCursor appends the position behind the record or bad record that
	// Next gave last, also after a Next that gave none because ctx ended or the input
	// failed: the distributor saves it then, and a position further on
	// would lose tasks. It is at most 8 KiB long; an empty one is the beginning.
	AppendCursor(dst []byte) []byte
	// Progress is how much has been read of how much, in the source's own unit
	// (bytes or files); total is 0 if it is not known.
	Progress() (done, total int64)
	Close() error
}

// MaxCursor leaves a checkpoint room for the counters of 16,384 segments (at
// most 160 KiB) in the 240 KiB of its row, and holds any path that Linux can open.
const MaxCursor = 8 << 10

// Receipt is told by the distributor what becomes of tasks, from any goroutine.
type Receipt interface {
	// Acknowledge says that so many more of its tasks are in queues.
	Acknowledge(tasks int64)
	// Refuse says that one of its tasks cannot be sent, and why.
	Refuse(err error)
}

// Record is one task as a source gives it.
type Record struct {
	Key  []byte // what the task is segmented by; may be empty
	ID   string // the user's own name of the task; may be empty
	Body []byte

	// Trace is the trace context that goes with the task; see [pump.Task]. A distributor that traces
	// and a Sender set it: what a source sets is ignored.
	Trace []byte
	// Receipt is told what becomes of the task. A Sender sets it; nil: nothing waits for it.
	Receipt Receipt
}

// BadInput is a record that cannot become a task.
type BadInput struct {
	Where string // file and line, for example "tasks.jsonl:17"
	Raw   []byte // what was read, at most 64 KiB of it; valid as long as a record
	Err   error
}

func (e *BadInput) Error() string { return fmt.Sprintf("%s: %v", e.Where, e.Err) }

func (e *BadInput) Unwrap() error { return e.Err }

// FromSeq makes a source of an iterator, for tasks that a Go program makes itself. It cannot be
// read again: a run over it is not resumed, and a second distribution calls seq again. An error in
// the sequence ends the run, unless it is a [*BadInput]. The iterator runs in a goroutine of its
// own; the bytes of a record must stay unchanged until the yield of the next record has returned.
func FromSeq(seq iter.Seq2[Record, error]) Source { return seqSource{seq} }

type seqSource struct{ seq iter.Seq2[Record, error] }

func (s seqSource) Fingerprint(context.Context) (string, error) { return "", nil }

func (s seqSource) Open(_ context.Context, cursor []byte) (Reader, error) {
	if cursor != nil {
		return nil, errors.New("an iterator cannot be continued at a cursor")
	}
	quit := make(chan struct{})
	r := &seqReader{items: make(chan seqItem), quit: sync.OnceFunc(func() { close(quit) })}
	go func() {
		defer close(r.items)
		for rec, err := range s.seq {
			select {
			case r.items <- seqItem{rec, err}:
			case <-quit:
				return
			}
		}
	}()
	return r, nil
}

type seqItem struct {
	rec Record
	err error
}

// seqReader hands items over a channel, not through iter.Pull, because an
// iterator may wait for ever and Next must not.
type seqReader struct {
	items chan seqItem
	quit  func()
	read  int64
}

func (r *seqReader) Next(ctx context.Context) (Record, error) {
	select {
	case i, ok := <-r.items:
		if !ok {
			return Record{}, io.EOF
		}
		r.read++
		return i.rec, i.err
	case <-ctx.Done():
		return Record{}, context.Cause(ctx)
	}
}

func (r *seqReader) AppendCursor(dst []byte) []byte { return dst }

func (r *seqReader) Progress() (done, total int64) { return r.read, 0 }

func (r *seqReader) Close() error {
	r.quit()
	return nil
}

// Errors that end a run as broken.
var (
	// ErrSourceChanged: the run of a dead distributor cannot be continued,
	// because source or settings are not what they were.
	ErrSourceChanged = errors.New("the source is not the one that the run was begun with")
	// ErrNotReplayable: the run of a dead distributor cannot be continued,
	// because its source can be read only once.
	ErrNotReplayable = errors.New("the source cannot be read again")
)
