package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

func newHTTP(t *testing.T, url string, o HTTPOptions) *HTTP {
	t.Helper()
	o.URL = url
	h, err := NewHTTP(o)
	must(t, err)
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
	var host string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, host = r.Header, r.Host
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"got":%q}`, b)
	})
	h := newHTTP(t, url, HTTPOptions{Header: http.Header{"Authorization": {"Bearer x"}, "Host": {"worker.internal"}}})
	tk := task(`{"a":1}`)
	tk.Key = []byte("Malmö 2/3")
	result, err := h.Work(t.Context(), tk)
	if err != nil || string(result) != `{"got":"{\"a\":1}"}` {
		t.Fatalf("got %s, %v", result, err)
	}
	want := map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer x",
		"Queuepump-Run": "ab000000000000000000000000000000", "Queuepump-Segment": "5", "Queuepump-N": "17",
		"Queuepump-Key": "Malm%C3%B6%202%2F3", "Queuepump-Id": "a1", "Queuepump-Attempt": "2", "Queuepump-Epoch": "1152921504606846976",
		"Idempotency-Key": "ab000000000000000000000000000000-5-17",
	}
	have := map[string]string{}
	for name := range want {
		have[name] = got.Get(name)
	}
	proof.Same(t, cmp.Diff(want, have), "")
	proof.Same(t, host, "worker.internal", "the host")
}

func TestTheStatusIsTheOutcome(t *testing.T) {
	var status int
	var retry string
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if retry != "" {
			w.Header().Set("Retry-After", retry)
		}
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
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
		{408, "7", later("", 7*time.Second)},
		{429, "7", later("429", 7*time.Second)},
		{429, "", later("429", 0)},
		{429, "soon", later("429", 0)},
		{429, "-3", later("429", 0)},
		{500, "", failed},
		{500, "5", later("", 5*time.Second)},
		{503, "120", later("503", 120*time.Second)},
		{503, "Mon, 02 Jan 2006 15:04:35 GMT", later("503", 30*time.Second)},
		{503, "Mon, 02 Jan 2006 15:03:05 GMT", later("503", 0)},
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

// What follows from an answer, or from none, is what docs/failures.md says of an endpoint.
func TestTheTableOfAnEndpointsFailuresIsWhatIsDone(t *testing.T) {
	text, err := os.ReadFile("../../docs/failures.md")
	must(t, err)
	_, table, _ := strings.Cut(string(text), "\n## HTTP endpoint\n")
	hold := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if status, err := strconv.Atoi(r.URL.Path[1:]); err == nil {
			w.Header().Set("Location", "/200")
			w.WriteHeader(status)
			return
		}
		<-hold
	})
	defer close(hold)
	for way, answers := range map[string][]string{
		"throttles, or says not now": {"429", "503"}, "missing, or gone for good": {"none"}, "silent, or hangs": {"hangs"},
		"refuses": {"400", "401", "404", "408", "410", "413", "415", "422", "500", "502"}, "lies": {"302"},
	} {
		_, row, _ := strings.Cut(table, "\n| "+way+":")
		decision := strings.Split(row+"||", "|")[1]
		for _, answer := range answers {
			at, timeout := url+"/"+answer, time.Minute
			if answer == "none" {
				at = "http://127.0.0.1:1"
			} else if answer == "hangs" {
				timeout = 50 * time.Millisecond
			}
			_, err := newHTTP(t, at, HTTPOptions{Timeout: timeout}).post(t.Context(), task("x"))
			word, _ := pump.OutcomeOf(err)
			did := map[string]string{"failed": "end", "rejected": "end", "busy": "wait"}[string(word)]
			if errors.Is(err, errUnreachable) {
				did = "wait"
			}
			if !strings.HasPrefix(decision, " **"+did+"**") || strings.Contains(decision, answer) != (word == "rejected") {
				t.Errorf("%s, %s: the table says %q, and %s: %v", way, answer, decision, did, err)
			}
		}
	}
}

func failed(err error) error { return err }

func later(cause string, hint time.Duration) func(error) error {
	is := pump.OutcomeFailed
	if cause != "" {
		is = pump.OutcomeBusy
	}
	return func(err error) error { return &pump.TaskError{Outcome: is, Answer: cause, After: hint, Err: err} }
}

// A date says when by the endpoint's clock, whatever this machine's says; without one it is taken by
// ours.
func TestADateOfAnAnswerIsComparedWithItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
		for date, want := range map[string]time.Duration{
			"": 90 * time.Second, "nonsense": 90 * time.Second,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): time.Hour + 90*time.Second,
			time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  0,
		} {
			proof.Same(t, retryAfter(http.Header{"Date": {date}, "Retry-After": {soon}}), want, date)
		}
	})
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
	if _, err := h.Work(t.Context(), task("x")); !isLate(err) || err.Error() != url+" did not answer within 50ms" {
		t.Errorf("got %v", err)
	}
	h = newHTTP(t, "http://user:hunter2@127.0.0.1:1/?token=hunter2", HTTPOptions{})
	if _, err := h.post(t.Context(), task("x")); !errors.Is(err, errUnreachable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	if _, err := h.Work(ctx, task("x")); err == nil || err.Error() != "stopped" {
		t.Errorf("got %v", err)
	}
}

// TestWhileNoConnectionCanBeMadeTasksWait, for whatever reason, and are done
// when it can, or given back when the processor stops.
func TestWhileNoConnectionCanBeMadeTasksWait(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	var log proof.Buffer
	h := newHTTP(t, server.URL, HTTPOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	// A port of its own that nobody listens to yet could become another process's meanwhile.
	var listens atomic.Bool
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if !listens.Load() {
			address = "127.0.0.1:1"
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	h.client.Transport.(*http.Transport).DialContext = dial
	results := make(chan error)
	for range 3 {
		go func() {
			_, err := h.Work(t.Context(), task("x"))
			results <- err
		}()
	}
	waitFor(t, "the log's line", func() bool { return strings.Contains(log.String(), "connection refused") })
	listens.Store(true)
	for range 3 {
		proof.Is(t, <-results, nil)
	}
	proof.Same(t, strings.Count(log.String(), "cannot be reached"), 1, "lines in the log")

	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	defer secure.Close()
	stopping := make(chan struct{})
	close(stopping)
	for _, url := range []string{secure.URL, "http://no-such-host.invalid"} {
		h = newHTTP(t, url, HTTPOptions{Stopping: stopping})
		_, err := h.Work(t.Context(), task("x"))
		sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errUnreachable)))
	}
}

// TestOneTaskAtATimeTriesToReachAnEndpoint, less and less often.
func TestOneTaskAtATimeTriesToReachAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := breaker{log: discard()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var tries atomic.Int64
		var all sync.WaitGroup
		o.begin(errUnreachable)
		for range 64 {
			all.Go(func() {
				for o.pass(ctx) == nil {
					tries.Add(1)
					o.begin(errUnreachable)
				}
			})
		}
		all.Wait()
		if n := tries.Load(); n != 11 { // after 0.1, 0.3, ... 12.7, 22.7, 32.7, 42.7, 52.7 s
			t.Errorf("%d tries in a minute", n)
		}
		o.end()
		must(t, o.pass(t.Context()))
	})
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
	proof.Says(t, proof.ErrOf(h.Work(t.Context(), task("x"))), "more than 1024 KiB")
}

func TestAURLThatIsNoneIsRefusedWithoutShowingIt(t *testing.T) {
	for _, url := range []string{"", "ftp://hunter2/", "http://", "hunter2", "http://%zz hunter2"} {
		if _, err := NewHTTP(HTTPOptions{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", url, err)
		}
	}
}

// Outages that follow each other are counted, and what is not said to have begun is not said to be
// over.
func TestOutagesAreSaidInPairs(t *testing.T) {
	var log proof.Buffer
	o := breaker{log: slog.New(slog.NewTextHandler(&log, nil))}
	outage := func() {
		o.begin(errors.New("connection refused"))
		o.end()
	}
	for range 50 {
		outage()
	}
	o.said = logs.Limited{} // it is due again
	outage()
	text := log.String()
	if began, over := strings.Count(text, "cannot be reached"), strings.Count(text, "can be reached again"); began != 2 || over != 2 || !strings.Contains(text, "times=50") {
		t.Errorf("%d and %d:\n%s", began, over, text)
	}
}
