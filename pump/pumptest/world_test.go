package pumptest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
