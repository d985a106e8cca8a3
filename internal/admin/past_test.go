package admin

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/status"
)

var began = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func TestThePastIsBoundedHoweverLongOneWatches(t *testing.T) {
	s := &status.Status{}
	for i := range 250 {
		s.Accounts = append(s.Accounts, status.Account{Use: accounts.Use{Name: fmt.Sprintf("account%d", i)}, Limit: 20_000})
	}
	var p past
	shown := 0
	for i := range 5 * 3600 / 2 {
		s.Time = began.Add(time.Duration(i) * 2 * time.Second)
		if point, _ := p.see(s); point != nil {
			shown++
		}
	}
	if most := int(pastFor/pastEvery) + 1; len(p.points) > most || len(p.points) < most/2 {
		t.Errorf("%d points are kept, want about %d", len(p.points), most)
	}
	if shown < 5*3600/6-1 {
		t.Errorf("only %d points were shown", shown)
	}
	text, err := event(partPast, chartOf(p.points))
	if err != nil || len(text) > 400<<10 {
		t.Errorf("the past of 250 accounts has %d bytes, %v", len(text), err)
	}
}

func TestWhatWasSeenBeforeIsPutBeforeWhatIsSeenNow(t *testing.T) {
	var p past
	for i := range 3 {
		p.see(&status.Status{Time: began.Add(time.Minute + time.Duration(i)*pastEvery)})
	}
	var before []Point
	for i := range 20 {
		before = append(before, Point{At: began.Add(time.Duration(i-12) * time.Minute)})
	}
	p.add(before)
	last := time.Time{}
	for _, point := range p.points {
		if !point.At.After(last) || !last.IsZero() && point.At.Sub(last) < pastEvery {
			t.Errorf("%v comes after %v", point.At, last)
		}
		last = point.At
	}
	// Minute 1 was seen by itself, and what is older than a quarter of an hour is not kept.
	if len(p.points) != 20+3-1 && len(p.points) > 23 {
		t.Errorf("%d points", len(p.points))
	}
}

func TestRefusalsAreMeasuredBetweenReadings(t *testing.T) {
	var p past
	see := func(after time.Duration, throttled uint64) float64 {
		_, now := p.see(&status.Status{Time: began.Add(after), Accounts: []status.Account{
			{Use: accounts.Use{Name: "a"}, Throttled: throttled},
		}})
		return now.refused["a"]
	}
	var got []float64
	for _, of := range []struct {
		at        time.Duration
		throttled uint64
	}{{0, 100}, {2 * time.Second, 120}, {10 * time.Second, 200}, {12 * time.Second, 500}, {20 * time.Second, 50}, {30 * time.Second, 60}} {
		got = append(got, see(of.at, of.throttled))
	}
	// The first says nothing, the second comes too early, the fifth is less: a process has gone.
	proof.Same(t, cmp.Diff([]float64{0, 0, 10, 10, 0, 1}, got), "")
}

// One reading by this machine's clock, which is ahead, leaves the chart and the headline as they
// are.
func TestAReadingByTheLocalClockStopsNothing(t *testing.T) {
	var s Seer
	see := func(after, ahead time.Duration, throttled, done uint64) Seen {
		return s.See(&status.Status{
			Time: began.Add(after + ahead), LocalClock: ahead != 0,
			Accounts:  []status.Account{{Use: accounts.Use{Name: "a"}, Throttled: throttled}},
			Runs:      []status.Run{{ID: "r", State: "open", Handled: done}},
			Instances: []status.Instance{{Role: "processor", Rate: 10}},
		}, nil)
	}
	see(0, 0, 100, 0)
	see(10*time.Second, 0, 250, 100)
	if seen := see(20*time.Second, 5*time.Minute, 250, 200); seen.point != nil {
		t.Errorf("a point of another clock: %+v", seen.point)
	}
	seen := see(30*time.Second, 0, 250, 300)
	if seen.point == nil || strings.Contains(seen.Headline.Text, "refuses") {
		t.Errorf("%+v", seen)
	}
	if r := seen.Runs[0]; r.PerSecond == nil || *r.PerSecond != 10 {
		t.Errorf("the run's pace: %+v", r.PerSecond)
	}
	// A service whose clock goes back.
	if seen := see(-time.Minute, 0, 250, 400); seen.point == nil {
		t.Error("no point after the clock went back")
	}
}

func TestARunHasAPaceAndATimeThatIsLeft(t *testing.T) {
	var p pace
	r := status.Run{ID: "r", State: "sealed", Sent: new(uint64(1000)), Exact: &pump.RunProgress{Total: new(uint64(1000)), Remaining: new(uint64(400))}}
	s := &status.Status{Runs: []status.Run{r, {ID: "old", State: "closed"}}}
	s.Runs[0].Exact.Done = 300
	proof.Same(t, len(p.see(began, doneOf(s))), 0, "a pace of one reading")
	s.Runs[0].Exact.Done = 600
	rates := p.see(began.Add(30*time.Second), doneOf(s))
	got := runsOf(s, rates)
	if got[0].PerSecond == nil || *got[0].PerSecond != 10 || *got[0].SecondsLeft != 40 || got[1].PerSecond != nil {
		t.Errorf("%v %+v", rates, got)
	}
	for i := range 1000 { // marks do not pile up
		p.see(began.Add(time.Duration(31+i)*time.Second), doneOf(s))
	}
	if n := len(p.marks["r"]); n > 62 {
		t.Errorf("%d marks", n)
	}
	if p.see(began.Add(time.Hour), map[string]uint64{}); len(p.marks) != 0 {
		t.Errorf("%v is kept", p.marks)
	}
	if leftIn, ok := leftIn(&status.Run{Sent: new(uint64(10)), Handled: 12}); !ok || leftIn != 0 {
		t.Errorf("%d, %v", leftIn, ok)
	}
	if _, ok := leftIn(&status.Run{Sent: new(uint64(10)), AtLeast: true}); ok {
		t.Error("what is left of a run is known whose end is not")
	}
}

func TestHandOversAreTold(t *testing.T) {
	before := strings.Fields("a a a b b -")
	now := strings.Fields("a c c c b b")
	for _, list := range [][]string{before, now} {
		for i := range list {
			list[i] = strings.Trim(list[i], "-")
		}
	}
	want := []Move{
		{At: began, From: "a", To: "c", Segments: 2},
		{At: began, From: "", To: "b", Segments: 1},
		{At: began, From: "b", To: "c", Segments: 1},
	}
	proof.Same(t, cmp.Diff(want, movesOf(before, now, began)), "")
	if moves := movesOf(nil, now, began); moves != nil {
		t.Errorf("at first: %v", moves)
	}
	o := ownersOf(now, nil)
	proof.Same(t, cmp.Diff(owners{Names: []string{"a", "c", "b"}, Cells: []int{0, 1, 1, 1, 2, 2}, Moves: []Move{}}, o), "")
}

func TestRowsAreReadSeldomerTheMoreThereAre(t *testing.T) {
	if small, large := every(30), every(9000); small > 3*time.Second || large != showMost {
		t.Errorf("%v, %v", small, large)
	}
}

// A page and a terminal see the same because one type makes of readings what people see.
func TestOneTypeHoldsWhatWasSeen(t *testing.T) {
	seer, page := reflect.TypeFor[Seer](), reflect.TypeFor[Page]()
	for i := range seer.NumField() {
		for k := range page.NumField() {
			if of := page.Field(k); of.Type == seer.Field(i).Type {
				t.Errorf("the page holds %s beside its Seer", of.Name)
			}
		}
	}
	if of, ok := page.FieldByName("seer"); !ok || of.Type != seer {
		t.Error("the page has no Seer")
	}
}
