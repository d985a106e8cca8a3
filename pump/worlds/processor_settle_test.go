package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestWindow27GetsStopBeforeLeasesRunOutForWantOfDeletes(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(750, 1)
		cfg := w.Config("p", 2)
		cfg.Budget = pump.Budget{Account: 40, Queue: 40} // a message's get and delete cost 2
		h := &testworld.Seen{}
		pr, err := processor.New(cfg, h, processor.Options{Visibility: 12 * time.Second, UntilIdle: time.Minute})
		must(t, err)
		began := time.Now()
		s, err := pr.Run(t.Context())
		must(t, err)
		h.Expect(t, tasks, tasks)
		if s.Lost != 0 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		if d := time.Since(began) - time.Minute; d > 100*time.Second {
			t.Errorf("%d messages took %v at 40 requests a second", tasks, d)
		}
	})
}

func TestWindow26AThrottledServerIsNotAskedMoreThanItGives(t *testing.T) {
	inWorld(t, 1, 1, func(c *azsim.Config) { c.Limits = azsim.Limits{Queue: 100, QueueAccount: 100} }, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 10, 1)
		for range 99 {
			time.Sleep(time.Second) // within the limit
			w.Put("accounta", "work-00", 10, 1)
		}
		h := &testworld.Seen{}
		s := w.drain(h, processor.Options{UntilIdle: time.Minute})
		h.Expect(t, 1000, 1000)
		if s.Lost != 0 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		// This process believes in 2,000 a second and must find out that it is 100.
		if share := float64(s.Throttled) / float64(s.Requests.Total()); share > 0.5 {
			t.Errorf("%.0f %% of %d requests were refused", 100*share, s.Requests.Total())
		}
		t.Logf("%d of %d requests refused, %.0f s", s.Throttled, s.Requests.Total(), s.Seconds)
	})
}

func TestASlowDeleteHoldsUpNeitherHandlersNorGets(t *testing.T) {
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(100, 1)
		w.Fault(azsim.Rule{Fault: azsim.DelayBefore, Delay: 2 * time.Second}, "DeleteMessage")
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 100*time.Millisecond) }}
		p := w.start(w.processor(h, processor.Options{}))
		time.Sleep(3 * time.Second)
		h.Expect(t, tasks, tasks)
		time.Sleep(20 * time.Second)
		if w.Left() != 0 {
			t.Errorf("%d left: deletes are made one after the other", w.Left())
		}
		p.End()
	})
}

func TestWhoIsToldToRetryAfterAWhileDoesSoAndNotAllAtOnce(t *testing.T) {
	inWorld(t, 1, 1, func(c *azsim.Config) {
		c.Limits = azsim.Limits{Queue: 5, QueueAccount: 5, GetCost: 1, RetryAfter: 7 * time.Second}
	}, func(t *testing.T, w *world) {
		for range 20 {
			time.Sleep(time.Second)
			w.Put("accounta", "work-00", 1, 1)
		}
		time.Sleep(10 * time.Second)
		h := &testworld.Seen{}
		s := w.drain(h, processor.Options{UntilIdle: time.Minute})
		h.Expect(t, 20, 20)
		time.Sleep(time.Second) // the test's own request is one of five a second
		if s.Throttled > 100 || w.Left() != 0 {
			t.Errorf("%d refusals for 20 deletes, %d left", s.Throttled, w.Left())
		}
	})
}
