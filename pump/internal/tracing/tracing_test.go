package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
)

// Who does not trace pays nothing: neither a program without a provider, nor one with it for a task
// that carries no context.
func TestWhatIsNotTracedAllocatesNothing(t *testing.T) {
	none := New(&pump.Config{Workload: "demo"})
	if none != nil {
		t.Fatal("there is a tracer without a provider")
	}
	with := New(&pump.Config{Workload: "demo", TracerProvider: sdk.NewTracerProvider()})
	ctx, task := context.Background(), &pump.Task{Body: []byte("x")}
	if n := testing.AllocsPerRun(100, func() {
		_, sent := none.Send(ctx, 1)
		sent(nil)
		within, span := with.Process(ctx, "queue", task)
		span.End(nil, nil, nil)
		if within != ctx { // proof.Same would allocate
			t.Error("another context")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTheSpansOfABatchAndOfFailures(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := New(&pump.Config{Workload: "demo", Instance: "p", TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(kept))})
	traced := tracer.Created(t.Context(), coordination.TaskRef{Run: pump.RunID{1}, Segment: 2, N: 3})
	tasks := []*pump.Task{{}, {Run: pump.RunID{1}, Segment: 2, N: 3, Trace: traced}}
	ctx, span := tracer.ProcessBatch(t.Context(), "a/demo-00", tasks)
	span.End(nil, []error{nil, errors.New("not today")}, nil)
	_, none := tracer.ProcessBatch(t.Context(), "a/demo-00", tasks[:1])
	proof.Same(t, none, nil, "the span of a batch without a traced task")
	created, batch := kept.GetSpans()[0], kept.GetSpans()[1]
	if len(batch.Links) != 1 || batch.Links[0].SpanContext.SpanID() != created.SpanContext.SpanID() || batch.Parent.SpanID() != created.SpanContext.SpanID() ||
		batch.SpanContext.TraceID() != created.SpanContext.TraceID() || batch.Status.Code != codes.Error || batch.SpanKind != trace.SpanKindConsumer {
		t.Errorf("%+v", batch)
	}
	// What a handler starts belongs to its own span, and without one to the span of sending.
	if parent, _ := tasks[1].TraceContext(ctx); parent != "00-"+batch.SpanContext.TraceID().String()+"-"+batch.SpanContext.SpanID().String()+"-01" {
		t.Error(parent)
	}
	parent, _ := tasks[1].TraceContext(t.Context())
	proof.Same(t, parent, string(traced))
	for err, code := range map[error]codes.Code{nil: codes.Unset, pump.RetryAfter(time.Second, errors.New("later")): codes.Error, pump.Reject(errors.New("never")): codes.Error} {
		kept.Reset()
		_, span := tracer.Process(t.Context(), "a/demo-00", tasks[1])
		span.End(err, nil, nil)
		proof.Same(t, kept.GetSpans()[0].Status.Code, code, err)
	}
}

// The sender decides once what is traced. With a sampler that keeps few traces, each batch with a
// traced task has a span, and what its handler starts belongs to a trace that is kept.
func TestABatchIsNotSampledASecondTime(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	few := sdk.WithSampler(sdk.TraceIDRatioBased(0.05))
	tracer := New(&pump.Config{Workload: "demo", TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(kept), few)})
	batches, spans := 0, 0
	for n := range uint64(2000) {
		ref := coordination.TaskRef{Run: pump.RunID{1}, N: n}
		task := &pump.Task{Run: ref.Run, N: n, Trace: tracer.Created(t.Context(), ref)}
		if task.Trace == nil {
			continue
		}
		batches++
		kept.Reset()
		ctx, span := tracer.ProcessBatch(t.Context(), "a/demo-00", []*pump.Task{{}, task})
		span.End(nil, nil, nil)
		spans += len(kept.GetSpans())
		if parent, _ := task.TraceContext(ctx); !strings.HasSuffix(parent, "-01") {
			t.Fatalf("a traced task's handler goes on with %q", parent)
		}
	}
	if batches < 20 || spans != batches {
		t.Errorf("%d batches with a traced task have %d spans", batches, spans)
	}
}

// OTLP takes UTF-8 only, and one span that has something else loses all that are exported with it.
// A handler's error may be of any bytes and any length, and so may the text of another program.
func TestTextsOfOthersAreShortAndUTF8(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := New(&pump.Config{Workload: "demo", TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(kept))})
	traced := tracer.Created(t.Context(), coordination.TaskRef{})
	for bad, shown := range map[string]string{
		"503 Verf\xfcgbar":                        "503 Verf\uFFFDgbar",
		strings.Repeat("\xfc", 500):               "...",
		strings.Repeat("x", 400):                  strings.Repeat("x", 400),
		strings.Repeat("x", 399) + "\u00fc" + "y": strings.Repeat("x", 399) + "...",
		strings.Repeat("x", 1<<20):                strings.Repeat("x", 400) + "...",
	} {
		task := &pump.Task{Foreign: bad, Trace: traced}
		for _, process := range []func() *Span{
			func() *Span { _, span := tracer.Process(t.Context(), "a/demo-00", task); return span },
			func() *Span {
				_, span := tracer.ProcessBatch(t.Context(), "a/demo-00", []*pump.Task{task})
				return span
			},
		} {
			kept.Reset()
			process().End(errors.New(bad), nil, nil)
			span := kept.GetSpans()[0]
			proof.Same(t, span.Status.Description, shown, "the status", bad, "told as")
			for _, a := range append(span.Attributes, span.Links[0].Attributes...) {
				if a.Key == "messaging.message.id" && a.Value.AsString() != shown {
					t.Errorf("the id %.40q is told as %q", bad, a.Value.AsString())
				}
			}
		}
	}
}

// late is an error of time, as a handler's own.
type late struct{ error }

func (late) Timeout() bool { return true }

// The span tells the reason that ended the handler from the handler's verdict on the task.
func TestTheKindOfAnError(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := New(&pump.Config{Workload: "demo", TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(kept))})
	task := &pump.Task{Trace: tracer.Created(t.Context(), coordination.TaskRef{})}
	stopped, over := errors.New("the processor stops"), late{errors.New("it takes too long")}
	flop := errors.New("no such city")
	for _, c := range []struct {
		err, cause error
		want       string
	}{
		{nil, nil, ""},
		{nil, stopped, ""},
		{flop, nil, "_OTHER"},
		{flop, over, "timeout"},
		{flop, stopped, "cancelled"},
		{over, nil, "timeout"},
		{fmt.Errorf("wrapped: %w", over), nil, "timeout"},
		{pump.RetryAfter(time.Second, over), nil, "timeout"},
		{context.DeadlineExceeded, nil, "timeout"},
		{os.ErrDeadlineExceeded, nil, "timeout"},
		{context.Canceled, nil, "cancelled"},
		{context.Canceled, stopped, "cancelled"},
		{context.Canceled, over, "timeout"},
		{pump.Reject(flop), stopped, "_OTHER"},
		{pump.Release(flop), over, ""},
	} {
		kept.Reset()
		_, span := tracer.Process(t.Context(), "a/demo-00", task)
		span.End(c.err, nil, c.cause)
		got := ""
		for _, a := range kept.GetSpans()[0].Attributes {
			if a.Key == "error.type" {
				got = a.Value.AsString()
			}
		}
		proof.Same(t, got, c.want, c.err, "ended", c.cause)
	}
}
