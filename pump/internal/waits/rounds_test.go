package waits

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestASleepEndsWithItsTimeAWakeOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake, closed := make(chan struct{}, 1), make(chan struct{})
		close(closed)
		ended, end := context.WithCancel(t.Context())
		end()
		wake <- struct{}{}
		for _, c := range []struct {
			what string
			ctx  context.Context
			wake chan struct{}
			took time.Duration
			over bool
		}{
			{"a token", t.Context(), wake, 0, false},
			{"no token any more", t.Context(), wake, time.Minute, true},
			{"a closed channel", t.Context(), closed, 0, false},
			{"no channel", t.Context(), nil, time.Minute, true},
			{"a context that has ended", ended, nil, 0, false},
		} {
			began := time.Now()
			over := Sleep(c.ctx, time.Minute, c.wake)
			if took := time.Since(began); over != c.over || took != c.took {
				t.Errorf("%s: it slept for %v, over: %v", c.what, took, over)
			}
		}
	})
}

func TestALoopRestsAsLongAsItsRoundSaysOrUntilItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		wake := make(chan struct{}, 1)
		began := time.Now()
		var at []time.Duration
		Loop(ctx, wake, func() time.Duration {
			at = append(at, time.Since(began))
			switch len(at) {
			case 1:
				return time.Second
			case 2:
				wake <- struct{}{}
				return time.Hour
			}
			end()
			return time.Hour
		})
		if len(at) != 3 || at[0] != 0 || at[1] != time.Second || at[2] != time.Second {
			t.Errorf("rounds began after %v", at)
		}
		proof.Same(t, time.Since(began), time.Second, "the loop ended after")
		Loop(ctx, wake, func() time.Duration { t.Error("a round after the end"); return 0 })
	})
}

func TestEveryTickHasItsTimeUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer end()
		began := time.Now()
		var at []time.Duration
		Every(ctx, time.Second, func(now time.Time) { at = append(at, now.Sub(began)) })
		if len(at) != 3 || at[0] != time.Second || at[2] != 3*time.Second {
			t.Errorf("ticks came after %v", at)
		}
	})
}
