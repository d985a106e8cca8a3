package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/pump"
)

func newHTTP(t *testing.T, url string, o HTTPOptions) *HTTP {
	t.Helper()
	o.URL = url
	h, err := NewHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func TestAnEndpointGetsTheBodyAndTheRestInHeaders(t *testing.T) {
	var got http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"got":%q}`, b)
	})
	h := newHTTP(t, url, HTTPOptions{Header: http.Header{"Authorization": {"Bearer x"}}})
	tk := task(`{"a":1}`)
	tk.Key = []byte("Malmö 2/3")
	result, err := h.Work(t.Context(), tk)
	if err != nil || string(result) != `{"got":"{\"a\":1}"}` {
		t.Fatalf("got %s, %v", result, err)
	}
	want := map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer x",
		"Queuepump-Run": "ab000000000000000000000000000000", "Queuepump-Segment": "5", "Queuepump-N": "17",
		"Queuepump-Key": "Malm%C3%B6%202%2F3", "Queuepump-Id": "a1", "Queuepump-Attempt": "2",
		"Idempotency-Key": "ab000000000000000000000000000000-5-17",
	}
	have := map[string]string{}
	for name := range want {
		have[name] = got.Get(name)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}

func TestTheStatusIsTheOutcome(t *testing.T) {
	var status int
	var retry string
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if retry != "" {
			w.Header().Set("Retry-After", retry)
		}
		if status >= 300 && status < 400 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "because")
	})
	h := newHTTP(t, url, HTTPOptions{})
	for _, tt := range []struct {
		status int
		retry  string
		want   func(cause error) error
	}{
		{200, "", nil},
		{201, "", nil},
		{302, "", failed},
		{400, "", failed},
		{401, "", failed},
		{404, "7", failed},
		{408, "", failed},
		{410, "", pump.Reject},
		{413, "", pump.Reject},
		{415, "", pump.Reject},
		{422, "", pump.Reject},
		{429, "7", after(7 * time.Second)},
		{429, "", failed},
		{429, "soon", failed},
		{500, "", failed},
		{503, "120", after(120 * time.Second)},
		{503, "Mon, 02 Jan 2006 15:04:05 GMT", after(0)},
	} {
		status, retry = tt.status, tt.retry
		_, err := h.Work(t.Context(), task("x"))
		if tt.want == nil {
			sameError(t, err, nil)
			continue
		}
		why := fmt.Errorf("%w: because", fmt.Errorf("the endpoint answered %d %s", tt.status, http.StatusText(tt.status)))
		sameError(t, err, tt.want(why))
	}
}

func failed(err error) error { return err }

func after(d time.Duration) func(error) error {
	return func(err error) error { return pump.RetryAfter(d, err) }
}

func TestAnEndpointThatDoesNotAnswerIsAFailureWithoutTheURL(t *testing.T) {
	release := make(chan struct{})
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	h := newHTTP(t, url+"/?token=hunter2", HTTPOptions{Timeout: 50 * time.Millisecond})
	if _, err := h.Work(t.Context(), task("x")); err == nil || err.Error() != url+" did not answer within 50ms" {
		t.Errorf("got %v", err)
	}
	h = newHTTP(t, "http://user:hunter2@127.0.0.1:1/?token=hunter2", HTTPOptions{})
	if _, err := h.Work(t.Context(), task("x")); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	if _, err := h.Work(ctx, task("x")); err == nil || err.Error() != "stopped" {
		t.Errorf("got %v", err)
	}
}

func TestAnEndlessAnswerIsAFailure(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range maxAnswer>>10 + 64 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	h := newHTTP(t, url, HTTPOptions{})
	if _, err := h.Work(t.Context(), task("x")); err == nil || !strings.Contains(err.Error(), "more than 1024 KiB") {
		t.Errorf("got %v", err)
	}
}

func TestAURLThatIsNoneIsRefusedWithoutShowingIt(t *testing.T) {
	for _, url := range []string{"", "ftp://hunter2/", "http://", "hunter2", "http://%zz hunter2"} {
		if _, err := NewHTTP(HTTPOptions{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", url, err)
		}
	}
}
