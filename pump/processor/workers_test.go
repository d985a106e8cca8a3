package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

func TestTheContextsOfHandlersSayWhyTheyEnd(t *testing.T) {
	for cause, judged := range map[error]message.Verdict{leases.ErrEnded: message.Unfinished, ErrStopped: message.Unfinished, ErrTimedOut: message.Failed} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		for _, err := range []error{context.Canceled, testworld.ErrFlop, errors.New("exec: killed")} {
			if v, _ := verdictOf(ctx, err); v != judged {
				t.Errorf("%v under %q is judged %d, want %d", err, cause, v, judged)
			}
		}
		// What the handler says outright holds all the same.
		if v, _ := verdictOf(ctx, nil); v != message.Finished {
			t.Errorf("done under %q is judged %d", cause, v)
		}
		if v, _ := verdictOf(ctx, pump.Reject(testworld.ErrFlop)); v != message.Rejected {
			t.Errorf("a rejection under %q is judged %d", cause, v)
		}
		if v, _ := verdictOf(ctx, fmt.Errorf("wrapped: %w", pump.Release(testworld.ErrFlop))); v != message.Unfinished {
			t.Errorf("a release under %q is judged %d", cause, v)
		}
		if v, after := verdictOf(ctx, fmt.Errorf("wrapped: %w", pump.RetryAfter(time.Minute, nil))); v != message.Retry || after != time.Minute {
			t.Errorf("a retry under %q is judged %d, %v", cause, v, after)
		}
		if text := cause.Error(); !strings.Contains(text, "task") && !strings.Contains(text, "message") {
			t.Errorf("%q does not say what it is about", cause)
		}
	}
}

// TestHandlersThatHangAreCountedAndSaid within ten seconds of being overdue, and the processor ends
// within its grace all the same.
func TestHandlersThatHangAreCountedAndSaid(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		const handlers = 32
		w.Put("accounta", "work-00", 1, 2*handlers)
		release := make(chan struct{})
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { <-release; return nil }}
		p := testworld.Begun(w, New, "p", h, Options{Concurrency: handlers, Timeout: -1, Grace: time.Second})
		w.Within(5*time.Second, "all are at work", func() bool { return h.AtOnce() == handlers })
		began := time.Now()
		time.Sleep(overdueAfter - 5*time.Second)
		if s := p.Of.State(); !s.Ready || s.HandlersOverdue != 0 || s.OldestHandler == nil || began.Sub(*s.OldestHandler) > 5*time.Second {
			t.Errorf("before: ready %v %v, overdue %d, oldest %v", s.Ready, s.Reasons, s.HandlersOverdue, s.OldestHandler)
		}
		time.Sleep(10 * time.Second)
		s := p.Of.State()
		if s.Ready || s.HandlersOverdue != handlers || !strings.HasPrefix(s.Reasons[0], "its 32 handlers have not returned, the first since ") {
			t.Errorf("after: ready %v %v, overdue %d", s.Ready, s.Reasons, s.HandlersOverdue)
		}
		proof.Same(t, w.Logged("handlers have not returned"), 1, "it is said … times")
		time.Sleep(time.Hour)
		proof.Same(t, w.Logged("handlers have not returned"), 1, "it is said … times in an hour")
		began = time.Now()
		p.End()
		if took := time.Since(began); took > time.Second+3*hardGrace {
			t.Errorf("it took %v to end", took)
		}
		close(release)
	})
}

// An operator lifts the limit of the rate in the very moment in which a slot has taken a task that
// was to wait for its turn.
func TestTasksAreStartedWhenTheLimitOfTheRateGoes(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 5)
		h := &testworld.Seen{}
		r := testworld.Made(w, New, "p", h, Options{MaxRate: 100}).newProcessing(t.Context())
		r.rate.budget = func() *queues.Budget {
			v := *r.Queues.Values()
			v.MaxRate = 0
			r.Queues.SetValues(v)
			return r.Queues.Tasks.Load()
		}
		ready(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, r.poller.Run(ctx))
		r.stop()
		h.Expect(t, 5, 5)
	})
}
