package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// A key in the headers is the collector's: an answer that leads to another host gets neither it nor
// the spans.
func TestTheCollectorsKeyGoesToTheCollectorAlone(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was asked, with the key %q", r.Header.Get("Api-Key"))
	}))
	defer elsewhere.Close()
	at, err := url.Parse(elsewhere.URL)
	if err != nil {
		t.Fatal(err)
	}
	collector := httptest.NewServer(http.RedirectHandler("http://localhost:"+at.Port(), http.StatusTemporaryRedirect))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
	c, err := newClient()
	if err != nil {
		t.Fatal(err)
	}
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
