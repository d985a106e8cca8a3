// Package tracecontext writes trace contexts as tasks carry them, and reads them: a W3C traceparent
// (https://www.w3.org/TR/trace-context/), and behind a line feed a tracestate, if there is one.
package tracecontext

import (
	"bytes"
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// most is what an envelope carries of a task (package codec); a longer tracestate is left out, as
// the standard allows.
const most = 512

// Encode is a context as tasks carry it.
func Encode(sc trace.SpanContext) []byte {
	parent, state := Headers(sc)
	out := []byte(parent)
	if state != "" && len(out)+1+len(state) <= most {
		out = append(append(out, '\n'), state...)
	}
	return out
}

// Decode is the context of a task; it is not ok if there is none, or what is there is none.
func Decode(b []byte) (trace.SpanContext, bool) {
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

// Headers is a context as the headers of a request carry it; state may be empty.
func Headers(sc trace.SpanContext) (parent, state string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier["traceparent"], carrier["tracestate"]
}
