package simserver

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// call asks the admin endpoint, checks the status, and gives the answer's JSON.
func call(t *testing.T, h http.Handler, method, path, body string, status int, headers ...string) map[string]any {
	t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:10003"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	proof.Same(t, w.Code, status, method, path, clipped(body), w.Body)
	var v map[string]any
	proof.Is(t, json.Unmarshal(w.Body.Bytes(), &v), nil, method, path, w.Body)
	proof.Same(t, w.Header().Get("Content-Type"), "application/json", method, path, "Content-Type")
	return v
}

// compact is JSON without blanks.
func compact(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return string(data)
}

func TestFaultsAreReadAndReplaced(t *testing.T) {
	s := newSimulator(t)
	h := s.AdminHandler()
	proof.Same(t, compact(t, call(t, h, "GET", "/faults", "", 200)), `{"faults":[]}`, "at first")
	const faults = `{"faults":[` +
		`{"account":"one","fault":"lost-answer","op":["PutMessage"],"rate":0.01},` +
		`{"account":"two","fault":"dark","for":"20s","from":"30s"}]}`
	proof.Same(t, compact(t, call(t, h, "PUT", "/faults", faults, 200)), faults, "after PUT")
	// What GET gives, PUT takes.
	got := compact(t, call(t, h, "GET", "/faults", "", 200))
	proof.Same(t, compact(t, call(t, h, "PUT", "/faults", got, 200)), faults, "put again")
	if in := s.Faults(); !strings.Contains(in, "answer-lost account=one operations=PutMessage probability=0.01") {
		t.Errorf("in force: %s", in)
	}
	if got := compact(t, call(t, h, "DELETE", "/faults", "", 200)); got != `{"faults":[]}` || s.Faults() != "" {
		t.Errorf("after DELETE: %s, %s", got, s.Faults())
	}
}

func TestWhatCannotBeIsRefusedAndChangesNothing(t *testing.T) {
	s := newSimulator(t, "error rate=0.5")
	h := s.AdminHandler()
	before := compact(t, []any{s.CurrentFaults(), s.CurrentLimits(), s.CurrentLatency()})
	for _, c := range []struct{ method, path, body, says string }{
		{"PUT", "/faults", ``, `{"faults": [`},
		{"PUT", "/faults", `{}`, "missing"},
		{"PUT", "/faults", `{"faults":null}`, "missing"},
		{"PUT", "/faults", `{"faults":[],"x":1}`, `"x"`},
		{"PUT", "/faults", `{"faults":[]} 1`, "follows"},
		{"PUT", "/faults", `{"faults":[{"fault":"dark"},{"fault":"lost-anwser"}]}`, `fault 2: unknown kind "lost-anwser"; known: error`},
		{"PUT", "/faults", `{"faults":[{"rate":0.1}]}`, "fault: it is missing"},
		{"PUT", "/faults", `{"faults":[null]}`, "want an object"},
		{"PUT", "/faults", `{"faults":[{"fault":"error","rate":2}]}`, `rate: "2"`},
		{"PUT", "/faults", `{"faults":[{"fault":"error","rate":{}}]}`, "rate: want a string"},
		{"PUT", "/faults", `{"faults":[{"fault":"error","rates":1}]}`, `unknown word "rates"`},
		{"PUT", "/faults", `{"faults":[{"fault":"dark","account":"three"}]}`, `unknown account "three"; known: one, two`},
		{"PUT", "/limits", ``, "limits"},
		{"PUT", "/limits", `{"queue":-1}`, "queue"},
		{"PUT", "/limits", `{"queues":1}`, "queues"},
		{"PUT", "/limits", `"nothing"`, "published"},
		{"PUT", "/latency", `{"queue":5}`, "latency"},
		{"PUT", "/latency", `{"queue":"5"}`, "queue:"},
		{"PUT", "/latency", `{"spread":"5s"}`, "spread"},
		{"POST", "/reset", `{"account":"three"}`, `unknown account "three"`},
		{"POST", "/reset", `{}`, `unknown account ""`},
		{"POST", "/reset", `[]`, "account"},
	} {
		v := call(t, h, c.method, c.path, c.body, 400)
		if message, _ := v["error"].(string); !strings.Contains(message, c.says) {
			t.Errorf("%s %s %s: %q does not say %q", c.method, c.path, c.body, message, c.says)
		}
	}
	long := `{"faults":[{"fault":"` + longText(maxBody) + `"}]}`
	call(t, h, "PUT", "/faults", long, 413)
	v := call(t, h, "PATCH", "/faults", "", 404)
	if message, _ := v["error"].(string); !strings.Contains(message, "PUT /faults") {
		t.Errorf("an unknown endpoint: %q", message)
	}
	proof.Same(t, compact(t, []any{s.CurrentFaults(), s.CurrentLimits(), s.CurrentLatency()}), before,
		"before … after")
}

func TestLimitsAndLatencyChangeByTheEndpoint(t *testing.T) {
	s := newSimulator(t)
	h := s.AdminHandler()
	v := call(t, h, "GET", "/limits", "", 200)
	if v["queue"] != "none" || v["getCost"] != 32.0 {
		t.Errorf("at first: %v", v)
	}
	v = call(t, h, "PUT", "/limits", `{"queue":7,"tableAccount":"none"}`, 200)
	if v["queue"] != 7.0 || v["tableAccount"] != "none" || s.CurrentLimits().Queue != 7 {
		t.Errorf("after PUT: %v", v)
	}
	v = call(t, h, "PUT", "/limits", `"none"`, 200)
	if v["queue"] != "none" || s.CurrentLimits() != azsim.NoLimits() {
		t.Errorf("none: %v", v)
	}
	got := compact(t, call(t, h, "PUT", "/latency", `{"queue":"5ms","table":"2s"}`, 200))
	if got != `{"queue":"5ms","spread":"0s","table":"2s"}` || s.CurrentLatency().Table != 2*time.Second {
		t.Errorf("latency: %s", got)
	}
	proof.Same(t, compact(t, call(t, h, "GET", "/latency", "", 200)), got, "latency again")
}

func TestAResetEmptiesOneAccountOrAll(t *testing.T) {
	s := newSimulator(t)
	h := s.AdminHandler()
	one, two := queueOf(t, s, "one"), queueOf(t, s, "two")
	proof.Same(t, compact(t, call(t, h, "POST", "/reset", `{"account":"one"}`, 200)), `{"emptied":["one"]}`, "one")
	if answered(one) || !answered(two) {
		t.Error("another account than one was emptied")
	}
	proof.Same(t, compact(t, call(t, h, "POST", "/reset", ``, 200)), `{"emptied":["one","two"]}`,
		"all")
	if answered(two) {
		t.Error("the second account was not emptied")
	}
}

func TestCountsSayWhatHappened(t *testing.T) {
	s := newSimulator(t, "error first=2 op=PutMessage", "dark account=two from=1h")
	h := s.AdminHandler()
	one := queueOf(t, s, "one")
	for range 3 {
		answered(one)
	}
	call(t, h, "DELETE", "/faults", "", 200)
	call(t, h, "PUT", "/faults", `{"faults":[{"fault":"dark","account":"one"}]}`, 200)
	answered(one)
	got := compact(t, call(t, h, "GET", "/counts", "", 200))
	const want = `{"dark":{"one":1},"faults":[{"active":true,"fault":"dark account=one","hits":0}],` +
		`"happened":{"error":2},"requests":[` +
		`{"account":"one","code":"","count":1,"operation":"CreateQueue","service":"queue","status":201},` +
		`{"account":"one","code":"","count":1,"operation":"PutMessage","service":"queue","status":201},` +
		`{"account":"one","code":"ServerBusy","count":2,"operation":"PutMessage","service":"queue","status":503}],` +
		`"seed":1,"throttled":0}`
	proof.Same(t, got, want)
}

// A browser sends these for a page from elsewhere.
func TestAPageInABrowserCannotSteer(t *testing.T) {
	s := newSimulator(t)
	h := s.AdminHandler()
	for _, host := range []string{"evil.example", "evil.example:10003", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", ""} {
		call(t, h, "GET", "/accounts", "", 403, "Host", host)
		call(t, h, "POST", "/reset", "", 403, "Host", host)
	}
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:80", "[::1]:10003", "[::1]"} {
		call(t, h, "GET", "/counts", "", 200, "Host", host)
	}
	queueOf(t, s, "one")
	call(t, h, "POST", "/reset", "", 403, "Origin", "http://evil.example")
	call(t, h, "POST", "/reset", "", 403, "Origin", "null")
	call(t, h, "POST", "/reset", "", 403, "Origin", "http://localhost:3000")
	call(t, h, "POST", "/reset", "", 403, "Sec-Fetch-Site", "cross-site")
	call(t, h, "PUT", "/faults", `{"faults":[]}`, 403, "Sec-Fetch-Site", "same-site")
	if n := s.Stats().Count("one", "CreateQueue"); n != 1 {
		t.Fatal(n)
	}
	call(t, h, "POST", "/reset", "", 200)
}

func TestTheEndpointListensOnLoopbackOnly(t *testing.T) {
	s := newSimulator(t)
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:80", "127.0.0.1", "nonsense"} {
		if a, err := s.ListenAdmin(addr); err == nil {
			_ = a.Close()
			t.Errorf("%q is taken", addr)
		}
	}
	srv, err := s.Listen("", "")
	must(t, err)
	defer srv.Close()
	a, err := s.ListenAdmin("")
	must(t, err)
	resp, err := http.Get(a.URL() + "/accounts")
	must(t, err)
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(text), srv.ConnectionString("two")) {
		t.Errorf("%s, %v", text, err)
	}
	must(t, a.Close())
	if _, err := http.Get(a.URL() + "/accounts"); err == nil {
		t.Error("it answers after Close")
	}
}
