package simserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// FuzzAdmin sends bodies to each endpoint: it answers 200 or a refusal, in JSON, and what it says
// is in force it takes again.
func FuzzAdmin(f *testing.F) {
	f.Add(uint8(0), []byte(`{"faults":[{"fault":"lost-answer","rate":0.01,"op":["PutMessage"],"account":"one"}]}`))
	f.Add(uint8(0), []byte(`{"faults":[{"fault":"dark","from":"1h","for":"20s","repeat":"1m"},{"fault":"delay","by":"1s"}]}`))
	f.Add(uint8(0), []byte(`{"faults":[{"fault":"error","status":503,"code":"ServerBusy","retry-after":"1s","every":3}]}`))
	f.Add(uint8(1), []byte(`{"queue":1e3,"queueAccount":"none","burst":"100ms","timedOut":0.5}`))
	f.Add(uint8(1), []byte(`"queue=1,account=2"`))
	f.Add(uint8(2), []byte(`{"queue":"5ms","table":"5ms","spread":"1ms"}`))
	f.Add(uint8(3), []byte(`{"account":"one"}`))
	endpoints := [][2]string{{"PUT", "/faults"}, {"PUT", "/limits"}, {"PUT", "/latency"}, {"POST", "/reset"}}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		s, err := New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
		must(t, err)
		defer s.Close()
		h := s.AdminHandler()
		ask := func(method, path, body string) (int, string) {
			r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s %s: %q is not JSON", method, path, w.Body)
			}
			return w.Code, w.Body.String()
		}
		e := endpoints[int(which)%len(endpoints)]
		status, text := ask(e[0], e[1], string(body))
		switch {
		case status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge:
			if len(text) > 4000 {
				t.Errorf("a refusal of %d bytes", len(text))
			}
		case status != http.StatusOK:
			t.Fatalf("status %d: %s", status, text)
		case e[0] == "PUT":
			_, now := ask("GET", e[1], "")
			if status, again := ask("PUT", e[1], now); status != http.StatusOK || again != now {
				t.Errorf("%s is in force, and %d %s when it is put again", now, status, again)
			}
		}
	})
}

// FuzzParseFault holds that a fault reads again as the text that it is shown as.
func FuzzParseFault(f *testing.F) {
	f.Add("lost-answer rate=0.01 op=PutMessage account=one")
	f.Add("dark account=one from=30s for=20s repeat=1m")
	f.Add("error status=500 code=X retry-after=1s skip=1 first=2 every=3 service=queue object=q")
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			return
		}
		again, err := ParseFault(fault.String())
		if err != nil || !cmp.Equal(fault, again) {
			t.Errorf("%q is shown as %q: %v", text, fault, err)
		}
		if fault.check([]string{"one"}) != nil {
			return
		}
		s, err := New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}}, fault)
		must(t, err)
		s.Close()
	})
}
