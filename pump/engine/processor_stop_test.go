package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

func TestWindow35AGracefulStopFinishesWhatRunsAndReturnsWhatWasNotStarted(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(8, 10)
		h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, 3*time.Second) }}
		p := w.start(w.processor(h, ProcessorOptions{Concurrency: 15}))
		time.Sleep(8 * time.Second)
		stopped := time.Now()
		s := p.end()
		if d := time.Since(stopped); d > 4*time.Second {
			t.Errorf("it took %v to stop, tasks take 3 s", d)
		}
		if int(s.Handled) != h.tasks() || h.deliveries() != h.tasks() || s.Failed != 0 {
			t.Errorf("started %d, %+v", h.tasks(), s)
		}
		// Whatever is left is visible at once: nobody waits for a lease.
		again := &seen{}
		began := time.Now()
		w.drain(again, ProcessorOptions{UntilIdle: 10 * time.Second})
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("the rest took %v", d)
		}
		again.expect(t, tasks-h.tasks(), tasks-h.tasks())
		for _, task := range again.order {
			if h.times[identity(&task)] > 0 {
				t.Errorf("%s was done before the stop and came again", identity(&task))
			}
			if task.Attempt != 1 {
				t.Errorf("a stop was counted as an attempt: %+v", task)
			}
		}
	})
}

func TestWindow35AHardStopEndsHandlersAndReturnsTheirTasksWithoutAnAttempt(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 2, 3)
		h := &seen{work: func(ctx context.Context, task *pump.Task) error {
			if task.N == 0 {
				return nil
			}
			return pause(ctx, time.Hour)
		}}
		p := w.start(w.processor(h, ProcessorOptions{Grace: 10 * time.Second}))
		time.Sleep(30 * time.Second)
		stopped := time.Now()
		s := p.end()
		if d := time.Since(stopped); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("stopped after %v, want the grace period", d)
		}
		if s.Handled != 1 || s.Released != 5 || s.Failed+s.Retried != 0 {
			t.Errorf("%+v", s)
		}
		again := &seen{}
		w.drain(again, ProcessorOptions{UntilIdle: 10 * time.Second})
		again.expect(t, 5, 5)
		for _, task := range again.order {
			if task.Attempt != 1 || task.N == 0 {
				t.Errorf("%+v", task)
			}
		}
	})
}

func TestWindow35AGetUnderWayAtTheStopIsWaitedForAndItsMessagesReleased(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(100 * time.Millisecond)
		slow := w.fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 4 * time.Second}, "GetMessages")
		w.put("accounta", "work-00", 5, 5)
		for slow.Hits() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		s := p.end()
		if s.Envelopes == 0 || s.Handled != 0 || w.visible("accounta", "work-00") != 5 {
			t.Errorf("%d visible, %+v", w.visible("accounta", "work-00"), s)
		}
	})
}
