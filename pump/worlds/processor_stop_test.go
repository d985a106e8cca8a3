package worlds

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestWindow35AGracefulStopFinishesWhatRunsAndReturnsWhatWasNotStarted(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(8, 10)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 3*time.Second) }}
		p := w.start(w.processor(h, processor.Options{Concurrency: 15}))
		time.Sleep(8 * time.Second)
		stopped := time.Now()
		s := p.End()
		if d := time.Since(stopped); d > 4*time.Second {
			t.Errorf("it took %v to stop, tasks take 3 s", d)
		}
		if int(s.Handled) != h.Tasks() || h.Deliveries() != h.Tasks() || s.Failed != 0 {
			t.Errorf("started %d, %+v", h.Tasks(), s)
		}
		// Whatever is left is visible at once: no process waits for a lease.
		again := &testworld.Seen{}
		began := time.Now()
		w.drain(again, processor.Options{UntilIdle: 10 * time.Second})
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("the rest took %v", d)
		}
		again.Expect(t, tasks-h.Tasks(), tasks-h.Tasks())
		for _, task := range again.Order {
			if h.Times[testworld.Identity(&task)] > 0 {
				t.Errorf("%s was done before the stop and came again", testworld.Identity(&task))
			}
			if task.Attempt != 1 {
				t.Errorf("a stop was counted as an attempt: %+v", task)
			}
		}
	})
}

func TestWindow35AHardStopEndsHandlersAndReturnsTheirTasksWithoutAnAttempt(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 2, 3)
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
			if task.N == 0 {
				return nil
			}
			return testworld.Pause(ctx, time.Hour)
		}}
		p := w.start(w.processor(h, processor.Options{Grace: 10 * time.Second}))
		time.Sleep(30 * time.Second)
		stopped := time.Now()
		s := p.End()
		if d := time.Since(stopped); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("stopped after %v, want the grace period", d)
		}
		if s.Handled != 1 || s.Released != 5 || s.Failed+s.Retried != 0 {
			t.Errorf("%+v", s)
		}
		again := &testworld.Seen{}
		w.drain(again, processor.Options{UntilIdle: 10 * time.Second})
		again.Expect(t, 5, 5)
		for _, task := range again.Order {
			if task.Attempt != 1 || task.N == 0 {
				t.Errorf("%+v", task)
			}
		}
	})
}

func TestWindow35AGetUnderWayAtTheStopIsWaitedForAndItsMessagesReleased(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		time.Sleep(100 * time.Millisecond)
		slow := w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 4 * time.Second}, "GetMessages")
		w.Put("accounta", "work-00", 5, 5)
		for slow.Hits() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		s := p.End()
		if s.Envelopes == 0 || s.Handled != 0 || w.Visible("accounta", "work-00") != 5 {
			t.Errorf("%d visible, %+v", w.Visible("accounta", "work-00"), s)
		}
	})
}
