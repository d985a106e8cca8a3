package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// open opens a port for a test.
func open(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	o := Options{Workload: "test", Role: "processor", Version: "v1", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	s, err := Open(o)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// ask sends a request and gives the answer's status, header and body.
func ask(t *testing.T, method, url string, change func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, answer.Header, string(body)
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	status, _, body := ask(t, http.MethodGet, "http://"+s.Address()+path, nil)
	return status, body
}

func TestAFreePortOfLoopbackIsTheDefault(t *testing.T) {
	s := open(t, nil)
	host, port, err := net.SplitHostPort(s.Address())
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("the port is at %q", s.Address())
	}
	if status, body := get(t, s, "/healthz"); status != http.StatusOK || body != "alive\n" {
		t.Errorf("/healthz: %d %s", status, body)
	}
}

func TestAPortThatIsOffDoesNothing(t *testing.T) {
	s, err := Open(Options{Listen: Off})
	if err != nil || s != nil {
		t.Fatalf("%v, %v", s, err)
	}
	s.ShowProcessor(nil)
	s.ShowDistributor(nil, nil)
	s.Close()
	if s.Address() != "" || s.Hooks(hooksOfNobody).Request != nil {
		t.Error("a port that is off has an address or hooks")
	}
}

func TestOnlyAPortThatWasAskedForMustOpen(t *testing.T) {
	taken := open(t, nil).Address()
	proof.Says(t, proof.ErrOf(Open(Options{Listen: taken, Log: slog.New(slog.DiscardHandler)})), taken, "a taken port")
	var log bytes.Buffer
	s, err := Open(Options{
		Log:    slog.New(slog.NewTextHandler(&log, nil)),
		listen: func(string, string) (net.Listener, error) { return nil, errors.New("no loopback here") },
	})
	if err != nil || s != nil || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the default port: %v, %v, log: %s", s, err, &log)
	}
	for _, wrong := range []Options{{Listen: "9090"}, {Listen: "host:port"}, {Listen: "127.0.0.1:65536"}, {Advertise: "worker1"}} {
		wrong.Log = slog.New(slog.DiscardHandler)
		_, err := Open(wrong)
		if _, is := errors.AsType[*AddressError](err); !is {
			t.Errorf("%q, %q: %v", wrong.Listen, wrong.Advertise, err)
		}
	}
}

func TestWhatIsPublishedIsWhatOthersReach(t *testing.T) {
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }
	for _, tt := range []struct {
		advertise string
		at        net.Addr
		want      string
	}{
		{"", at("127.0.0.1"), "127.0.0.1:4711"},
		{"", at("10.1.2.3"), "10.1.2.3:4711"},
		{"", at("0.0.0.0"), hostname() + ":4711"},
		{"", at("::"), hostname() + ":4711"},
		{"", at("::1"), "[::1]:4711"},
		{"worker1:80", at("0.0.0.0"), "worker1:80"},
		{"worker1:0", at("0.0.0.0"), "worker1:4711"},
	} {
		proof.Same(t, published(tt.advertise, tt.at), tt.want, tt.at, tt.advertise, "advertised as")
	}
}

// TestANameOfAnAttackersIsRefused: DNS rebinding makes a browser ask this port
// under a name of the attacker's, whose pages may then read the answer.
func TestANameOfAnAttackersIsRefused(t *testing.T) {
	s := open(t, func(o *Options) { o.Advertise = "worker1.internal:0" })
	_, port, _ := net.SplitHostPort(s.Address())
	at := "http://127.0.0.1:" + port
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "127.0.0.1": 200, "[::1]:" + port: 200, "10.0.0.1:80": 200,
		"localhost:" + port: 200, "LOCALHOST": 200, hostname() + ":" + port: 200,
		"worker1.internal:" + port: 200, "Worker1.Internal.": 200,
		"evil.example": 421, "evil.example:" + port: 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:" + port: 421, "worker1": 421,
	} {
		for _, path := range []string{"/healthz", "/metrics", "/debug/pprof/"} {
			status, _, body := ask(t, http.MethodGet, at+path, func(r *http.Request) { r.Host = host })
			proof.Same(t, status, want, "Host", host, "on", path, body)
		}
	}
}

func TestNoOtherOriginIsLetIn(t *testing.T) {
	s := open(t, nil)
	for _, header := range []struct{ name, value string }{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		status, _, _ := ask(t, http.MethodPost, "http://"+s.Address()+"/nudge?instance=p", func(r *http.Request) { r.Header.Set(header.name, header.value) })
		proof.Same(t, status, http.StatusForbidden, "a nudge", header.name, header.value)
	}
	_, header, _ := ask(t, http.MethodGet, "http://"+s.Address()+"/metrics", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") })
	for name := range header {
		if strings.HasPrefix(name, "Access-Control") {
			t.Errorf("an answer has the header %s", name)
		}
	}
	if header.Get("Cross-Origin-Resource-Policy") != "same-origin" || header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers of an answer: %v", header)
	}
}

func TestOnlyWhatIsServedIsTaken(t *testing.T) {
	s := open(t, nil)
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/", 200},
		{"HEAD", "/healthz", 200},
		{"POST", "/healthz", 405},
		{"POST", "/metrics", 405},
		{"GET", "/nudge", 405},
		{"PUT", "/nudge", 405},
		{"DELETE", "/state", 405},
		{"OPTIONS", "/state", 405},
		{"TRACE", "/", 405},
		{"GET", "/nothing", 404},
		{"GET", "/debug/pprof/cmdline", 404},
		{"GET", "/debug/pprof/profile?seconds=3600", 400},
		{"GET", "/debug/pprof/heap?seconds=1e9", 400},
		{"GET", "/debug/pprof/trace?seconds=-1", 400},
		{"GET", "/debug/pprof/profile?seconds=NaN", 400},
		{"POST", "/nudge", 503},
	} {
		if status, _, _ := ask(t, tt.method, "http://"+s.Address()+tt.path, nil); status != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, status, tt.want)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Address()+"/healthz", nil)
	must(t, err)
	r.Header.Set("X-Long", strings.Repeat("x", 4*maxHeader))
	answer, err := http.DefaultClient.Do(r)
	if err == nil { // else the connection was broken, before the answer could be read
		answer.Body.Close()
		proof.Same(t, answer.StatusCode, http.StatusRequestHeaderFieldsTooLarge, "a large header")
	}
}

func TestNothingIsReadyBeforeItIsShown(t *testing.T) {
	s := open(t, nil)
	for _, path := range []string{"/readyz", "/state"} {
		status, body := get(t, s, path)
		var a readiness
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusServiceUnavailable || a.Ready || !slices.Equal(a.Reasons, []string{"it is starting"}) {
			t.Errorf("%s: %d %s (%v)", path, status, body, err)
		}
	}
}
