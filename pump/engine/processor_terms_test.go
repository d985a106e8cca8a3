package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

func TestADurationIsFoundInItsBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(4, math.MaxInt64).Draw(t, "duration"))
		b := spanBucket(d)
		if most := spanOf(b); d > most || float64(most) > 1.25*float64(d) || spanBucket(most) != b {
			t.Fatalf("%v is in the bucket up to %v", d, most)
		}
		if b > 0 && d > 4 && spanOf(b-1) >= d {
			t.Fatalf("%v would be in the bucket below, up to %v", d, spanOf(b-1))
		}
	})
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 3} {
		if spanBucket(d) != spanBucket(4) {
			t.Errorf("%d is in bucket %d", d, spanBucket(d))
		}
	}
}

// P9: what ends in one instant ends in no order.
func TestP9WhatIsMeasuredInOneInstantHasNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instants := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, int64(time.Hour)), 1, 8), 1, 6).Draw(t, "instants")
		var a, b spans
		at := time.Unix(1_700_000_000, 0)
		for _, ended := range instants {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pause")))
			shuffled := rapid.Permutation(ended).Draw(t, "order")
			for i := range ended {
				a.add(time.Duration(ended[i]), at)
				b.add(time.Duration(shuffled[i]), at)
			}
		}
		if a != b {
			t.Fatal("the order of what ended at the same time matters")
		}
	})
}

func TestLeasesFollowTheSlowestMessagesBetweenTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := newTerms(&ProcessorOptions{})
		if got := terms.lease(); got != firstLease {
			t.Errorf("%v before anything was measured", got)
		}
		for _, c := range []struct{ held, least, most time.Duration }{
			{time.Millisecond, leastLease, leastLease},
			{5 * time.Second, leastLease, leastLease},
			{20 * time.Second, 75 * time.Second, 94 * time.Second},
			{time.Minute, 225 * time.Second, 282 * time.Second},
			{10 * time.Minute, mostLease, mostLease},
			{time.Second, leastLease, leastLease},
		} {
			for range 600 { // far longer than eight times any of them
				time.Sleep(time.Minute)
				terms.settled(c.held)
			}
			if got := terms.lease(); got < c.least || got > c.most || got%time.Second != 0 {
				t.Errorf("messages in hand for %v: a lease of %v", c.held, got)
			}
		}
		// One in a hundred is slower: that is what renewals are for.
		for i := range 1000 {
			time.Sleep(time.Second)
			terms.settled(time.Second + time.Duration(i%100/99)*5*time.Minute)
		}
		if got := terms.lease(); got != leastLease {
			t.Errorf("one slow message in a hundred makes a lease of %v", got)
		}
	})
}

func TestAFixedVisibilityAndBaseStayFixed(t *testing.T) {
	terms := newTerms(&ProcessorOptions{Visibility: 12 * time.Second, Retry: pump.RetryPolicy{Base: 3 * time.Second, Max: time.Minute}})
	for range 100 {
		terms.settled(10 * time.Minute)
		terms.handled(10*time.Minute, time.Now())
	}
	if lease, longer := terms.lease(), terms.longer(12*time.Second, time.Hour); lease != 12*time.Second || longer != lease {
		t.Errorf("leases of %v and %v", lease, longer)
	}
	for n, want := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second, 24 * time.Second, 48 * time.Second, time.Minute} {
		if least, most := terms.backoff(uint64(n)); least != 0 || most != want {
			t.Errorf("after %d attempts %v to %v", n, least, most)
		}
	}
}

func TestDelaysFollowHowLongATaskTakes(t *testing.T) {
	for _, c := range []struct {
		took        time.Duration
		least, most []time.Duration // after 0, 1, 2 and 20 attempts
	}{
		{0, []time.Duration{0, 0, 0, 0}, []time.Duration{time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Minute}},
		{time.Millisecond, []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}, []time.Duration{time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Minute}},
		{10 * time.Second, []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second}, []time.Duration{20 * time.Second, 40 * time.Second, 80 * time.Second, 10 * time.Minute}},
		{10 * time.Minute, []time.Duration{5 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute}, []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
	} {
		o, err := ProcessorOptions{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		terms := newTerms(&o)
		if c.took > 0 {
			terms.handled(c.took, time.Now())
		}
		within := func(got, want time.Duration) bool { return got >= want && float64(got) <= 1.25*float64(want) }
		for i, n := range []uint64{0, 1, 2, 20} {
			if least, most := terms.backoff(n); !within(least, c.least[i]) || !within(most, c.most[i]) || least > most {
				t.Errorf("tasks of %v, after %d attempts: %v to %v", c.took, n, least, most)
			}
		}
	}
}

// origins W5: most messages need no renewal, whatever their tasks take, and the
// requests that this saves are shown beside those of a lease of a minute.
func TestW5RenewalsAreRareWhateverTasksTake(t *testing.T) {
	verify.Only(t)
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
				inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
					h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, c.work) }}
					p := w.start(w.processor(h, ProcessorOptions{Visibility: visibility, Concurrency: 4, Timeout: -1}))
					round := func() {
						for range messages {
							w.put("accounta", "work-00", 1, 1)
						}
						for w.left() > 0 {
							time.Sleep(time.Second)
						}
					}
					round() // in which it learns
					before := w.requests("UpdateMessage")
					gets := w.requests("GetMessages")
					round()
					renewals[visibility] = float64(w.requests("UpdateMessage")-before) / messages
					requests[visibility] = renewals[visibility] + 1 + float64(w.requests("GetMessages")-gets)/messages
					lease := p.of.State().LeaseSeconds
					if visibility == 0 && time.Duration(lease)*time.Second > c.crash {
						t.Errorf("a crash delays tasks of %v by %v s", c.work, lease)
					}
					if s := p.end(); s.Handled != 2*messages || s.Lost != 0 {
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

// A task of a kind that never ended before is renewed less and less often.
func TestW5ALongTaskIsRenewedLessAndLessOften(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 1)
		var mu sync.Mutex // guards at
		var at []time.Time
		cfg := w.config("p", 1)
		cfg.Hooks.Request = func(_, _, operation string, _ time.Duration, _ error) {
			if operation == "renew" {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
			}
		}
		h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, time.Hour) }}
		pr, err := NewProcessor(cfg, h, ProcessorOptions{UntilIdle: 5 * time.Second, Timeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		s, err := pr.Run(t.Context())
		if err != nil || s.Handled != 1 || s.Lost != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		h.expect(t, 1, 1)
		var gaps []time.Duration
		for i := 1; i < len(at); i++ {
			gaps = append(gaps, at[i].Sub(at[i-1]).Round(time.Second))
		}
		// At 60 s each it would be 200.
		if len(at) > 50 || slices.Max(gaps) > mostLease/renewPart+time.Second || gaps[0] > firstLease || gaps[len(gaps)-1] < mostLease*leaseOf/leasePart-time.Second {
			t.Errorf("%d renewals, %v apart", len(at), gaps)
		}
		t.Logf("%d renewals in an hour, %v apart", len(at), gaps)
	})
}

// What a crash undoes comes back after the lease that it had, and not later.
func TestW5WhatADeadProcessorHadComesBackInProportionToTheWork(t *testing.T) {
	for work, most := range map[time.Duration]time.Duration{time.Second: 30 * time.Second, 20 * time.Second: 94 * time.Second} {
		t.Run(work.String(), func(t *testing.T) {
			inSharedWorldOf(t, 1, 1, nil, func(t *testing.T, w *world) {
				h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, work) }}
				p := w.start(w.processor(h, ProcessorOptions{Concurrency: 1, Timeout: -1}))
				defer p.end()
				w.put("accounta", "work-00", 10, 1)
				for w.left() > 0 {
					time.Sleep(time.Second)
				}
				w.put("accounta", "work-00", 1, 1)
				time.Sleep(min(work/2, 10*time.Second))
				silent := w.fault(azsim.Rule{Fault: azsim.HangBefore}) // as good as dead
				died := time.Now()
				for w.visible("accounta", "work-00") == 0 {
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
	verify.Only(t)
	for _, c := range []struct{ work, least, most time.Duration }{
		{0, 0, 3 * time.Second}, // whole seconds, and the next poll
		{time.Minute, time.Minute, 3 * time.Minute},
		{10 * time.Minute, 5 * time.Minute, 11 * time.Minute},
	} {
		t.Run(fmt.Sprint(c.work), func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.put("accounta", "work-00", 1, 20)
				var mu sync.Mutex // guards ended and waited
				ended := map[string]time.Time{}
				var waited []time.Duration
				h := &seen{work: func(ctx context.Context, task *pump.Task) error {
					mu.Lock()
					if at, again := ended[identity(task)]; again {
						waited = append(waited, time.Since(at))
						mu.Unlock()
						return nil
					}
					mu.Unlock()
					err := pause(ctx, c.work)
					mu.Lock()
					defer mu.Unlock()
					ended[identity(task)] = time.Now()
					return errors.Join(err, errFlop)
				}}
				s := w.drain(h, ProcessorOptions{UntilIdle: time.Hour, Timeout: -1})
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
