package queues

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestP81AShareGrowsWhenAllHaveLookedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Sharing{
			Instance: "p000", Accounts: []string{"account000"},
			Limits: Limits{Account: 1_000, Queue: 10_000}, Beat: viewBeat,
		}
		read := func(demands ...float64) {
			v := crowd(t, len(demands), 0, 1, 1, 0)
			for i, d := range demands {
				v.Members[i].Demand = map[string]float64{"account000": d}
			}
			s.Observe(v)
		}
		expect := func(when string, want float64) {
			t.Helper()
			if got := s.Targets().Accounts["account000"]; math.Abs(got-want) > 1 {
				t.Errorf("%s: %.1f, want %.1f", when, got, want)
			}
		}
		read(1_000, 1_000)
		s.Advance(time.Now())
		expect("just joined, the other knows nothing of it", 125)
		time.Sleep(viewBeat)
		s.Advance(time.Now())
		expect("the other has looked", 500)
		read(1_000, 1_000, 1_000)
		s.Advance(time.Now())
		expect("a third has come: less at once", 1000./3)
		time.Sleep(viewBeat)
		read(1_000, 0, 1_000)
		s.Advance(time.Now())
		expect("one needs nothing any more, but the third may take all of its share", 1000./3+125)
		time.Sleep(viewBeat - time.Millisecond)
		s.Advance(time.Now())
		expect("not everybody has looked", 1000./3+125)
		time.Sleep(time.Millisecond)
		changed, _ := s.Advance(time.Now())
		proof.Same(t, changed, true, "everybody has looked")
		expect("everybody has looked", (1000-1000./12)/2)
		read(1_000, 0)
		expect("one has left", 875)
	})
}
