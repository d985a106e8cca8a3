package quota

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
)

func TestAnotherTargetKeepsACutInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-6*want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		b := New(1000)
		b.SetTarget(400)
		near("a share", b.Rate(), 400)
		b.Throttled()
		near("cut", b.Rate(), 360)
		b.SetTarget(100)
		near("cut, of a smaller share", b.Rate(), 90)
		b.SetTarget(800)
		near("cut, of a larger share", b.Rate(), 720)
		time.Sleep(2 * time.Second)
		near("on the way to the new target", b.Rate(), 720+2*16*1.2)
		time.Sleep(3 * time.Second)
		near("there", b.Rate(), 800)
		b.SetTarget(1000)
		near("uncut", b.Rate(), 1000)
		// A cut of a moment ago is one piece of news still, whatever the share is now.
		b.Throttled()
		b.SetTarget(500)
		b.Throttled()
		near("two throttles at once", b.Rate(), 450)
	})
}

func TestAnotherTargetReachesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		b.SetTarget(1)
		b.Charge(100)
		took := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			if err := b.Spend(t.Context(), ClassPut, 1); err != nil {
				t.Error(err)
			}
			took <- time.Since(began)
		}()
		time.Sleep(time.Second)
		b.SetTarget(1000)
		if d := <-took; d > 1200*time.Millisecond {
			t.Errorf("waited %v, as for the old share", d)
		}
	})
}

func TestTheBurstsOfManyStayUnderTheLimitOfASecond(t *testing.T) {
	for _, limit := range []float64{2_000, 20_000} {
		for _, n := range []float64{1, 2, 10, 100, 200} {
			if sum := n * float64(burstOf(limit/n, leastBurst)); sum > limit {
				t.Errorf("%v members on a limit of %v may spend %v at once", n, limit, sum)
			}
		}
	}
}

func TestP81ADemandIsWhatAProcessWouldSpend(t *testing.T) {
	// ask spends so much a second, evenly, from some goroutines, for a while.
	ask := func(t *testing.T, b *Budget, rate float64, d time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = b.Spend(ctx, ClassPut, 1)
					backoff.Wait(ctx, time.Duration(10/rate*float64(time.Second)))
				}
			})
		}
		wg.Wait()
	}
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		if d := b.Demand(); d != 0 {
			t.Errorf("of nothing: %v", d)
		}
		ask(t, b, 200, 5*time.Second)
		if d := b.Demand(); math.Abs(d-200) > 10 {
			t.Errorf("of 200 a second, all granted: %v", d)
		}
		time.Sleep(5 * time.Second)
		if d := b.Demand(); d > 200/16 {
			t.Errorf("five seconds later: %v", d)
		}
		b.SetTarget(50)
		time.Sleep(time.Second)
		ask(t, b, 200, 2*time.Second)
		if d := b.Demand(); d < 200 {
			t.Errorf("of 200 a second of which 50 are granted: %v", d)
		}
		b.SetTarget(1000)
		time.Sleep(time.Minute)
		if d := b.Demand(); d > 0.01 {
			t.Errorf("of nothing for a minute: %v", d)
		}
		b.Charge(500)
		time.Sleep(time.Second)
		if d := b.Demand(); math.Abs(d-500) > 1 {
			t.Errorf("of 500 that were charged: %v", d)
		}
	})
}

// Whoever is held back by its share alone asks for the whole limit within a second, whether or not it had much to do before.
func TestP81WhoIsHeldBackAsksForMoreAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		b.SetTarget(10)
		b.Demand()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.Sleep(400 * time.Millisecond) // nothing to do for a part of the time
		go func() {
			for b.Spend(ctx, ClassPut, 1) == nil {
			}
		}()
		time.Sleep(600 * time.Millisecond)
		if d := b.Demand(); d != 1000 {
			t.Errorf("asks for %v", d)
		}
	})
}
