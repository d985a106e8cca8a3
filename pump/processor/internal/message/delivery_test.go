package message

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// A log line of a task names the span of its handling, or else that of its sending; a line has both
// ids or neither.
func TestALogLineNamesTheSpanOfATask(t *testing.T) {
	of := func(n byte, flags trace.TraceFlags) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{n}, TraceFlags: flags,
		})
	}
	sent := codec.EncodeTrace(of(2, trace.FlagsSampled))
	d := &Delivery{
		Queue: &queues.Queue{Account: &queues.Account{}},
		Tasks: make([]pump.Task, 3), // handlers have written over them
		Env:   &codec.Envelope{Tasks: []codec.Task{{}, {Trace: sent}, {Trace: []byte("damaged")}}},
	}
	for _, c := range []struct {
		task    int
		handled trace.SpanContext
		span    string
	}{
		{0, trace.SpanContext{}, ""},
		{1, trace.SpanContext{}, "0200000000000000"},
		{1, of(3, trace.FlagsSampled), "0300000000000000"},
		{1, of(3, 0), "0200000000000000"}, // it is not exported
		{2, trace.SpanContext{}, ""},
		{9, of(3, trace.FlagsSampled), ""}, // its task is gone
	} {
		attrs := d.TaskAttrs(c.task, c.handled)
		got := map[string]string{}
		for _, name := range []string{"trace_id", "span_id"} {
			if at := slices.Index(attrs, any(name)); at >= 0 {
				got[name] = attrs[at+1].(string)
			}
		}
		if got["span_id"] != c.span || (got["trace_id"] == "") != (c.span == "") {
			t.Errorf("task %d, handled in %v: %v, want %q", c.task, c.handled.SpanID(), got, c.span)
		}
	}
}
