package engine

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

func TestWindow27GetsStopBeforeLeasesRunOutForWantOfDeletes(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(750, 1)
		cfg := w.config("p", 2)
		cfg.Budget = pump.Budget{Account: 40, Queue: 40} // a message's get and delete cost 2
		h := &seen{}
		pr, err := NewProcessor(cfg, h, ProcessorOptions{Visibility: 12 * time.Second, UntilIdle: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s, err := pr.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.expect(t, tasks, tasks)
		if s.Lost != 0 || w.left() != 0 {
			t.Errorf("%d left, %+v", w.left(), s)
		}
		if d := time.Since(began) - time.Minute; d > 100*time.Second {
			t.Errorf("%d messages took %v at 40 requests a second", tasks, d)
		}
	})
}

func TestWindow26AThrottledServerIsNotAskedMoreThanItGives(t *testing.T) {
	inWorld(t, 1, 1, func(c *azsim.Config) { c.Limits = azsim.Limits{Queue: 100, QueueAccount: 100} }, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 10, 1)
		for range 99 {
			time.Sleep(time.Second) // within the limit
			w.put("accounta", "work-00", 10, 1)
		}
		h := &seen{}
		s := w.drain(h, ProcessorOptions{UntilIdle: time.Minute})
		h.expect(t, 1000, 1000)
		if s.Lost != 0 || w.left() != 0 {
			t.Errorf("%d left, %+v", w.left(), s)
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
		tasks := w.spread(100, 1)
		w.fault(azsim.Rule{Fault: azsim.DelayBefore, Delay: 2 * time.Second}, "DeleteMessage")
		h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, 100*time.Millisecond) }}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(3 * time.Second)
		h.expect(t, tasks, tasks)
		time.Sleep(20 * time.Second)
		if w.left() != 0 {
			t.Errorf("%d left: deletes are made one after the other", w.left())
		}
		p.end()
	})
}

func TestWhoIsToldToRetryAfterAWhileDoesSoAndNotAllAtOnce(t *testing.T) {
	inWorld(t, 1, 1, func(c *azsim.Config) {
		c.Limits = azsim.Limits{Queue: 5, QueueAccount: 5, GetCost: 1, RetryAfter: 7 * time.Second}
	}, func(t *testing.T, w *world) {
		for range 20 {
			time.Sleep(time.Second)
			w.put("accounta", "work-00", 1, 1)
		}
		time.Sleep(10 * time.Second)
		h := &seen{}
		s := w.drain(h, ProcessorOptions{UntilIdle: time.Minute})
		h.expect(t, 20, 20)
		time.Sleep(time.Second) // the test's own request is one of five a second
		if s.Throttled > 100 || w.left() != 0 {
			t.Errorf("%d refusals for 20 deletes, %d left", s.Throttled, w.left())
		}
	})
}
