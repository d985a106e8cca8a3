package tracing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// traces notes the context of each delivery of a task, and fails and rejects as a test wants it.
type traces struct {
	mu   sync.Mutex
	seen map[uint64][]string // by n
	do   func(t *pump.Task, nth int) error
}

func (h *traces) Handle(ctx context.Context, t *pump.Task) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[t.N] = append(h.seen[t.N], string(t.Trace))
	if len(t.Trace) > 0 != trace.SpanContextFromContext(ctx).IsValid() {
		return fmt.Errorf("the task has the context %q, its handler %v", t.Trace, trace.SpanContextFromContext(ctx))
	}
	return h.do(t, len(h.seen[t.N]))
}

// A task keeps its context when it is tried again beside others that are done, goes into
// quarantine, and comes back from there. A task whose sending was not sampled has none, and no
// span.
func TestATaskKeepsItsContextWhateverBecomesOfIt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		kept := tracetest.NewInMemoryExporter()
		every := &everyOther{}
		cfg := w.Config("sender", 1)
		cfg.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(kept), sdk.WithSampler(every))
		d, err := distributor.New(cfg, &testworld.ListSource{Print: "a", N: 8, Key: func(int) string { return "one" }}, distributor.Options{Pack: 4})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
		created := len(kept.GetSpans())
		h := &traces{seen: map[uint64][]string{}, do: func(t *pump.Task, nth int) error {
			switch {
			case t.N%4 < 2 && nth == 1:
				return errors.New("the first time it fails")
			case t.N == 7 && nth == 1, t.N == 6 && nth == 1:
				return pump.Reject(errors.New("not at all"))
			}
			return nil
		}}
		pc := w.Config("p", 1)
		pc.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(kept))
		p, err := processor.New(pc, h, processor.Options{})
		proof.Must(t, err)
		working := testworld.Start(w.T, p)
		time.Sleep(2 * time.Minute)
		q, err := quarantine.Open(t.Context(), w.Operator())
		proof.Must(t, err)
		proof.Must(t, q.Redrive(t.Context(), quarantine.Filter{}, quarantine.Options{}, func(quarantine.Outcome) bool { return true }))
		time.Sleep(2 * time.Minute)
		working.End()
		traced := 0
		for n := range uint64(8) {
			deliveries := map[bool]int{true: 2, false: 1}[n%4 < 2 || n >= 6]
			seen := h.seen[n]
			proof.Same(t, len(seen), deliveries, "task", n, "delivered … times")
			for _, c := range seen {
				proof.Same(t, c, seen[0], "task", n, "had the contexts", seen)
				if c != "" {
					traced++
				}
			}
		}
		handled := 0
		for _, s := range kept.GetSpans()[created:] {
			if s.Name == "process work" && len(s.Links) == 1 && s.Parent.SpanID() == s.Links[0].SpanContext.SpanID() {
				handled++
			}
		}
		if created != 4 || traced != handled || traced == 0 {
			t.Errorf("%d sampled, %d traced deliveries, %d spans of handling", created, traced, handled)
		}
	})
}

// A program may run its processor within a span of its own. That is of none of its tasks: one that
// was not traced has no context, and one that was has its own, whether the processor traces or not.
func TestATaskHasNothingOfTheSpanOfTheProgram(t *testing.T) {
	for _, tracing := range []bool{true, false} {
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			provider := sdk.NewTracerProvider()
			cfg := w.Config("sender", 1)
			cfg.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(&everyOther{}))
			d, err := distributor.New(cfg, &testworld.ListSource{Print: "a", N: 8, Key: func(int) string { return "one" }}, distributor.Options{})
			proof.Must(t, err)
			proof.Must(t, proof.ErrOf(d.Run(t.Context())))
			handled := map[bool]int{}
			h := func(ctx context.Context, task *pump.Task) error {
				sent, _ := task.TraceContext(context.Background())
				parent, _ := task.TraceContext(ctx)
				switch {
				case sent == "" && parent != "":
					t.Errorf("the processor traces: %v; what a task starts that is not traced belongs to %s", tracing, parent)
				case !tracing && parent != sent, len(parent) != len(sent), sent != "" && parent[:35] != sent[:35]:
					t.Errorf("the processor traces: %v; the task was sent in %s, and what it starts belongs to %s", tracing, sent, parent)
				}
				handled[sent != ""]++
				return nil
			}
			pc := w.Config("p", 1)
			if tracing {
				pc.TracerProvider = provider
			}
			p, err := processor.New(pc, pump.HandlerFunc(h), processor.Options{Concurrency: 1, UntilIdle: 5 * time.Second})
			proof.Must(t, err)
			ctx, span := provider.Tracer("the program").Start(t.Context(), "main")
			defer span.End()
			if _, err := p.Run(ctx); err != nil || handled[true] != 4 || handled[false] != 4 {
				t.Errorf("%v were handled: %v", handled, err)
			}
		})
	}
}

// A log line of a task has the trace and the span of its handling, so that a line and a span are
// found by each other. The span says what ended a handler.
func TestLogLinesOfATracedTaskNameItsSpan(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		kept := tracetest.NewInMemoryExporter()
		provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
		cfg := w.Config("sender", 1)
		cfg.TracerProvider = provider
		source := &testworld.ListSource{Print: "a", N: 3, Key: func(n int) string { return fmt.Sprint(n) }}
		d, err := distributor.New(cfg, source, distributor.Options{Pack: 1})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
		kept.Reset()
		var lines proof.Buffer
		pc := w.Config("p", 1)
		pc.TracerProvider, pc.Log = provider, slog.New(slog.NewJSONHandler(&lines, nil))
		p, err := processor.New(pc, pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
			switch {
			case t.Attempt > 1:
				return nil
			case string(t.Key) == "0":
				panic("at first")
			case string(t.Key) == "1":
				<-ctx.Done()
				return ctx.Err()
			}
			return errors.New("not yet")
		}), processor.Options{Timeout: 10 * time.Second})
		proof.Must(t, err)
		working := testworld.Start(w.T, p)
		time.Sleep(2 * time.Minute)
		working.End()
		spans := map[string]tracetest.SpanStub{}
		kinds := map[string]int{}
		for _, s := range kept.GetSpans() {
			spans[s.SpanContext.SpanID().String()] = s
			for _, a := range s.Attributes {
				if a.Key == "error.type" {
					kinds[a.Value.AsString()]++
				}
			}
		}
		if kinds["timeout"] != 1 || kinds["_OTHER"] != 2 || len(kinds) != 2 {
			t.Errorf("%v", kinds)
		}
		told := map[string]string{} // status of the span by the line's text
		for line := range strings.Lines(lines.String()) {
			var l struct {
				Msg   string
				Trace string `json:"trace_id"`
				Span  string `json:"span_id"`
			}
			proof.Must(t, json.Unmarshal([]byte(line), &l))
			if l.Trace == "" {
				continue
			}
			s, ok := spans[l.Span]
			if !ok || s.SpanContext.TraceID().String() != l.Trace {
				t.Errorf("no span has the ids of %s", line)
			}
			told[l.Msg] = s.Status.Description
		}
		want := map[string]string{
			"a task failed":    "context canceled",
			"handler panicked": "panic: at first",
			"handler takes too long; its context is ended": "context canceled",
		}
		proof.Same(t, cmp.Diff(want, told), "")
	})
}

// everyOther samples every other span.
type everyOther struct{ n int }

func (e *everyOther) Description() string { return "every other" }

func (e *everyOther) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	e.n++
	if e.n%2 == 0 {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}
