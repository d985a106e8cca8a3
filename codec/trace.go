package codec

import (
	"bytes"
	"context"
	"encoding/binary"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Trace contexts stand behind the records, and not in them: which tasks are traced is known only
// while an envelope is filled, and an envelope without any is as it was before there were trace
// contexts.

// traces are the contexts that a Builder has taken.
type traces struct {
	section []byte // as it will stand in the envelope
	next    int    // the place of the task after the last one with a context
}

// traceSize is at most what the context of a task takes: that, its place and its length.
func traceSize(t *Task, traced bool) int {
	if !traced {
		return 0
	}
	return len(t.Trace) + uvarintLen(maxTasks) + uvarintLen(maxTrace)
}

func (t *traces) add(place int, trace []byte) {
	t.section = binary.AppendUvarint(t.section, uint64(place-t.next))
	t.section = append(binary.AppendUvarint(t.section, uint64(len(trace))), trace...)
	t.next = place + 1
}

// room is what the section takes of an envelope, as a stored block.
func (t *traces) room() int {
	if len(t.section) == 0 {
		return 0
	}
	return storedSize(len(t.section))
}

// readTraces gives tasks the contexts of a section, which they must fill.
func readTraces(tasks []Task, section []byte, version uint8) error {
	if len(section) == 0 && version == tracedSince {
		return corrupt("no trace context in a version that is written for one")
	}
	for place := uint64(0); len(section) > 0; place++ {
		skipped, n := binary.Uvarint(section)
		if n <= 0 || n != uvarintLen(skipped) ||
			skipped >= uint64(len(tasks))-min(place, uint64(len(tasks))) {
			return corrupt("trace context of no task")
		}
		place += skipped
		trace, rest, ok := cut(section[n:])
		if !ok || len(trace) == 0 || len(trace) > maxTrace {
			return corrupt("trace context of task %d of %d ends early, or is of no length", place,
				len(tasks))
		}
		tasks[place].Trace, section = trace, rest
	}
	return nil
}

// EncodeTrace is a context as tasks carry it: a W3C traceparent
// (https://www.w3.org/TR/trace-context/), and behind a line feed a tracestate, if there is one.
func EncodeTrace(sc trace.SpanContext) []byte {
	parent, state := TraceHeaders(sc)
	out := []byte(parent)
	if state != "" && len(out)+1+len(state) <= maxTrace {
		out = append(append(out, '\n'), state...)
	}
	return out
}

// DecodeTrace is the context of a task; it is not ok if the task has none, or bytes that are not a
// context.
func DecodeTrace(b []byte) (trace.SpanContext, bool) {
	if len(b) == 0 {
		return trace.SpanContext{}, false
	}
	parent, state, _ := bytes.Cut(b, []byte{'\n'})
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": string(parent), "tracestate": string(state),
	})
	sc := trace.SpanContextFromContext(ctx)
	return sc, sc.IsValid()
}

// TraceHeaders is a context as the headers of a request carry it; state may be empty.
func TraceHeaders(sc trace.SpanContext) (parent, state string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier["traceparent"], carrier["tracestate"]
}
