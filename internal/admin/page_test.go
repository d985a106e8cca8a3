package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// pageOf is the page of a workload on simulated accounts.
func pageOf(t *testing.T) *Page {
	t.Helper()
	_, cfg := world(t, "accounta")
	p, err := NewPage(PageOptions{Config: cfg})
	must(t, err)
	return p
}

func TestThePageIsOnThePortUnderItsNamesAlone(t *testing.T) {
	s := open(t, func(o *Options) { o.Page = pageOf(t) })
	_, port, _ := net.SplitHostPort(s.Address())
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421,
	} {
		for _, path := range []string{"/page/", "/page/assets/page.js"} {
			status, header, _ := ask(t, http.MethodGet, "http://127.0.0.1:"+port+path, func(r *http.Request) { r.Host = host })
			proof.Same(t, status, want, "Host", host, "on", path)
			if csp := header.Get("Content-Security-Policy"); status == 200 && !strings.Contains(csp, "default-src 'none'") {
				t.Errorf("%s has the policy %q", path, csp)
			}
		}
		status, _, _ := ask(t, http.MethodPost, "http://127.0.0.1:"+port+"/page/redrive", func(r *http.Request) {
			r.Host = host
			r.Header.Set("Origin", "http://"+host)
		})
		if want := map[bool]int{true: 403, false: 421}[want == 200]; status != want { // without a token's file it is read only
			t.Errorf("Host %q acts: %d, want %d", host, status, want)
		}
	}
	if _, body := get(t, s, "/"); !strings.HasPrefix(body, "/page/\n/healthz\n") {
		t.Errorf("the index: %s", body)
	}
}

func TestAPortOfThePageAloneServesNothingElse(t *testing.T) {
	s := open(t, func(o *Options) { o.Page, o.PageAlone = pageOf(t), true })
	if status, body := get(t, s, "/"); status != 200 || !strings.Contains(body, "<title>queuepump</title>") { // by the redirection
		t.Errorf("%d %s", status, body)
	}
	for _, path := range []string{"/metrics", "/state", "/debug/pprof/", "/nudge", "/healthz"} {
		if status, _ := get(t, s, path); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// TestAPortEndsWithItsStreams: one who watches does not keep a process from ending.
func TestAPortEndsWithItsStreams(t *testing.T) {
	s, err := Open(Options{Listen: "127.0.0.1:0", Page: pageOf(t), PageAlone: true, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Address()+"/page/events", nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != 200 || kind != "text/event-stream" {
		t.Errorf("%d %s", answer.StatusCode, kind)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the port does not end")
	}
}
