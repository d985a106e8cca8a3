package queues

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

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
					waits.Wait(ctx, time.Duration(10/rate*float64(time.Second)))
				}
			})
		}
		wg.Wait()
	}
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1000)
		proof.Same(t, b.Demand(), 0, "of nothing")
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

// A process that is held back by its share alone asks for the whole limit within a second, whether
// or not it had much to do before.
func TestP81WhoIsHeldBackAsksForMoreAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1000)
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
		proof.Same(t, b.Demand(), 1000, "asks for")
	})
}
