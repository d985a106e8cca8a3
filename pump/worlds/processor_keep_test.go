package worlds

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// Back-off between the tries of one renewal must not grow with how often the
// message was renewed before: with three tries instead of ten a message that is
// worked on for an hour would be lost to trouble that a young one survives.
func TestARenewalIsTriedAgainSoonHoweverOldTheMessageIs(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 8, 1)
		var mu sync.Mutex // guards tries
		var tries []time.Time
		cfg := w.Config("p", 1)
		cfg.Hooks.Request = func(_, _, operation string, _ time.Duration, err error) {
			if operation == "renew" && err != nil {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
			}
		}
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 31*time.Minute) }}
		pr, err := processor.New(cfg, h, processor.Options{UntilIdle: 5 * time.Second, Timeout: -1, Visibility: time.Minute})
		must(t, err)
		p := w.start(pr)
		time.Sleep(30 * time.Minute)
		busy := w.Fault(azsim.Rule{Fault: azsim.Answer}, "UpdateMessage")
		time.Sleep(27 * time.Second) // of 30 s for which each message is still safe
		busy.Remove()
		<-p.Done
		if p.Err != nil || p.Summary.Lost != 0 || p.Summary.Handled != 8 {
			t.Errorf("%v, %+v", p.Err, p.Summary)
		}
		// Within 27 s less up to 4 s until the first is due: 1, 2, 4, 8, 10 s at most
		// between two tries of a message, half of that on average.
		slices.SortFunc(tries, time.Time.Compare)
		if len(tries) < 8*5 {
			t.Errorf("%d tries for 8 messages", len(tries))
		}
		t.Logf("%d tries", len(tries))
	})
}

// The service's clock goes on while a machine is suspended, so what was in hand is
// another's; the handlers are told as soon as the machine wakes.
func TestLeasesInHandAreOverWhenTheMachineWasSuspendedForLonger(t *testing.T) {
	for name, c := range map[string]struct {
		slept time.Duration
		over  bool
	}{
		"suspended for ten minutes":     {10 * time.Minute, true},
		"a clock that was set by 1.5 s": {1500 * time.Millisecond, false},
		"a clock that was set back":     {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.Put("accounta", "work-00", 8, 1)
				wakes := time.Now().Add(30 * time.Second)
				cfg := w.Config("p", 1)
				sim.In(&cfg).Seeding.Ahead = func(at time.Time) time.Duration {
					if at.Before(wakes) {
						return 0
					}
					return c.slept
				}
				var mu sync.Mutex // guards ended
				var ended []time.Time
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
					err := testworld.Pause(ctx, time.Minute)
					if err != nil && time.Now().Before(wakes.Add(20*time.Second)) {
						mu.Lock()
						defer mu.Unlock()
						ended = append(ended, time.Now())
					}
					return err
				}}
				pr, err := processor.New(cfg, h, processor.Options{UntilIdle: 5 * time.Second, Timeout: -1, Visibility: time.Minute})
				must(t, err)
				p := w.start(pr)
				<-p.Done
				mu.Lock()
				defer mu.Unlock()
				if got := len(ended) > 0; got != c.over || p.Err != nil {
					t.Fatalf("%d handlers were ended, error %v", len(ended), p.Err)
				}
				for _, at := range ended {
					if late := at.Sub(wakes); late > 3*time.Second {
						t.Errorf("a handler was ended %v after the machine woke", late)
					}
				}
				if p.Summary.Handled < 8 {
					t.Errorf("%d of 8 tasks handled", p.Summary.Handled)
				}
			})
		})
	}
}
