package pump

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnotherTargetKeepsACutInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-6*want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		b := newBudget(1000)
		b.setTarget(400)
		near("a share", b.rate(), 400)
		b.throttled()
		near("cut", b.rate(), 360)
		b.setTarget(100)
		near("cut, of a smaller share", b.rate(), 90)
		b.setTarget(800)
		near("cut, of a larger share", b.rate(), 720)
		time.Sleep(2 * time.Second)
		near("on the way to the new target", b.rate(), 720+2*16*1.2)
		time.Sleep(3 * time.Second)
		near("there", b.rate(), 800)
		b.setTarget(1000)
		near("uncut", b.rate(), 1000)
		// A cut of a moment ago is one piece of news still, whatever the share is now.
		b.throttled()
		b.setTarget(500)
		b.throttled()
		near("two throttles at once", b.rate(), 450)
	})
}

func TestAnotherTargetReachesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000)
		b.setTarget(1)
		b.charge(100)
		took := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			if err := b.spend(t.Context(), classPut, 1); err != nil {
				t.Error(err)
			}
			took <- time.Since(began)
		}()
		time.Sleep(time.Second)
		b.setTarget(1000)
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
	ask := func(t *testing.T, b *budget, rate float64, d time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = b.spend(ctx, classPut, 1)
					waitFor(ctx, time.Duration(10/rate*float64(time.Second)))
				}
			})
		}
		wg.Wait()
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000)
		if d := b.demand(); d != 0 {
			t.Errorf("of nothing: %v", d)
		}
		ask(t, b, 200, 5*time.Second)
		if d := b.demand(); math.Abs(d-200) > 10 {
			t.Errorf("of 200 a second, all granted: %v", d)
		}
		time.Sleep(5 * time.Second)
		if d := b.demand(); d > 200/16 {
			t.Errorf("five seconds later: %v", d)
		}
		b.setTarget(50)
		time.Sleep(time.Second)
		ask(t, b, 200, 2*time.Second)
		if d := b.demand(); d < 200 {
			t.Errorf("of 200 a second of which 50 are granted: %v", d)
		}
		b.setTarget(1000)
		time.Sleep(time.Minute)
		if d := b.demand(); d > 0.01 {
			t.Errorf("of nothing for a minute: %v", d)
		}
		b.charge(500)
		time.Sleep(time.Second)
		if d := b.demand(); math.Abs(d-500) > 1 {
			t.Errorf("of 500 that were charged: %v", d)
		}
	})
}

// Whoever is held back by its share alone asks for the whole limit within a second, whether or not it had much to do before.
func TestP81WhoIsHeldBackAsksForMoreAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000)
		b.setTarget(10)
		b.demand()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.Sleep(400 * time.Millisecond) // nothing to do for a part of the time
		go func() {
			for b.spend(ctx, classPut, 1) == nil {
			}
		}()
		time.Sleep(600 * time.Millisecond)
		if d := b.demand(); d != 1000 {
			t.Errorf("asks for %v", d)
		}
	})
}
