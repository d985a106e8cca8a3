package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestEveryTaskIsHandledOnceAndEveryMessageDeleted(t *testing.T) {
	inWorld(t, 3, 4, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(10, 25)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 100*time.Millisecond) }}
		s := w.drain(h, processor.Options{UntilIdle: 5 * time.Second})
		h.Expect(t, tasks, tasks)
		if n := w.Left(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
		if s.Handled != int64(tasks) || s.Envelopes != 3*4*10 || s.Failed+s.Retried+s.Quarantined+s.Released+s.Lost != 0 {
			t.Errorf("summary %+v", s)
		}
		if n := h.AtOnce(); n != defaultConcurrency {
			t.Errorf("%d tasks at once, want the default concurrency", n)
		}
		t.Logf("%+v", s)
	})
}
