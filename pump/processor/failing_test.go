package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// What fails is named in the log with its task, in the state and in the beat, within a few seconds
// and without drowning the log; it is over when tasks are done.
func TestHandlersThatFailAreSaidWithCauseAndTask(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		const secret = "sig=abcdefghijklmnopqrstuvwxyz"
		w.Put("accounta", "work-00", 1, 2000)
		var works atomic.Bool
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
			time.Sleep(time.Second)
			if !works.Load() {
				return fmt.Errorf("tax service: 503\n%s %s", secret, strings.Repeat("x", 5000))
			}
			return nil
		}}
		o := Options{Concurrency: 16, Retry: pump.RetryPolicy{MaxAttempts: -1}}
		p := w.start(w.processor(h, o))
		time.Sleep(10 * time.Second)
		s := p.Of.State().Failing
		if s.Count < 16 || s.Since == nil || !strings.HasPrefix(s.LastError, "tax service: 503 sig=REDACTED xxx") ||
			len(s.LastError) > maxFailText || !strings.Contains(s.Task, "f0000000000000000000000000000001/1/") {
			t.Errorf("%+v", s)
		}
		m := w.View().Members
		if len(m) != 1 || m[0].Failing.Count == 0 || !strings.HasPrefix(m[0].Failing.Error, "tax service: 503") {
			t.Errorf("the beat says %+v", m)
		}
		time.Sleep(10 * time.Minute)
		if n := w.Logged("a task failed"); n < 2 || n > 80 {
			t.Errorf("it is said %d times in ten minutes", n)
		}
		if w.Logged(secret) > 0 || w.Logged("attempt=1") == 0 || w.Logged("n=") == 0 {
			t.Error("the log has a secret, or no task")
		}
		works.Store(true)
		w.Within(30*time.Minute, "tasks are done", func() bool { return p.Of.State().Failing.Count == 0 })
		p.End()
	})
}

// One task that fails again and again among those that are done is no news of the handlers.
func TestOneBadTaskIsNotTheHandlersFailure(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N == 0 {
				return errors.New("a bad one")
			}
			return nil
		}}
		p := w.start(w.processor(h, Options{Concurrency: 4, Retry: pump.RetryPolicy{MaxAttempts: -1}}))
		for range 30 {
			w.Put("accounta", "work-00", 1, 10)
			time.Sleep(10 * time.Second)
			if s := p.Of.State().Failing; s.Count > 0 {
				t.Fatalf("%+v", s)
			}
		}
		p.End()
	})
}
