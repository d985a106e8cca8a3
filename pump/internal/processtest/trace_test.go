package processtest

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
)

// collector takes spans by OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
	about map[string]string // of the resource that came last
}

func newCollector(t *testing.T) *collector {
	c := &collector{about: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
			r.Header.Get("Authorization") != "Bearer of spans" || proto.Unmarshal(text, &data) != nil {
			http.Error(w, "this is no export of spans", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range data.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				c.about[a.Key] = a.Value.GetStringValue()
			}
			for _, s := range of.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// of are the spans of a name.
func (c *collector) of(name string) (list []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			list = append(list, s)
		}
	}
	return list
}

func attribute(of []*commonpb.KeyValue, key string) string {
	for _, a := range of {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// tracedWorker calls an endpoint for each task, as part of the task's trace.
const tracedWorker = `import json, sys, urllib.request
for line in sys.stdin:
    task = json.loads(line)
    headers = {"traceparent": task["traceparent"]} if "traceparent" in task else {}
    request = urllib.request.Request(sys.argv[1], data=b"{}", headers=headers)
    urllib.request.urlopen(request).read()
    print(json.dumps({"seq": task["seq"], "ok": True}), flush=True)
`

// One trace leads from a program that sends a task, through the Sender, the processor and its
// Python child, to the HTTP call that the child makes. A task that is not traced leaves no span.
func TestOneTraceLeadsFromASenderToWhatAChildCalls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not here: ", err)
	}
	w := newWorld(t, 1, 2)
	spans := newCollector(t)
	var mu sync.Mutex
	var called []string // the traceparent of each call
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		called = append(called, r.Header.Get("Traceparent"))
	}))
	t.Cleanup(endpoint.Close)

	file, err := configfile.Load(w.config)
	must(t, err)
	kept := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	cfg := file.Config
	cfg.TracerProvider = provider
	ctx, caller := provider.Tracer("the caller").Start(t.Context(), "order")
	sendOne(ctx, t, cfg)
	cfg.TracerProvider = nil
	sendOne(ctx, t, cfg)
	caller.End()

	writeText(t, w.path("worker.py"), tracedWorker)
	cmd := exec.Command(filepath.Join(bin, "processor"), "run", "--config", w.config, "--exec", "python3 "+w.path("worker.py")+" "+endpoint.URL,
		"--children", "1", "--out", w.path("done.jsonl"), "--until-idle", "2s")
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+spans.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20of%20spans")
	startAs(t, "processor", cmd).succeeds()

	mu.Lock()
	defer mu.Unlock()
	if len(called) != 2 {
		t.Fatalf("%d calls", len(called))
	}
	parent := strings.Join(called, "") // one of the two is empty
	processed := spans.of("process test")
	if len(processed) != 1 {
		t.Fatalf("%d spans of handling: %v", len(processed), processed)
	}
	span := processed[0]
	if want := "00-" + hex.EncodeToString(span.TraceId) + "-" + hex.EncodeToString(span.SpanId) + "-01"; parent != want {
		t.Errorf("the child's call belongs to %q, want %q", parent, want)
	}
	var sent tracetest.SpanStub
	for _, s := range kept.GetSpans() {
		if s.Name == "send test" {
			sent = s
		}
	}
	id := sent.SpanContext.SpanID()
	if got := caller.SpanContext().TraceID(); hex.EncodeToString(span.TraceId) != got.String() || sent.SpanContext.TraceID() != got {
		t.Errorf("the traces are %x of the handling, %v of the sending, %v of the caller", span.TraceId, sent.SpanContext.TraceID(), got)
	}
	if sent.Parent.SpanID() != caller.SpanContext().SpanID() || hex.EncodeToString(span.ParentSpanId) != id.String() ||
		len(span.Links) != 1 || hex.EncodeToString(span.Links[0].SpanId) != id.String() {
		t.Errorf("sent %+v, handled %v", sent, span)
	}
	if span.Kind != tracepb.Span_SPAN_KIND_CONSUMER || attribute(span.Attributes, "messaging.destination.name") != "test" ||
		attribute(span.Attributes, "messaging.operation.type") != "process" || spans.about["service.name"] != "queuepump-processor" {
		t.Errorf("%v of %v", span, spans.about)
	}
}

// sendOne sends a task through a sender of its own.
func sendOne(ctx context.Context, t *testing.T, cfg pump.Config) {
	t.Helper()
	s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
	must(t, err)
	must(t, s.Send(ctx, source.Record{Key: []byte("Oslo"), Body: []byte(`{"n":1}`)}))
	must(t, errOf(s.Close(t.Context())))
}

// A wrong variable is named at once, without its value, which may be secret. A collector that is
// not there stops nothing.
func TestTheExportOfSpansIsToldByTheEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	writeTasks(t, w.path("tasks.jsonl"), 4)
	run := func(env ...string) *process {
		cmd := exec.Command(filepath.Join(bin, "distributor"), "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city")
		cmd.Env = append(os.Environ(), env...)
		return startAs(t, "distributor", cmd)
	}
	for _, c := range []struct{ env, says string }{
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=soon", "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{"OTEL_EXPORTER_OTLP_HEADERS=secretsecret", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere", "OTEL_EXPORTER_OTLP_CERTIFICATE"},
	} {
		p := run("OTEL_TRACES_EXPORTER=otlp", c.env)
		if code := p.wait(); code != 2 || !strings.Contains(p.log.String(), c.says) || strings.Contains(p.log.String(), "secretsecret") {
			t.Errorf("%s: exit status %d:\n%s", c.env, code, tail(p.log.String()))
		}
	}
	p := run("OTEL_EXPORTER_OTLP_ENDPOINT=http://user:password@127.0.0.1:1")
	p.succeeds()
	if text := p.log.String(); !strings.Contains(text, "the last spans were not exported") && !strings.Contains(text, "spans cannot be exported") || strings.Contains(text, "password") {
		t.Errorf("a collector that is not there:\n%s", tail(text))
	}
	run("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none").succeeds()
}
