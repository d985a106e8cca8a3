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
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// What fails is named in the log with its task, in the state and in the beat, within a few seconds
// and without drowning the log; it is over when tasks are done.
func TestHandlersThatFailAreSaidWithCauseAndTask(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
		p := testworld.Begun(w, New, "p", h, o)
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N == 0 {
				return errors.New("a bad one")
			}
			return nil
		}}
		p := testworld.Begun(w, New, "p", h, Options{Concurrency: 4, Retry: pump.RetryPolicy{MaxAttempts: -1}})
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

// A handler in Go makes a TaskError by hand, too: with an outcome that is none, a time that is over,
// or none at all in a variable that is returned. It ends no process, and OutcomeOf says what a
// processor makes of it.
func TestATaskErrorMadeByHandIsJudgedAsOutcomeOfSays(t *testing.T) {
	var none *pump.TaskError
	for _, c := range []struct {
		err   error
		is    message.Verdict
		word  pump.Outcome
		after time.Duration
	}{
		{none, message.Failed, pump.OutcomeFailed, 0},
		{fmt.Errorf("wrapped: %w", errors.Join(none, testworld.ErrFlop)), message.Failed, pump.OutcomeFailed, 0},
		{&pump.TaskError{}, message.Failed, pump.OutcomeFailed, 0},
		{&pump.TaskError{Outcome: "later", After: time.Hour}, message.Failed, pump.OutcomeFailed, 0},
		{&pump.TaskError{Outcome: pump.OutcomeRetry, After: -time.Second}, message.Retry, pump.OutcomeRetry, 0},
		{&pump.TaskError{Outcome: pump.OutcomeBusy, After: -time.Second}, message.NotNow, pump.OutcomeBusy, 0},
		{&pump.TaskError{Outcome: pump.OutcomeBusy, Answer: "429", After: time.Hour}, message.Failed, pump.OutcomeBusy, time.Hour}, // until it is judged
		{&pump.TaskError{Outcome: pump.OutcomeFailed, After: time.Hour}, message.Failed, pump.OutcomeFailed, time.Hour},
		{&pump.TaskError{Outcome: pump.OutcomeUntried, After: -time.Second}, message.Unfinished, pump.OutcomeUntried, 0},
		{&pump.TaskError{Outcome: pump.OutcomeUntried, After: time.Hour}, message.Postponed, pump.OutcomeUntried, time.Hour},
		{&pump.TaskError{Outcome: pump.OutcomeRejected, After: time.Hour}, message.Rejected, pump.OutcomeRejected, 0},
		{&pump.TaskError{Outcome: pump.OutcomeDone, After: time.Hour}, message.Skipped, pump.OutcomeDone, 0},
	} {
		if v, after := verdictOf(t.Context(), c.err); v != c.is || after != c.after {
			t.Errorf("%v is judged %d after %v, want %d after %v", c.err, v, after, c.is, c.after)
		}
		if word, after := pump.OutcomeOf(c.err); word != c.word || after != c.after {
			t.Errorf("%v is %q after %v, want %q after %v", c.err, word, after, c.word, c.after)
		}
	}
}

// A nil *pump.TaskError as an error is a failure like others: its tasks go into quarantine in the
// end, and the processor goes on.
func TestANilTaskErrorOfAHandlerEndsNoProcess(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 2)
		var none *pump.TaskError
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return none }}
		p := testworld.Begun(w, New, "p", h, Options{Retry: pump.RetryPolicy{MaxAttempts: 2, Base: time.Second}})
		w.Within(time.Minute, "both are in quarantine, in one message", func() bool { return w.Count("accounta", "work-poison") == 1 })
		p.End()
	})
}
