package queues

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// let has a brake let through what an endpoint of a rate would, for a while.
type let struct{ done int64 }

func (l *let) through() int64 { return l.done }

func TestABrakeBeginsAtWhatIsLetThroughAndGrowsGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l let
		b := NewBrake(256, l.through)
		for range 5 {
			time.Sleep(time.Second)
			l.done += 40
			b.Grow(time.Now())
		}
		if b.Refused(time.Now(), false) || b.Rate() != 0 {
			t.Fatal("it is on by the refusal of a single task")
		}
		if !b.Refused(time.Now(), true) || b.Rate() < 35 || b.Rate() > 40 {
			t.Fatalf("%v tasks a second, of 40 that were let through", b.Rate())
		}
		// What was begun before is told so for what it did then.
		began := time.Now().Add(-time.Second)
		before := b.Rate()
		time.Sleep(time.Second)
		if b.Refused(began, true); b.Rate() < before {
			t.Errorf("it was cut from %v to %v by what was begun before", before, b.Rate())
		}
		for range 4 {
			time.Sleep(time.Second)
			l.done += 38
			b.Grow(time.Now())
		}
		if rate := b.Rate(); rate < before || rate > 1.3*before {
			t.Errorf("%v became %v in 5 s", before, rate)
		}
		before = b.Rate()
		if b.Refused(time.Now(), false); b.Rate() < 0.85*before || b.Rate() > 0.95*before {
			t.Errorf("cut from %v to %v", before, b.Rate())
		}
		for off := false; !off; {
			time.Sleep(time.Second)
			off = b.Grow(time.Now())
			if b.Rate() > 1000 {
				t.Fatalf("it is on at %v a second, and nothing is done", b.Rate())
			}
		}
		if b.Rate() != 0 || b.Spend(t.Context(), 1000) != nil {
			t.Error("it is not off")
		}
	})
}

func TestABrakeIsNeverQuiteShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l let
		b := NewBrake(256, l.through)
		began := time.Now()
		for n := 0; time.Since(began) < time.Hour; n++ {
			proof.Must(t, b.Spend(t.Context(), 1))
			b.Refused(time.Now(), true)
			b.Grow(time.Now())
			if n > 4000 { // about one a second
				t.Fatalf("%d tasks in %v, and all are refused", n, time.Since(began))
			}
		}
		recovered := time.Now()
		for b.Rate() > 0 && b.Rate() < 100 {
			time.Sleep(time.Second)
			l.done += int64(b.Rate())
			b.Grow(time.Now())
		}
		if took := time.Since(recovered); took > 90*time.Second {
			t.Errorf("it took %v to 100 tasks a second", took)
		}
	})
}
