package worlds

import (
	"math"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/status"
)

// The process that samples is cut off, and then the one after it, each until others have its place;
// then both are back. The history goes on each time, and the day's sum is that of the accounts' own
// counts.
func TestTheHistoryAndTheDaysSumOutliveTheirWriters(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		time.Sleep(12 * time.Hour)
		before, messages := w.asked(), 0
		h := &testworld.Seen{}
		p, q, r := w.sampling("p", h, nil), w.sampling("q", h, nil), w.sampling("r", h, nil)
		work := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				messages += w.PutHome([]uint32{1, 20, 40, 60}, 1)
			}
		}
		sum := func(when string, least float64) {
			t.Helper()
			spent := w.asked().Since(before)
			spent.Queue -= uint64(messages)
			s := w.status(status.Options{})
			want := s.Money.Prices.Cost(float64(spent.Queue), float64(spent.Table))
			if c := s.Money.DayCost; c == nil || *c > 1.02*want || *c < least*want {
				t.Errorf("%s: the day costs %v, and what was asked %v", when, *c, want)
			}
		}
		cut := func(instance string) *azsim.Injection {
			return w.Fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore})
		}
		work(15 * time.Minute)
		sum("p samples", 0.95) // what was asked since the last beats is not said: 12 to 20 s of 900
		first := cut("p")
		work(15 * time.Minute)
		sum("p is cut off", 0.9) // what it tries to ask is not known
		second := cut("q")
		work(15 * time.Minute)
		sum("q is cut off too", 0.8)
		first.Remove()
		second.Remove()
		work(15 * time.Minute)
		sum("both are back, and say what they have tried", 0.98)
		points, err := status.History(t.Context(), w.Operator(), time.Time{})
		if err != nil || len(points) < 50 {
			t.Fatalf("%d points, %v", len(points), err)
		}
		var all sampling.Requests
		for i, point := range points {
			all = all.Add(sampling.Requests(point.Accounts[0].Requests))
			if i > 0 && point.Time.Sub(points[i-1].Time) > 3*time.Minute {
				t.Errorf("nothing from %v to %v", points[i-1].Time, point.Time)
			}
			if i > 0 && point.Accounts[0].Day.Queue < points[i-1].Accounts[0].Day.Queue {
				t.Errorf("the day's sum falls at %v", point.Time)
			}
		}
		if last := points[len(points)-1].Accounts[0].Day; math.Abs(float64(all.Queue)/float64(last.Queue)-1) > 0.01 {
			t.Errorf("the minutes have %+v, and the day %+v", all, last)
		}
		p.End()
		q.End()
		r.End()
	})
}
