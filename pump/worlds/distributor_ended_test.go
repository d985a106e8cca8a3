package worlds

import (
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/distributor"
)

// ended is what OnRun was told, by all distributors of a test.
type ended struct {
	mu   sync.Mutex
	runs []endedRun
}

type endedRun struct {
	who string
	distributor.Summary
	err error
	at  time.Time
}

func (e *ended) by(who string) func(distributor.Summary, error) {
	return func(s distributor.Summary, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.runs = append(e.runs, endedRun{who, s, err, time.Now()})
	}
}

func (e *ended) all() []endedRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]endedRun{}, e.runs...)
}

// until waits for a run that ended as asked for.
func (e *ended) until(t *testing.T, what func(endedRun) bool) endedRun {
	t.Helper()
	for range 3600 {
		for _, r := range e.all() {
			if what(r) {
				return r
			}
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("waited an hour; runs so far: %+v", e.all())
	return endedRun{}
}

func succeeded(r endedRun) bool { return r.err == nil }
