package engine

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

func TestEveryTaskIsHandledOnceAndEveryMessageDeleted(t *testing.T) {
	inWorld(t, 3, 4, nil, func(t *testing.T, w *world) {
		tasks := w.spread(10, 25)
		h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, 100*time.Millisecond) }}
		s := w.drain(h, ProcessorOptions{UntilIdle: 5 * time.Second})
		h.expect(t, tasks, tasks)
		if n := w.left(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
		if s.Handled != int64(tasks) || s.Envelopes != 3*4*10 || s.Failed+s.Retried+s.Quarantined+s.Released+s.Lost != 0 {
			t.Errorf("summary %+v", s)
		}
		if n := h.atOnce(); n != knownDefaultConcurrency {
			t.Errorf("%d tasks at once, want the default concurrency", n)
		}
		t.Logf("%+v", s)
	})
}
