package codec

import (
	"bytes"
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

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
