package pump

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
)

// RunID identifies a run: one distribution of a source, from its start to its end.
type RunID = codec.RunID

// Task is one delivery of one unit of work. (Run, Segment, N) is the task's
// identity, the same in every delivery and every copy of it.
//
// A task is valid until the handler it was given to returns; a handler that
// keeps Key or Body longer must copy them.
type Task struct {
	Run     RunID
	Segment uint32
	N       uint64 // the task is the N-th of its segment in its run, from 0
	Key     []byte
	ID      string // the user's own name of the task; may be empty
	Body    []byte
	// Epoch is the fencing number of this instance's hold on the segment: an owner
	// that came later has a greater one. A handler that writes to a store of its own
	// can refuse writes below the greatest epoch it has seen. It is 0 in a shared workload.
	Epoch uint64
	// Attempt is 1 at first and grows with each failed or retried handling. A
	// delivery whose process died or whose lease ran out is not an attempt.
	Attempt int
	// Foreign is the queue and message id of a message that no distributor
	// made; it is empty otherwise. Such a task has a zero Run.
	Foreign string
	// Trace is the context in which the task was sent, if that was traced: a W3C traceparent, and
	// after a line feed a tracestate, if there is one. If the processor traces too, the context that a
	// handler gets has the span of its handling.
	Trace []byte
}

// TraceContext is the context for what a handler starts elsewhere, as the headers traceparent and
// tracestate of W3C Trace Context. It is that of the span in ctx, which the handler was given, or
// else that in which the task was sent. Both headers are empty if the task is not traced; state may
// be empty also if it is.
func (t *Task) TraceContext(ctx context.Context) (parent, state string) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		var ok bool
		if sc, ok = codec.DecodeTrace(t.Trace); !ok {
			return "", ""
		}
	}
	return codec.TraceHeaders(sc)
}

// SetResult says what the task has resulted in: JSON, or a text. Ctx is what the handler got with
// the task. A processor with Options.Results keeps it if the task is done then, or null without
// one; elsewhere it does nothing. The result is copied. Of several the last counts.
func (t *Task) SetResult(ctx context.Context, result []byte) {
	if keep, is := ctx.Value(jsonline.ResultKey{}).(func(*Task, []byte)); is {
		keep(t, result)
	}
}

// Handler does the work of a task. The processor calls it from many goroutines at once. A nil error
// settles the task. [RetryAfter] puts it back for later, [Reject] quarantines it at once; any other
// error, and a panic, is a failure, after which the task is delivered again with growing delay up
// to the limits of [RetryPolicy] and is quarantined then.
//
// The context ends when the message's lease is about to end (what is not done by then will be
// delivered again, so go on only with what may be done twice), when the segment was given to
// another processor and the task is not done a lease later, and when the processor is stopped and
// its grace period is over.
type Handler interface {
	Handle(ctx context.Context, t *Task) error
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, t *Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t *Task) error { return f(ctx, t) }

// BatchHandler is a Handler that takes all tasks of an envelope in one call,
// for work that is cheaper together. It returns one error a task, or nil if all
// are done; the errors mean what they mean in [Handler]. A slice of another
// length fails every task. Handle is not called.
type BatchHandler interface {
	Handler
	HandleBatch(ctx context.Context, tasks []*Task) []error
}
