package processor

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

func TestADurationIsFoundInItsBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(4, math.MaxInt64).Draw(t, "duration"))
		b := leases.SpanBucket(d)
		if most := leases.SpanOf(b); d > most || float64(most) > 1.25*float64(d) || leases.SpanBucket(most) != b {
			t.Fatalf("%v is in the bucket up to %v", d, most)
		}
		if b > 0 && d > 4 && leases.SpanOf(b-1) >= d {
			t.Fatalf("%v would be in the bucket below, up to %v", d, leases.SpanOf(b-1))
		}
	})
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 3} {
		proof.Same(t, leases.SpanBucket(d), leases.SpanBucket(4), d, "in bucket")
	}
}

// P9: what ends in one instant ends in no order.
func TestP9WhatIsMeasuredInOneInstantHasNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instants := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, int64(time.Hour)), 1, 8), 1, 6).Draw(t, "instants")
		var a, b leases.Spans
		at := time.Unix(1_700_000_000, 0)
		for _, ended := range instants {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pause")))
			shuffled := rapid.Permutation(ended).Draw(t, "order")
			for i := range ended {
				a.Add(time.Duration(ended[i]), at)
				b.Add(time.Duration(shuffled[i]), at)
			}
		}
		if a != b {
			t.Fatal("the order of what ended at the same time matters")
		}
	})
}

func TestLeasesFollowTheSlowestMessagesBetweenTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := leases.NewTiming(0, pump.RetryPolicy{})
		proof.Same(t, terms.Lease(), leases.FirstLease, "before anything was measured")
		for _, c := range []struct{ held, least, most time.Duration }{
			{time.Millisecond, leases.LeastLease, leases.LeastLease},
			{5 * time.Second, leases.LeastLease, leases.LeastLease},
			{20 * time.Second, 75 * time.Second, 94 * time.Second},
			{time.Minute, 225 * time.Second, 282 * time.Second},
			{10 * time.Minute, leases.MostLease, leases.MostLease},
			{time.Second, leases.LeastLease, leases.LeastLease},
		} {
			for range 600 { // far longer than eight times any of them
				time.Sleep(time.Minute)
				terms.Settled(c.held)
			}
			if got := terms.Lease(); got < c.least || got > c.most || got%time.Second != 0 {
				t.Errorf("messages in hand for %v: a lease of %v", c.held, got)
			}
		}
		// One in a hundred is slower: that is what renewals are for.
		for i := range 1000 {
			time.Sleep(time.Second)
			terms.Settled(time.Second + time.Duration(i%100/99)*5*time.Minute)
		}
		proof.Same(t, terms.Lease(), leases.LeastLease, "one slow message in a hundred makes a lease of")
	})
}

func TestAFixedVisibilityAndBaseStayFixed(t *testing.T) {
	terms := leases.NewTiming(12*time.Second, pump.RetryPolicy{Base: 3 * time.Second, Max: time.Minute})
	for range 100 {
		terms.Settled(10 * time.Minute)
		terms.Handled(10*time.Minute, time.Now())
	}
	if lease, longer := terms.Lease(), terms.Longer(12*time.Second, time.Hour); lease != 12*time.Second || longer != lease {
		t.Errorf("leases of %v and %v", lease, longer)
	}
	for n, want := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second, 24 * time.Second, 48 * time.Second, time.Minute} {
		if least, most := terms.Backoff(uint64(n)); least != 0 || most != want {
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
		o, err := Options{}.withDefaults()
		must(t, err)
		retry, err := setup.Retry(o.Retry)
		must(t, err)
		terms := leases.NewTiming(o.Visibility, retry)
		if c.took > 0 {
			terms.Handled(c.took, time.Now())
		}
		within := func(got, want time.Duration) bool { return got >= want && float64(got) <= 1.25*float64(want) }
		for i, n := range []uint64{0, 1, 2, 20} {
			if least, most := terms.Backoff(n); !within(least, c.least[i]) || !within(most, c.most[i]) || least > most {
				t.Errorf("tasks of %v, after %d attempts: %v to %v", c.took, n, least, most)
			}
		}
	}
}

// A task of a kind that never ended before is renewed less and less often.
func TestW5ALongTaskIsRenewedLessAndLessOften(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		var mu sync.Mutex // guards at
		var at []time.Time
		cfg := w.Config("p", 1)
		cfg.Hooks.Request = func(_, _, operation string, _ time.Duration, _ error) {
			if operation == "renew" {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
			}
		}
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		pr, err := New(cfg, h, Options{UntilIdle: 5 * time.Second, Timeout: -1})
		must(t, err)
		s, err := pr.Run(t.Context())
		if err != nil || s.Handled != 1 || s.Lost != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		h.Expect(t, 1, 1)
		var gaps []time.Duration
		for i := 1; i < len(at); i++ {
			gaps = append(gaps, at[i].Sub(at[i-1]).Round(time.Second))
		}
		// At 60 s each it would be 200.
		if len(at) > 50 || slices.Max(gaps) > leases.MostLease/message.RenewPart+time.Second || gaps[0] > leases.FirstLease || gaps[len(gaps)-1] < leases.MostLease*leases.LeaseOf/leases.LeasePart-time.Second {
			t.Errorf("%d renewals, %v apart", len(at), gaps)
		}
		t.Logf("%d renewals in an hour, %v apart", len(at), gaps)
	})
}
