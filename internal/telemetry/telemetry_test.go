package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/queuepump/queuepump/internal/proof"
)

// A key in the headers is the collector's: an answer that leads to another host gets neither it nor
// the spans.
func TestTheCollectorsKeyGoesToTheCollectorAlone(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was asked, with the key %q", r.Header.Get("Api-Key"))
	}))
	defer elsewhere.Close()
	at, err := url.Parse(elsewhere.URL)
	proof.Must(t, err)
	collector := httptest.NewServer(http.RedirectHandler("http://localhost:"+at.Port(), http.StatusTemporaryRedirect))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
	c, err := newClient()
	proof.Must(t, err)
	err = c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{}})
	if err == nil || !strings.Contains(err.Error(), "307") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// A sampler that is not known is refused: the SDK would trace every task.
func TestASamplerThatIsNotKnownIsRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for _, c := range []struct{ sampler, arg, says string }{
		{"", "", ""},
		{"always_off", "of no use", ""},
		{"parentbased_traceidratio", "0.01", ""},
		{"traceidratio", "", ""},
		{"trace-id-ratio", "0.01", "OTEL_TRACES_SAMPLER:"},
		{"traceidratio", "1 %", "OTEL_TRACES_SAMPLER_ARG:"},
		{"traceidratio", "1.5", "OTEL_TRACES_SAMPLER_ARG:"},
		{"traceidratio", "NaN", "OTEL_TRACES_SAMPLER_ARG:"},
	} {
		t.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", c.arg)
		_, end, err := Traces("distributor", "v1", slog.New(slog.DiscardHandler))
		end()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.HasPrefix(err.Error(), c.says)) {
			t.Errorf("%q, %q: %v", c.sampler, c.arg, err)
		}
	}
}

// answerOf is an ExportTraceServiceResponse that refuses so many spans.
func answerOf(spans int64, says string) []byte {
	var success []byte
	if spans != 0 {
		success = protowire.AppendVarint(protowire.AppendTag(success, 1, protowire.VarintType), uint64(spans))
	}
	success = protowire.AppendString(protowire.AppendTag(success, 2, protowire.BytesType), says)
	// A field of a later version stands before it.
	out := protowire.AppendFixed32(protowire.AppendTag(nil, 7, protowire.Fixed32Type), 1)
	return protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), success)
}

// When a collector takes only a part of a batch's spans, the log says so once a minute. It says how
// many were refused and the collector's reason, cut and without the key that it was sent.
func TestSpansThatTheCollectorRefusesAreToldOf(t *testing.T) {
	long := "quota of key secret-key is used up: " + strings.Repeat("x", 300)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answerOf(2, long))
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret-key")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	var lines proof.Buffer
	provider, end, err := Traces("distributor", "v1", slog.New(slog.NewTextHandler(&lines, nil)))
	proof.Must(t, err)
	for range 3 {
		_, span := provider.Tracer("test").Start(t.Context(), "work")
		span.End()
	}
	end()
	text := lines.String()
	n := strings.Count(text, "the collector does not take all spans")
	if n != 2 || !strings.Contains(text, "refused=2 ") || !strings.Contains(text, "refused=4 ") {
		t.Errorf("%d warnings of 6 refused spans:\n%s", n, text)
	}
	if strings.Contains(text, "secret-key") || !strings.Contains(text, "quota of key ... is used up") ||
		strings.Contains(text, strings.Repeat("x", 200)) {
		t.Errorf("what it says:\n%s", text)
	}
	if strings.Contains(text, "cannot be exported") || strings.Contains(text, "were not exported") {
		t.Errorf("what was taken is told to be lost:\n%s", text)
	}
}

func TestWhatACollectorAnswersIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte
		spans  int64
		says   string
	}{
		"all is taken":      {nil, 0, ""},
		"an empty answer":   {answerOf(0, ""), 0, ""},
		"a warning alone":   {answerOf(0, "use the new port"), 0, "use the new port"},
		"some are refused":  {answerOf(7, "too old"), 7, "too old"},
		"no message":        {[]byte("<html>not a collector</html>"), 0, ""},
		"a negative number": {answerOf(-1, "x"), 0, "x"},
		"cut off":           {answerOf(7, "too old")[:9], 0, ""},
	} {
		if spans, says := partial(c.answer); spans != c.spans || says != c.says {
			t.Errorf("%s: %d, %q", name, spans, says)
		}
	}
}

// A header that no request can have is refused at the start, without its value, which may be a key.
func TestAHeaderThatCannotBeOneIsRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for text, ok := range map[string]bool{
		"api-key=secret": true, "a=1,X_y.z=secret%20key": true, "authorization=Bearer%20secret": true,
		"api key=secret": false, "api%20key=secret": false, "api:key=secret": false, "k\u00e9y=secret": false,
		"api-key=secret%0d%0aHost:%20elsewhere": false, "key%0a=secret": false, "=secret": false, "secret": false,
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", text)
		_, end, err := Traces("distributor", "v1", slog.New(slog.DiscardHandler))
		end()
		proof.Same(t, ok, (err == nil), text, err)
		if err == nil {
			continue
		}
		if said := err.Error(); !strings.HasPrefix(said, "OTEL_EXPORTER_OTLP_HEADERS: ") || strings.Contains(said, "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
