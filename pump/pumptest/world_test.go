package pumptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestStepsGoFromOutcomeToOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("no")
		h := pump.HandlerFunc(func(_ context.Context, t *pump.Task) error {
			switch t.Attempt {
			case 1:
				return pump.RetryAfter(time.Hour, fails)
			case 2:
				panic("oh")
			}
			return fails
		})
		w := New(t, pump.Config{Delivery: pump.Once, Workload: "steps"}, h,
			processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3, Max: 2 * time.Hour}})
		w.Send(map[string]int{"a": 1})
		first, second := w.Step(), w.Step()
		w.Retried(2)
		if first.Outcome != pump.OutcomeRetry || !errors.Is(first.Err, fails) || first.Key != `{"a":1}` ||
			second.Outcome != pump.OutcomeFailed || !errors.Is(second.Err, errPanicked) ||
			second.After-first.After < time.Hour {
			t.Errorf("%+v, %+v", first, second)
		}
		w.Step()
		w.Quarantined(1, "attempts: no")
		w.Done(0)
		if said := w.story(); !strings.Contains(said, `s: {"a":1} is failed at attempt 3: no`) {
			t.Error(said)
		}
	})
}

// A handler may put other values into its task: when the task is tried again, or is in quarantine, it
// is as it was sent, also if others of its message are done.
func TestATaskIsTriedAgainAsItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, even := map[string]int{}, 0
		w := New(t, pump.Config{Delivery: pump.Once}, pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
			seen[fmt.Sprintf("%s %s %s", task.Key, task.ID, task.Body)]++
			odd := task.N%2 == 1
			clear(task.Key[:1])
			clear(task.Body) // as who decrypts it where it stands
			*task = pump.Task{Key: []byte("other"), ID: "other", Body: []byte("other"), N: 1 << 40}
			if !odd {
				even++
				return nil
			}
			return errors.New("again")
		}), processor.Options{Concurrency: 1, Retry: pump.RetryPolicy{MaxAttempts: 3}})
		var all []any
		for i := range 400 {
			all = append(all, fmt.Sprint("task ", i))
		}
		w.Send(all...)
		w.Advance(2 * time.Hour)
		for task, times := range seen {
			if strings.Contains(task, "other") || times != 1 && times != 3 {
				t.Fatalf("%s was tried %d times", task, times)
			}
		}
		proof.Same(t, len(seen), 400, "tasks")
		w.Done(even)
		w.Quarantined(400-even, "again")
	})
}
