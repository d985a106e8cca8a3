package leases_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
		proof.Must(t, err)
		p := testworld.Start(w.T, pr)
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
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
				proof.Must(t, err)
				p := testworld.Start(w.T, pr)
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

// origins W5: most messages need no renewal, whatever their tasks take, and the
// requests that this saves are shown beside those of a lease of a minute.
func TestW5RenewalsAreRareWhateverTasksTake(t *testing.T) {
	proof.Only(t)
	const messages = 40
	for _, c := range []struct {
		work    time.Duration
		most    float64 // renewals for each message, once leases follow
		crash   time.Duration
		savings bool
	}{
		{time.Second, 0, 30 * time.Second, false},
		{30 * time.Second, 0.1, 130 * time.Second, true},
		{2 * time.Minute, 1.1, 5 * time.Minute, true},
		{10 * time.Minute, 8, 5 * time.Minute, true},
	} {
		t.Run(c.work.String(), func(t *testing.T) {
			renewals := map[time.Duration]float64{}
			requests := map[time.Duration]float64{}
			for _, visibility := range []time.Duration{time.Minute, 0} {
				testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
					h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, c.work) }}
					p := testworld.Begun(w, processor.New, "p", h, processor.Options{Visibility: visibility, Concurrency: 4, Timeout: -1})
					round := func() {
						for range messages {
							w.Put("accounta", "work-00", 1, 1)
						}
						for w.Left() > 0 {
							time.Sleep(time.Second)
						}
					}
					round() // in which it learns
					before := w.Requests("UpdateMessage")
					gets := w.Requests("GetMessages")
					round()
					renewals[visibility] = float64(w.Requests("UpdateMessage")-before) / messages
					requests[visibility] = renewals[visibility] + 1 + float64(w.Requests("GetMessages")-gets)/messages
					lease := p.Of.State().LeaseSeconds
					if visibility == 0 && time.Duration(lease)*time.Second > c.crash {
						t.Errorf("a crash delays tasks of %v by %v s", c.work, lease)
					}
					if s := p.End(); s.Handled != 2*messages || s.Lost != 0 {
						t.Errorf("%+v", s)
					}
					t.Logf("work %v, visibility %v: lease %v s, %.2f renewals a message, %.2f requests", c.work, visibility, lease, renewals[visibility], requests[visibility])
				})
			}
			if got := renewals[0]; got > c.most {
				t.Errorf("%.2f renewals a message", got)
			}
			if c.savings && renewals[0] > renewals[time.Minute]/3 {
				t.Errorf("%.2f renewals a message, and %.2f with leases of a minute", renewals[0], renewals[time.Minute])
			}
		})
	}
}

// What a crash undoes comes back after the lease that it had, and not later.
func TestW5WhatADeadProcessorHadComesBackInProportionToTheWork(t *testing.T) {
	for work, most := range map[time.Duration]time.Duration{time.Second: 30 * time.Second, 20 * time.Second: 94 * time.Second} {
		t.Run(work.String(), func(t *testing.T) {
			testworld.In(t, testworld.Shared, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, work) }}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1, Timeout: -1})
				defer p.End()
				w.Put("accounta", "work-00", 10, 1)
				for w.Left() > 0 {
					time.Sleep(time.Second)
				}
				w.Put("accounta", "work-00", 1, 1)
				time.Sleep(min(work/2, 10*time.Second))
				silent := w.Fault(azsim.Rule{Fault: azsim.HangBefore}) // as good as dead
				died := time.Now()
				for w.Visible("accounta", "work-00") == 0 {
					time.Sleep(100 * time.Millisecond)
				}
				if got := time.Since(died); got > most {
					t.Errorf("the task came back after %v, %v at most is needed", got, most)
				}
				silent.Remove()
			})
		})
	}
}

// A task that fails is tried again when about as much time has passed as it takes.
func TestW5ATaskIsTriedAgainAtItsOwnPace(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct{ work, least, most time.Duration }{
		{0, 0, 3 * time.Second}, // whole seconds, and the next poll
		{time.Minute, time.Minute, 3 * time.Minute},
		{10 * time.Minute, 5 * time.Minute, 11 * time.Minute},
	} {
		t.Run(fmt.Sprint(c.work), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 1, 20)
				var mu sync.Mutex // guards ended and waited
				ended := map[string]time.Time{}
				var waited []time.Duration
				h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
					mu.Lock()
					if at, again := ended[testworld.Identity(task)]; again {
						waited = append(waited, time.Since(at))
						mu.Unlock()
						return nil
					}
					mu.Unlock()
					err := testworld.Pause(ctx, c.work)
					mu.Lock()
					defer mu.Unlock()
					ended[testworld.Identity(task)] = time.Now()
					return errors.Join(err, testworld.ErrFlop)
				}}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: time.Hour, Timeout: -1})
				if s.Handled != 20 || s.Failed != 20 {
					t.Fatalf("%+v", s)
				}
				if least, most := slices.Min(waited), slices.Max(waited); least < c.least || most > c.most {
					t.Errorf("tried again after %v to %v", least, most)
				}
			})
		})
	}
}
