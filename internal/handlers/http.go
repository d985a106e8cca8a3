package handlers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// HTTPOptions of [HTTP].
type HTTPOptions struct {
	URL string
	// Header is sent with each request.
	Header http.Header
	// Concurrency is how many connections are kept. Default 1024.
	Concurrency int
	// Timeout of one request with its answer. Default 5 min.
	Timeout time.Duration
	// Stopping ends the waiting for an endpoint that cannot be reached: tasks
	// are given back. May be nil.
	Stopping <-chan struct{}
	Log      *slog.Logger
}

// HTTP posts each task to an endpoint: the body as it is, the rest in headers
//
//	Queuepump-Run, Queuepump-Segment, Queuepump-N   the task's identity
//	Queuepump-Key, Queuepump-Id                     percent-encoded; left out over 4 KiB
//	Queuepump-Attempt
//	Queuepump-Epoch                                 [pump.Task]'s Epoch
//	Queuepump-Foreign                               only of a message that no distributor made
//	Idempotency-Key                                 RUN-SEGMENT-N or Queuepump-Foreign (over 4 KiB
//	                                                its SHA-256), the same in every delivery
//
// The answer's status is the outcome: 2xx done, its body (up to 1 MiB) the result; 410, 413, 415
// and 422 rejected; anything else failed. 429 and 503 may mean "not now" for the endpoint rather
// than for the task: the processor judges that. With 408, 425, 429 and 5xx the task is not tried
// again before Retry-After. Redirects are not followed.
//
// While no connection can be made (the name, the port, TLS, a proxy), tasks are held and lose no
// attempt. A connection that breaks later costs its task an attempt, because the task may cause
// that.
type HTTP struct {
	opts    HTTPOptions
	shown   string // the URL as it may appear in an error
	client  *http.Client
	breaker breaker
}

// maxHeader bounds what an endpoint's headers take of our memory; net/http takes 10 MiB.
const maxHeader = 64 << 10

// NewHTTP makes no request.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		// the parser's error would show it, with any secret in it
		return nil, errors.New("the URL cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("the URL must begin with http:// or https:// and a host")
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 1024
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Minute
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	t := http.DefaultTransport.(*http.Transport).Clone()
	// The default of 2 idle connections a host would close and open one for nearly every task.
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, o.Concurrency
	t.MaxResponseHeaderBytes = maxHeader
	return &HTTP{
		opts:    o,
		breaker: breaker{log: o.Log, stopping: o.Stopping, said: logs.Limited{Every: logs.PerTask}},
		shown:   u.Scheme + "://" + u.Host,
		client: &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Work posts the task and waits for the answer; see [Worker].
func (h *HTTP) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	for {
		if err := h.breaker.pass(ctx); err != nil {
			return nil, err
		}
		result, err := h.post(ctx, t)
		if !errors.Is(err, errUnreachable) {
			if ctx.Err() == nil {
				h.breaker.end()
			}
			return result, err
		}
		h.breaker.begin(err)
	}
}

var errUnreachable = errors.New("no connection")

// post makes one request. Its error is errUnreachable if no connection was made.
func (h *HTTP) post(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	var connected atomic.Bool // in the last try: the transport may make several
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	late := lateError(fmt.Sprintf("%s did not answer within %v", h.shown, h.opts.Timeout))
	limited, cancel := context.WithTimeoutCause(ctx, h.opts.Timeout, late)
	defer cancel()
	// A copy, because the transport may still read it when the answer is there
	// already, and the task's own bytes are reused after the return.
	req, err := http.NewRequestWithContext(limited, http.MethodPost, h.opts.URL,
		bytes.NewReader(bytes.Clone(t.Body)))
	if err != nil {
		return nil, errors.New("the request cannot be made")
	}
	h.header(ctx, req.Header, t)
	req.Host = h.opts.Header.Get("Host") // not taken from among the headers; empty: the URL's
	resp, err := h.client.Do(req)
	if err != nil {
		if ctx.Err() == nil && !connected.Load() {
			return nil, fmt.Errorf("%s: %w: %w", h.shown, errUnreachable, reason(err))
		}
		if limited.Err() != nil {
			return nil, context.Cause(limited)
		}
		err = reason(err)
		// With TLS 1.3 a server refuses our certificate in this way, after the handshake.
		if _, refused := errors.AsType[tls.AlertError](err); refused {
			return nil, fmt.Errorf("%s: %w: %w", h.shown, errUnreachable, err)
		}
		return nil, fmt.Errorf("%s: %w", h.shown, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil && limited.Err() != nil:
		return nil, context.Cause(limited)
	case err != nil:
		return nil, fmt.Errorf("%s: reading the answer: %w", h.shown, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("%s answered with more than %d KiB", h.shown, maxAnswer>>10)
	}
	return taskline.AsResult(body), outcomeOf(resp, body)
}

// reason is the error without the URL, which may hold a secret.
func reason(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

func (h *HTTP) header(ctx context.Context, to http.Header, t *pump.Task) {
	to.Set("Content-Type", contentType(t.Body))
	to.Set("User-Agent", "queuepump")
	for name, values := range h.opts.Header {
		to[name] = values
	}
	if parent, state := t.TraceContext(ctx); parent != "" {
		to.Set("Traceparent", parent)
		if state != "" {
			to.Set("Tracestate", state)
		}
	}
	run, segment, n := t.Run.String(), strconv.FormatUint(uint64(t.Segment), 10),
		strconv.FormatUint(t.N, 10)
	to.Set("Queuepump-Run", run)
	to.Set("Queuepump-Segment", segment)
	to.Set("Queuepump-N", n)
	to.Set("Queuepump-Attempt", strconv.Itoa(t.Attempt))
	to.Set("Queuepump-Epoch", strconv.FormatUint(t.Epoch, 10))
	identity := run + "-" + segment + "-" + n
	for name, value := range map[string]string{
		"Queuepump-Key": string(t.Key), "Queuepump-Id": t.ID, "Queuepump-Foreign": t.Foreign,
	} {
		if value = url.PathEscape(value); value != "" && len(value) <= maxValue {
			to.Set(name, value)
		}
	}
	if t.Foreign != "" {
		// The sender of a message decides how long the identity is; servers refuse a very long one.
		if identity = url.PathEscape(t.Foreign); len(identity) > maxValue {
			sum := sha256.Sum256([]byte(t.Foreign))
			identity = "sha256-" + hex.EncodeToString(sum[:])
		}
	}
	to.Set("Idempotency-Key", identity)
}

// maxValue bounds a header that is made from a task; servers take about 8 KiB of headers in all.
const maxValue = 4 << 10

func contentType(body []byte) string {
	switch {
	case !utf8.Valid(body):
		return "application/octet-stream"
	case json.Valid(body):
		return "application/json"
	default:
		return "text/plain; charset=utf-8"
	}
}

// outcomeOf is what an answer's status says about the task. A 4xx that may
// be a mistake in the deployment (a wrong path, a missing permission, a bad
// proxy) only fails: rejecting would quarantine every task within seconds.
func outcomeOf(resp *http.Response, body []byte) error {
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	why := fmt.Errorf("the endpoint answered %s", resp.Status)
	if said := strings.TrimSpace(strings.ToValidUTF8(string(body), "")); said != "" &&
		!strings.HasPrefix(said, "<") {
		why = fmt.Errorf("%w: %s", why, shorten(said, 200))
	}
	later := &pump.TaskError{Outcome: pump.OutcomeFailed, Err: why}
	switch code {
	case http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return pump.Reject(why)
	case http.StatusRequestTimeout, http.StatusTooEarly:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		later.Outcome, later.Answer = pump.OutcomeBusy, strconv.Itoa(code)
	default:
		if code < 500 {
			return why
		}
	}
	if later.After = retryAfter(resp.Header); later.After == 0 && later.Answer == "" {
		return why
	}
	return later
}

// retryAfter reads the header's two forms: seconds, or a date by the clock of the answer's own
// Date.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseUint(v, 10, 32); err == nil {
		return time.Duration(s) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
