package queues

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestAnotherTargetKeepsACutInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-6*want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		b := NewBudget(1000)
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
		b := NewBudget(1000)
		b.SetTarget(1)
		b.Charge(100)
		took := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			proof.Is(t, b.Spend(t.Context(), ClassPut, 1), nil)
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
