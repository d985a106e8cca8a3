package processtest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// A second workload in the same accounts, because one that counts has no handler that could be told
// "not now". Its tasks are posted to an endpoint, and runs of them are sent one after the other.

const (
	callsEnding = ".calls" // of the names of its configurations
	callTasks   = 200      // of a run
)

// endpoint is what --http posts to.
type endpoint struct {
	*httptest.Server

	mu    sync.Mutex
	until time.Time                 // it says "not now" until then
	told  int64                     // requests that were told so
	did   map[string]map[string]int // how often a task was done, by run and identity
	sent  []string                  // runs that were sent as a whole; of who sends alone until all are
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{did: map[string]map[string]int{}}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(2 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Before(e.until) {
		e.told++
		if e.told%3 > 0 {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[e.told%2])
		return
	}
	run := r.Header.Get("Queuepump-Run")
	if e.did[run] == nil {
		e.did[run] = map[string]int{}
	}
	e.did[run][r.Header.Get("Idempotency-Key")]++
}

func (e *endpoint) notNow(span time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = time.Now().Add(span)
}

// complete reports whether each of the n tasks of each run that was sent as a whole was done.
func (e *endpoint) complete(n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, run := range e.sent {
		if len(e.did[run]) < n {
			return false
		}
	}
	return true
}

// repeats is how often tasks of a run were done that had been done.
func (e *endpoint) repeats(run string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, times := range e.did[run] {
		n += times - 1
	}
	return n
}

// poster is a processor that posts. That it dies with tasks in hand takes attempts of them.
func (e *endpoint) poster(args ...string) *part {
	args = append(args, "--http", e.URL, "--max-attempts", "100", "--retry-max", "2s", "--visibility", chaosVisibility, "--quiet")
	return &part{role: "processor", args: slices.Concat([]string{"run"}, args, chaosLease)}
}

// posts sends runs of tasks to be posted.
func (o *operator) posts(ctx context.Context) {
	for ctx.Err() == nil {
		args := append([]string{"run", "--config", o.configs[o.roll(len(o.configs))] + callsEnding, "--input", o.path("calls.jsonl"), "--key", "id", "--json", "--quiet"}, chaosLease...)
		limited, cancel := context.WithTimeout(context.Background(), patience)
		out, err := exec.CommandContext(limited, filepath.Join(bin, "distributor"), args...).Output()
		cancel()
		var s sent
		o.mu.Lock()
		o.tried["a post"]++
		if err == nil && json.Unmarshal(out, &s) == nil && s.Tasks == callTasks {
			o.did["a post"]++
			o.endpoint.sent = append(o.endpoint.sent, s.Run)
		}
		o.mu.Unlock()
		o.pause(ctx, time.Duration(o.roll(4000))*time.Millisecond)
	}
}

// trouble makes an account that is not the control account refuse the credential or be disabled, or
// the endpoint say "not now", for a while: the three in turn, so that each happens.
func (c *chaos) trouble(span time.Duration) {
	name := c.names[1+c.random.IntN(len(c.names)-1)]
	switch c.blows / 4 % 3 {
	case 0:
		rule := c.sim.Inject(azsim.Rule{Account: name, Fault: azsim.Answer, Status: http.StatusForbidden, Code: "AuthenticationFailed"})
		c.rules = append(c.rules, rule)
		time.AfterFunc(span, rule.Remove)
	case 1:
		c.sim.SetState(name, azsim.Disabled)
		time.AfterFunc(span, func() { c.sim.SetState(name, azsim.Well) })
	default:
		c.endpoint.notNow(span)
	}
}

// troubles counts the requests that met one, by its kind, and requires each where the blows were
// enough for it.
func (c *chaos) troubles() map[string]int64 {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	met := map[string]int64{"AuthenticationFailed": 0, "AccountIsDisabled": 0, "not now": c.endpoint.told}
	for _, r := range c.sim.Stats().Requests {
		if _, is := met[r.Code]; is {
			met[r.Code] += r.Count
		}
	}
	for kind, n := range met {
		if n == 0 && c.length >= 2*time.Minute {
			c.t.Errorf("no request met %q in %d blows", kind, c.blows)
		}
	}
	return met
}
