package admin

import (
	"bufio"
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/nudge"
)

type nudges []pump.Nudge

func (n *nudges) Nudged(one pump.Nudge) { *n = append(*n, one) }

// FuzzRequest: whatever a client sends, a port answers it within bounds, shows
// pages only under a name of its own, and passes on only nudges for its process.
func FuzzRequest(f *testing.F) {
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: 127.0.0.1:9090\r\n\r\n",
		"GET /healthz HTTP/1.0\r\nHost: [::1]:9090\r\n\r\n",
		"GET /readyz HTTP/1.1\r\nHost: localhost.\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: worker1\r\nAccept: application/openmetrics-text\r\nAccept-Encoding: gzip\r\n\r\n",
		"HEAD /state HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n",
		"GET /debug/pprof/goroutine?debug=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /debug/pprof/cmdline HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /nudge?instance=me HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
		"POST /nudge?instance=me&queue=alpha/work-00 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST /nudge?instance=me HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n",
		"DELETE //healthz/../nudge HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil || strings.Contains(r.URL.RawQuery, "seconds") || slices.ContainsFunc([]string{"profile", "trace"}, func(p string) bool { return strings.Contains(r.URL.Path, p) }) {
			return // those take their time
		}
		r.RemoteAddr = "127.0.0.1:4711"
		var got nudges
		s := &Server{names: names("worker1:9090"), metrics: newMetrics(Options{Workload: "test", Role: "processor", Log: slog.New(slog.DiscardHandler)})}
		s.of.Store(&subject{
			state: func() any { return map[string]int{"tasks": 1} },
			ready: func() (bool, []string) { return false, []string{"no reason"} },
			nudge: nudge.Handler(&got, "me"),
		})
		h := s.handler()
		a := httptest.NewRecorder()
		proof.AtMost(t, 8<<20+16*len(text), func() { h.ServeHTTP(a, r) })
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		_, err = netip.ParseAddr(strings.Trim(host, "[]"))
		known := err == nil || slices.Contains([]string{"localhost", "worker1", strings.ToLower(hostname())}, strings.ToLower(strings.TrimSuffix(host, ".")))
		switch {
		case a.Code < 200 || a.Code > 599:
			t.Fatalf("status %d", a.Code)
		case !known && a.Code != http.StatusMisdirectedRequest:
			t.Fatalf("asked as %q it answers %d", r.Host, a.Code)
		case len(got) > 0 && (r.Method != http.MethodPost || got[0].Instance != "me" || r.Header.Get("Sec-Fetch-Site") == "cross-site"):
			t.Fatalf("nudged %+v", got)
		case a.Body.Len() > 4<<20:
			t.Fatalf("an answer of %d bytes", a.Body.Len())
		}
	})
}
