package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// post sends what the page itself would send, but for the change.
func post(p *Page, path, body string, change func(*http.Request)) (status int, answer map[string]any) {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9090"+path, strings.NewReader(body))
	r.Header.Set("Origin", "http://127.0.0.1:9090")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set(tokenHeader, rightToken)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return w.Code, answer
}

func TestOnlyThePageItselfActsAndOnlyWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cfg := newSim(t, 1)
		poisoned(t, cfg, "a")
		p := opened(t, cfg, rightToken)
		set := func(name, value string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set(name, value) }
		}
		for name, tt := range map[string]struct {
			change func(*http.Request)
			body   string
			want   int
		}{
			"another origin":             {change: set("Origin", "http://evil.example"), want: 403},
			"another port":               {change: set("Origin", "http://127.0.0.1:9091"), want: 403},
			"an opaque origin":           {change: set("Origin", "null"), want: 403},
			"no origin":                  {change: func(r *http.Request) { r.Header.Del("Origin") }, want: 403},
			"the browser says same-site": {change: set("Sec-Fetch-Site", "same-site"), want: 403},
			"the browser says cross":     {change: set("Sec-Fetch-Site", "cross-site"), want: 403},
			"no token":                   {change: func(r *http.Request) { r.Header.Del(tokenHeader) }, want: 401},
			"a wrong token":              {change: set(tokenHeader, rightToken+"x"), want: 401},
			"an empty token":             {change: set(tokenHeader, ""), want: 401},
			"no JSON":                    {body: "cause=attempts", want: 400},
			"a field that is unknown":    {body: `{"cause":"","all":true}`, want: 400},
			"too much":                   {body: `{"cause":"` + strings.Repeat("x", maxBody) + `"}`, want: 400},
			"no trial before":            {body: `{"cause":"","dry":"guessed"}`, want: 409},
		} {
			for _, path := range []string{"/page/redrive", "/page/samples", "/page/stop"} {
				if tt.want == 409 && path != "/page/redrive" {
					continue
				}
				body := tt.body
				if body == "" {
					body = `{"cause":""}`
				}
				time.Sleep(2 * time.Second) // so that each is judged by itself
				if got, answer := post(p, path, body, tt.change); got != tt.want || answer["error"] == "" {
					t.Errorf("%s, %s: %d %v, want %d", name, path, got, answer, tt.want)
				}
			}
		}
		proof.Same(t, p.action.ID, "", "something was begun", p.action)
		time.Sleep(time.Minute)
		refused := 0
		for range 20 {
			if got, _ := post(p, "/page/samples", `{"cause":""}`, set(tokenHeader, "wrong")); got == http.StatusTooManyRequests {
				refused++
			}
		}
		proof.Same(t, refused, 15, "of 20 guesses … were not looked at")
		if got, answer := post(p, "/page/samples", `{"cause":""}`, nil); got != http.StatusOK {
			t.Errorf("guesses of others keep the right token out: %d %v", got, answer)
		}
	})
}

func TestWithoutATokenThePageIsReadOnly(t *testing.T) {
	_, cfg := newSim(t, 1)
	p := opened(t, cfg, "")
	if got, _ := post(p, "/page/redrive", `{"cause":""}`, nil); got != http.StatusForbidden {
		t.Errorf("without a file: %d", got)
	}
	p = opened(t, cfg, "short")
	if got, _ := post(p, "/page/redrive", `{"cause":""}`, func(r *http.Request) { r.Header.Set(tokenHeader, "short") }); got != http.StatusServiceUnavailable {
		t.Errorf("a token that can be guessed: %d", got)
	}
	must(t, os.WriteFile(p.o.TokenFile, []byte("read: "+rightToken), 0o600))
	for path, want := range map[string]int{"/page/redrive": http.StatusForbidden, "/page/stop": http.StatusForbidden, "/page/samples": http.StatusOK} {
		if got, answer := post(p, path, `{"cause":""}`, nil); got != want {
			t.Errorf("%s with a token to read: %d %v", path, got, answer)
		}
	}
	must(t, os.Remove(p.o.TokenFile))
	if got, _ := post(p, "/page/redrive", `{"cause":""}`, nil); got != http.StatusServiceUnavailable {
		t.Errorf("a file that is gone: %d", got)
	}
}

func TestARedriveIsTriedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSim(t, 1)
		poisoned(t, cfg, "a", "b", "c")
		p := opened(t, cfg, rightToken)
		s := watched(t, p)
		time.Sleep(10 * time.Second)
		redrive := func(body string, want int) string {
			t.Helper()
			got, answer := post(p, "/page/redrive", body, nil)
			if got != want {
				t.Fatalf("%s: %d %v", body, got, answer)
			}
			time.Sleep(10 * time.Second)
			id, _ := answer["id"].(string)
			return id
		}
		begun := func() action { return shown[action](t, s, partAct) }
		_, tasks := post(p, "/page/samples", `{"cause":""}`, nil)
		if list, _ := tasks["tasks"].([]any); len(list) != 3 {
			t.Errorf("%v", tasks)
		}
		trial := redrive(`{"cause":""}`, http.StatusAccepted)
		deletes := sim.Stats().Count("", "DeleteMessage")
		if a := begun(); a.Running || !a.Dry || a.Messages != 3 || a.Tasks != 3 || a.Error != "" || a.ID != trial {
			t.Errorf("the trial: %+v", a)
		}
		redrive(`{"cause":"attempts","dry":"`+trial+`"}`, http.StatusConflict) // of another cause
		redrive(`{"cause":"","dry":"`+trial+`"}`, http.StatusAccepted)
		if a := begun(); a.Running || a.Dry || a.Messages != 3 || a.Kept != 0 {
			t.Errorf("the redrive: %+v", a)
		}
		proof.Same(t, sim.Stats().Count("", "DeleteMessage")-deletes, 3,
			"messages were taken out of quarantine")
		redrive(`{"cause":"","dry":"`+trial+`"}`, http.StatusConflict) // it has been used
		old := redrive(`{"cause":""}`, http.StatusAccepted)
		time.Sleep(dryFor)
		redrive(`{"cause":"","dry":"`+old+`"}`, http.StatusConflict) // it is too old
	})
}

// Messages have their times from the service, whose clock may be ahead of the page's.
func TestARedriveMeansWhatItsTrialCountedWhateverTheClocksSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSim(t, 1)
		sim.SetClockOffset(3 * time.Minute)
		poisoned(t, cfg, "a", "b", "c")
		p := opened(t, cfg, rightToken)
		s := watched(t, p)
		act := func(body string) action {
			t.Helper()
			got, answer := post(p, "/page/redrive", body, nil)
			if got != http.StatusAccepted {
				t.Fatalf("%s: %d %v", body, got, answer)
			}
			time.Sleep(10 * time.Second)
			return shown[action](t, s, partAct)
		}
		trial := act(`{"cause":""}`)
		poisoned(t, cfg, "d") // which was not in the trial
		if a := act(`{"cause":"","dry":"` + trial.ID + `"}`); trial.Messages != 3 || a.Messages != 3 {
			t.Errorf("the trial: %+v, the redrive: %+v", trial, a)
		}
		trial = act(`{"cause":"nothing has it"}`)
		proof.Same(t, act(`{"cause":"nothing has it","dry":"`+trial.ID+`"}`).Messages, 0, "a redrive of nothing")
	})
}
