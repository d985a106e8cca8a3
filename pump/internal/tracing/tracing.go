// Package tracing makes the spans of tasks that are sent and handled, by OpenTelemetry and its
// conventions for messaging (https://opentelemetry.io/docs/specs/semconv/messaging/), and carries
// their contexts in tasks, as W3C Trace Context says (https://www.w3.org/TR/trace-context/).
//
//	create NAME    a distributor has read a task
//	send NAME      a Sender was given tasks, until queues have them; a child of its caller's span
//	process NAME   a handler works on a task: of the trace in which it was sent, and linked to it
//
// A batch that a handler gets has one span. It belongs to the trace of the batch's first traced
// task, and is linked to the contexts of all its tasks. Only a task whose sending was sampled has a
// context, and only such a task has a span of its handling: the sender decides once what is traced.
package tracing

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
)

const (
	// scope is the name of the instrumentation.
	scope = "github.com/queuepump/queuepump/pump"
	// maxText bounds what a span has of a text that is not the pump's, in bytes.
	maxText = 400
)

// Tracer makes spans. A nil Tracer makes none. It may be used from many goroutines.
type Tracer struct {
	tracer trace.Tracer
	name   string // of the workload
	common []attribute.KeyValue
}

// New makes the tracer of a configuration; nil without a provider.
func New(cfg *pump.Config) *Tracer {
	if cfg.TracerProvider == nil {
		return nil
	}
	return &Tracer{
		tracer: cfg.TracerProvider.Tracer(scope), name: cfg.Workload,
		common: []attribute.KeyValue{
			attribute.String("messaging.system", "queuepump"),
			attribute.String("messaging.destination.name", cfg.Workload),
			attribute.String("messaging.client.id", cfg.Instance),
		},
	}
}

func (t *Tracer) start(
	ctx context.Context, operation, kind string, as trace.SpanKind, more ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, operation+" "+t.name, append(more,
		trace.WithSpanKind(as), trace.WithAttributes(t.common...), trace.WithAttributes(
			attribute.String("messaging.operation.name", operation),
			attribute.String("messaging.operation.type", kind),
		))...)
}

// Created makes the span of a task that was read, and gives its context; nil if it is not sampled.
func (t *Tracer) Created(ctx context.Context, ref coordination.TaskRef) []byte {
	_, span := t.start(ctx, "create", "create", trace.SpanKindProducer)
	defer span.End()
	if !span.SpanContext().IsSampled() {
		return nil
	}
	span.SetAttributes(attribute.String("messaging.message.id", ref.String()))
	return codec.EncodeTrace(span.SpanContext())
}

// Send begins the span of tasks that are sent for a caller, and gives their context, nil if they
// are not sampled. Sent ends it.
func (t *Tracer) Send(ctx context.Context, tasks int) (context []byte, sent func(error)) {
	if t == nil {
		return nil, func(error) {}
	}
	_, span := t.start(ctx, "send", "send", trace.SpanKindProducer)
	if tasks > 1 {
		span.SetAttributes(attribute.Int("messaging.batch.message_count", tasks))
	}
	sent = func(err error) {
		failed(span, err, nil)
		span.End()
	}
	if !span.SpanContext().IsSampled() {
		return nil, sent
	}
	return codec.EncodeTrace(span.SpanContext()), sent
}

// Without is the context without its span. Handlers get what the program has in its context, but
// not its span: a task belongs to the trace that it was sent in, or to none.
func Without(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// Span is the span of a handling; nil: it is not traced.
type Span struct{ span trace.Span }

// Process begins the span of a task's handling, if the task was traced as it was sent.
func (t *Tracer) Process(
	ctx context.Context, queue string, task *pump.Task,
) (context.Context, *Span) {
	from, ok := codec.DecodeTrace(task.Trace)
	if !ok {
		return ctx, nil
	}
	ctx, span := t.start(trace.ContextWithRemoteSpanContext(ctx, from), "process", "process",
		trace.SpanKindConsumer, trace.WithLinks(trace.Link{SpanContext: from}), trace.WithAttributes(
			attribute.String("messaging.message.id", idOf(task)),
			attribute.Int("queuepump.attempt", task.Attempt),
			attribute.Int64("queuepump.segment", int64(task.Segment)),
			attribute.String("queuepump.queue", queue),
		))
	return ctx, &Span{span}
}

// ProcessBatch begins the span of a batch, if any of its tasks was traced as it was sent. The span
// is a child of the first one's context: a trace of its own would be sampled again, and lose most
// of the tasks that the sender decided to trace.
func (t *Tracer) ProcessBatch(
	ctx context.Context, queue string, tasks []*pump.Task,
) (context.Context, *Span) {
	var first trace.SpanContext
	var links []trace.Link
	for _, task := range tasks {
		if from, ok := codec.DecodeTrace(task.Trace); ok {
			if links == nil {
				first = from
			}
			links = append(links, trace.Link{
				SpanContext: from,
				Attributes:  []attribute.KeyValue{attribute.String("messaging.message.id", idOf(task))},
			})
		}
	}
	if links == nil {
		return ctx, nil
	}
	ctx, span := t.start(trace.ContextWithRemoteSpanContext(ctx, first), "process", "process",
		trace.SpanKindConsumer, trace.WithLinks(links...), trace.WithAttributes(
			attribute.Int("messaging.batch.message_count", len(tasks)),
			attribute.String("queuepump.queue", queue),
		))
	return ctx, &Span{span}
}

// Context is that of the span; without a span it is not valid.
func (s *Span) Context() trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	return s.span.SpanContext()
}

// End ends the span with the handler's result, and with the reason why its context had ended
// before, or nil.
func (s *Span) End(err error, errs []error, cause error) {
	if s == nil {
		return
	}
	for _, e := range errs {
		if e != nil {
			err = e
		}
	}
	failed(s.span, err, cause)
	s.span.End()
}

// failed notes an error. A task that was skipped or put off is not an error.
func failed(span trace.Span, err, cause error) {
	if err == nil {
		return
	}
	e, _ := errors.AsType[*pump.TaskError](err)
	// A failure, and an answer that is judged beside others, may be of a context that has ended.
	wish := e != nil && e.Outcome != pump.OutcomeFailed && e.Answer == ""
	if wish && (e.Outcome == pump.OutcomeDone || e.Outcome == pump.OutcomeUntried) {
		return
	}
	if wish {
		cause = nil // the handler says outright what is with the task
	}
	span.SetStatus(codes.Error, text(err.Error()))
	span.SetAttributes(attribute.String("error.type", kindOf(err, cause)))
}

// kindOf sorts errors into few kinds: the time was over, the caller ended it for another reason,
// and others.
func kindOf(err, cause error) string {
	switch {
	case isTimeout(cause), isTimeout(err):
		return "timeout"
	case cause != nil, errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "_OTHER"
}

// isTimeout asks the error itself, as package net does: context.DeadlineExceeded says so too.
func isTimeout(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}

// text makes a foreign text fit for a span. OTLP takes UTF-8 only: any other text would lose the
// whole batch of spans that it is exported with.
func text(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func idOf(t *pump.Task) string {
	if t.Foreign != "" {
		return text(t.Foreign)
	}
	return coordination.TaskRef{Run: t.Run, Segment: t.Segment, N: t.N}.String()
}
