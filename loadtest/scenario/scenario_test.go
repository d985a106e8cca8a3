package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/pump"
)

// must ends a test with an error.
var must = proof.Must

// The scenarios in virtual time, each as short as shows what it is about. Other tests
// judge the pump: a broken measurement would miss the bounds here.

func TestSaturateMeasuresEachSideByItself(t *testing.T) {
	r := inBubble(t, 2, 1000, Options{Scenario: "saturate", Duration: 16 * time.Second, WarmUp: -1})
	put, take, both := phaseOf(t, r, "put"), phaseOf(t, r, "take"), phaseOf(t, r, "both")
	if put.Handled != 0 || put.Taken != 0 || put.Put < 400 || put.Offered != nil {
		t.Errorf("only puts: %+v", put)
	}
	if take.Sent != 0 || take.Taken < 50 {
		t.Errorf("only gets and deletes: %+v", take)
	}
	if both.Handled < 50 || both.Put < 50 {
		t.Errorf("both: %+v", both)
	}
	proof.Same(t, put.Processors, 0, "processors")
	proof.Same(t, take.Processors, 2, "processors")
	if found(t, r, "puts") != put.Put || found(t, r, "share of the limits, puts") != put.Use {
		t.Error("what was found is not what was measured")
	}
}

func TestRampFindsTheHighestRateThatHolds(t *testing.T) {
	proof.Only(t)
	// Handlers bound the rate: 2 processors of 10 tasks of 100 ms each do 200 a second.
	r := inBubble(t, 2, 4000, Options{Scenario: "ramp", Duration: 60 * time.Second, WarmUp: -1, Rate: 400, Concurrency: 10, HandlerTime: 100 * time.Millisecond})
	if best := found(t, r, "highest rate that held"); best < 120 || best > 200 {
		t.Errorf("the highest rate that held is %v, where 200 can be handled", best)
	}
	if len(r.Curve.Points) != 12 || r.Curve.Points[0].X != 40 || r.Curve.Points[11].X != 480 {
		t.Fatalf("got %+v", r.Curve.Points)
	}
	if p := r.Curve.Points[11]; p.Value > 220 || p.Value < 150 {
		t.Errorf("at 480 a second %v were handled, where 200 can be", p.Value)
	}
}

func TestSoakKeepsASteadyRate(t *testing.T) {
	proof.Only(t)
	r := inBubble(t, 2, 2000, Options{Scenario: "soak", Duration: 30 * time.Second, WarmUp: 10 * time.Second, Rate: 200})
	if kept := found(t, r, "rate kept, last third"); kept < 0.98 || kept > 1.02 {
		t.Errorf("%v of the rate was kept", kept)
	}
	// The task that is due when the warm-up ends may be sent before or after that is noted.
	if extra := r.Tasks.WarmUp - 10*200; r.Tasks.Sent != 40*200 || extra < 0 || extra > 1 || r.Tasks.Unsent != 0 {
		t.Errorf("%d tasks were sent, %d of them to warm up, %d not", r.Tasks.Sent, r.Tasks.WarmUp, r.Tasks.Unsent)
	}
	if g := found(t, r, "growth of memory"); g <= 0 {
		t.Errorf("memory grew by %v", g)
	}
	if p := phaseOf(t, r, "warm-up"); p.To != 10 || r.Phases[0].Name != "warm-up" {
		t.Errorf("warm-up: %+v", p)
	}
}

func TestBurstMeasuresEachBurst(t *testing.T) {
	r := inBubble(t, 2, 2000, Options{Scenario: "burst", Duration: 70 * time.Second, WarmUp: -1, Rate: 200})
	if len(r.Groups) != 7 || r.Groups[0].Name != "other tasks" || r.Groups[6].Name != "burst 6" {
		t.Fatalf("groups: %+v", r.Groups)
	}
	for i, g := range r.Groups[1:] {
		if g.Sent != 800 || g.Handled != 800 || g.First != float64(10*(i+1)) || g.Last <= g.First {
			t.Errorf("%+v", g)
		}
	}
	if took := found(t, r, "a burst takes"); took <= 0 || took > 10 {
		t.Errorf("a burst takes %v s", took)
	}
}

func TestHotKeyTellsTheHotTasksFromTheOthers(t *testing.T) {
	r := inBubble(t, 2, 2000, Options{Scenario: "hot-key", Duration: 20 * time.Second, WarmUp: -1, Rate: 200, HotShare: 0.25})
	if len(r.Groups) != 2 || r.Groups[0].Name != "other tasks" || r.Groups[1].Name != "hot key" {
		t.Fatalf("groups: %+v", r.Groups)
	}
	if hot := float64(r.Groups[1].Sent) / float64(r.Tasks.Sent); hot < 0.22 || hot > 0.28 {
		t.Errorf("%v of the tasks have the hot key", hot)
	}
	found(t, r, "p99, hot key")
	found(t, r, "p99, other tasks")
}

func TestAccountDarkCutsOneAccountOffAndLosesNothing(t *testing.T) {
	r := inBubble(t, 3, 2000, Options{Scenario: "account-dark", Duration: 60 * time.Second, WarmUp: -1, Rate: 100})
	dark := phaseOf(t, r, "dark")
	if dark.Failed == 0 {
		t.Error("nothing failed while the account was dark")
	}
	if len(r.Events) != 2 || r.Events[0].Text != "simulated3 is dark" || r.Events[1].Text != "simulated3 is back" || r.Events[0].At != 20 || r.Events[1].At != 40 {
		t.Errorf("events: %+v", r.Events)
	}
	for i, v := range r.Series.AccountUnits[2].Values {
		if i >= 21 && i < 39 && v != 0 {
			t.Errorf("%v units/s were spent on the dark account in second %d", v, i+1)
		}
	}
	for _, a := range r.Accounts[:2] {
		proof.Same(t, a.Failed, 0, "requests failed on", a.Name)
	}
	found(t, r, "rate kept, dark")
}

func TestRollingRestartReplacesEveryProcessor(t *testing.T) {
	r := inBubble(t, 2, 2000, Options{Scenario: "rolling-restart", Duration: 60 * time.Second, WarmUp: -1, Rate: 100, Processors: 3})
	var events []string
	for _, e := range r.Events {
		events = append(events, e.Text)
	}
	proof.Alike(t, events, []string{"processor 1 is replaced", "processor 2 is replaced", "processor 3 is replaced"}, "events")
	found(t, r, "longest delay, restarts")
}

func TestScaleOutAddsAccounts(t *testing.T) {
	proof.Only(t)
	r := inBubble(t, 3, 400, Options{Scenario: "scale-out", Duration: 90 * time.Second, WarmUp: -1})
	if len(r.Curve.Points) != 3 {
		t.Fatalf("points: %+v", r.Curve.Points)
	}
	for i, p := range r.Curve.Points {
		if p.X != float64(i+1) || p.Limit == nil || *p.Limit != 400*p.X/3 || p.Value <= 0 || p.Value > 1.1**p.Limit {
			t.Errorf("%+v", p)
		}
	}
	units := r.Series.AccountUnits[2].Values
	if early, late := slices.Max(units[:50]), slices.Max(units[75:]); early > 10 || late < 50 {
		t.Errorf("before it was added, the third account was asked for up to %v units/s, and then for %v", early, late)
	}
}

func TestScaleOutAddsProcessors(t *testing.T) {
	r := inBubble(t, 2, 8000, Options{
		Scenario: "scale-out", Duration: 60 * time.Second, WarmUp: -1, Over: OverProcessors, Processors: 2, Concurrency: 5, HandlerTime: 100 * time.Millisecond,
	})
	if len(r.Curve.Points) != 2 {
		t.Fatalf("points: %+v", r.Curve.Points)
	}
	one, two := r.Curve.Points[0], r.Curve.Points[1]
	if *one.Limit != 50 || *two.Limit != 100 || one.Value < 35 || one.Value > 55 || two.Value < 1.5*one.Value || two.Value > 110 {
		t.Errorf("one processor does %+v, two do %+v", one, two)
	}
	if e := found(t, r, "efficiency"); e < 0.75 || e > 1.2 {
		t.Errorf("the efficiency is %v", e)
	}
}

func TestDrainAddMovesTheLoadAwayAndBack(t *testing.T) {
	proof.Only(t)
	r := inBubble(t, 2, 2000, Options{Scenario: "drain-add", Duration: 3 * time.Minute, WarmUp: -1, Rate: 50})
	if use := found(t, r, "use of the drained account"); use > 0.3 {
		t.Errorf("the drained account was used as much as %v of before", use)
	}
	if use := found(t, r, "use of the added account"); use < 0.5 {
		t.Errorf("the added account was used as much as %v of before", use)
	}
	proof.Same(t, phaseOf(t, r, "drained").Accounts, 1, "accounts while one was drained")
}

func TestEachTaskIsDoneOnceInDeliveryModeOnce(t *testing.T) {
	r := inBubble(t, 2, 4000, Options{Scenario: "soak", Duration: 10 * time.Second, WarmUp: -1, Rate: 100, Keys: 1, Pack: -1, Delivery: pump.Once})
	if r.Tasks.Messages*2 > r.Tasks.Sent {
		t.Errorf("%d tasks in %d messages, where as many as fit are packed", r.Tasks.Sent, r.Tasks.Messages)
	}
	if !slices.Contains(r.Settings, report.Setting{Name: "delivery", Value: "once"}) || !slices.Contains(r.Settings, report.Setting{Name: "pack", Value: "as many as fit"}) {
		t.Errorf("settings: %+v", r.Settings)
	}
}

func TestATestThatIsStoppedSaysSoAndLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulated(2, 2000)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(12*time.Second, cancel)
		r, err := Run(ctx, w.World, Options{Scenario: "soak", Rate: 100})
		if !errors.Is(err, context.Canceled) || r == nil || len(r.Trouble) != 1 || !strings.Contains(r.Trouble[0], "cut short") {
			t.Fatalf("got %+v, %v", r, err)
		}
		if r.Tasks.Lost != 0 || r.Tasks.Sent == 0 {
			t.Errorf("it cannot be said what was lost: %+v", r.Tasks)
		}
		judge(t, r)
		for i := range 2 {
			a, err := w.Open("judge", i)
			must(t, err)
			if left, err := a.Queues(t.Context(), ""); err != nil || len(left) > 0 {
				t.Errorf("left over: %q, %v", left, err)
			}
		}
	})
}

func TestWhatIsNotHandledIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulated(1, 2000)
		// One task never ends, so that what its processor holds with it is not begun in time.
		r, err := Run(t.Context(), w.World, Options{
			Scenario: "soak", Duration: 5 * time.Second, WarmUp: -1, Rate: 20, Processors: 1, Concurrency: 1, HandlerTime: 30 * time.Minute, Patience: time.Minute,
		})
		if err == nil || r == nil || r.Tasks.Lost == 0 || r.Tasks.Lost+r.Tasks.Handled != r.Tasks.Sent || len(r.Trouble) == 0 {
			t.Fatalf("got %+v, %v", r, err)
		}
	})
}

func TestWrongOptionsAreNamedBeforeAnythingIsDone(t *testing.T) {
	for want, o := range map[string]Options{
		"scenario":     {Scenario: "saturated"},
		"duration":     {Scenario: "soak", Duration: time.Second},
		"rate":         {Scenario: "soak", Rate: -1},
		"processors":   {Scenario: "soak", Processors: -1},
		"concurrency":  {Scenario: "soak", Concurrency: 1 << 20},
		"handler-time": {Scenario: "soak", HandlerTime: -1},
		"pack":         {Scenario: "soak", Pack: -2},
		"task-bytes":   {Scenario: "soak", TaskBytes: 100},
		"keys":         {Scenario: "soak", Keys: -1},
		"hot-share":    {Scenario: "soak", HotShare: 1.5},
		"linger":       {Scenario: "soak", Linger: 1},
		"over":         {Scenario: "scale-out", Over: "queues"},
		"account":      {Scenario: "account-dark", Account: "simulated9"},
		"id":           {Scenario: "soak", ID: "Z"},
	} {
		w := newSimulated(2, 1000)
		r, err := Run(t.Context(), w.World, o)
		if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != want || r != nil {
			t.Errorf("%s: got %v, %v", want, r, err)
		}
		proof.Same(t, w.sim.Stats().Count("", ""), 0, want, "requests were made")
	}
	proof.Says(t, proof.ErrOf(Run(t.Context(), newSimulated(1, 1000).World, Options{Scenario: "account-dark"})), "needs 2 accounts")
}

func TestProcessorsThatShareQueuesAreNamedAsTrouble(t *testing.T) {
	w := newSimulated(2, 1000)
	for i := range w.Config.Accounts {
		w.Config.Accounts[i].Queues = 1
	}
	for _, tt := range []struct {
		o       Options
		trouble int
	}{
		{Options{Scenario: "soak", Processors: 2}, 0},
		{Options{Scenario: "soak", Processors: 3}, 1},
		{Options{Scenario: "scale-out"}, 0}, // one processor, because it begins with one queue
		{Options{Scenario: "scale-out", Processors: 2}, 1},
		{Options{Scenario: "drain-add", Processors: 2}, 1},
	} {
		m, err := newTest(w.World, tt.o)
		must(t, err)
		proof.Same(t, len(m.trouble), tt.trouble, tt.o, "trouble", m.trouble)
	}
}

func TestEveryScenarioHasATest(t *testing.T) {
	tested := []string{"saturate", "ramp", "soak", "burst", "hot-key", "account-dark", "rolling-restart", "scale-out", "drain-add"}
	proof.Alike(t, Names(), tested, "scenarios are …, and tested")
}
