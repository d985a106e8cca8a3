package worlds

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

// asked is what the simulator has been asked of each service.
func asked(w *testworld.World) (r sampling.Requests) {
	for _, c := range w.Sim.Stats().Requests {
		if c.Service == "table" {
			r.Table += uint64(c.Count)
		} else {
			r.Queue += uint64(c.Count)
		}
	}
	return r
}

// sampling starts a processor that samples the queues.
func sampled(w *testworld.World, instance string, h pump.Handler, change func(*pump.Config)) *started {
	w.T.Helper()
	cfg := w.Config(instance, w.Cfg.Accounts[0].Queues)
	cfg.Sample = 15 * time.Second
	if change != nil {
		change(&cfg)
	}
	p, err := processor.New(cfg, h, processor.Options{})
	must(w.T, err)
	return testworld.Start(w.T, p)
}

// The status says the costs of a day and of a run as the accounts counted their requests.
func TestAWorkloadSaysWhatItCosts(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Second) }}
		before := asked(w)
		p, q := sampled(w, "p", h, nil), sampled(w, "q", h, nil)
		w.Settled(2)
		messages := 0
		for range 30 {
			messages += w.PutHome([]uint32{1, 20, 40, 60}, 1)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(90 * time.Second)
		spent := asked(w).Since(before)
		s := w.Status(status.Options{})
		if len(s.Problems) > 0 || s.Money.DayCost == nil || len(s.Money.Accounts) != 2 {
			t.Fatalf("%+v, problems %v", s.Money, s.Problems)
		}
		spent.Queue -= uint64(messages) // put by the test
		want := s.Money.Prices.Cost(float64(spent.Queue), float64(spent.Table))
		if off := *s.Money.DayCost/want - 1; math.Abs(off) > 0.03 { // a beat and a look are not in it yet
			t.Errorf("the day costs %v, and the accounts were asked %+v, which is %v", *s.Money.DayCost, spent, want)
		}
		saysKinds(t, &s.Money, p.Of.State().Done.Requests, q.Of.State().Done.Requests)
		if rate := *s.Money.PerDay; rate < want || rate > 1e4*want {
			t.Errorf("a day costs %v at this rate", rate)
		}
		run := s.Runs[0]
		gets := float64(messages) // each alone, at this rate
		if least, most := 2*float64(messages)+gets/32, 2*float64(messages)+gets; run.Requests < least || run.Requests > most {
			t.Errorf("the run has cost %v requests, want %v to %v", run.Requests, least, most)
		}
		info, err := runs.Show(t.Context(), w.Operator(), run.ID)
		if err != nil || *info.Requests != run.Requests || *info.Cost != run.Cost || run.Cost == 0 {
			t.Errorf("%+v, %v", info, err)
		}
		points, err := status.History(t.Context(), w.Operator(), time.Time{})
		if err != nil || len(points) < 5 {
			t.Fatalf("%d points, %v", len(points), err)
		}
		var sum sampling.Requests
		for _, point := range points {
			for _, a := range point.Accounts {
				sum = sum.Add(sampling.Requests(a.Requests))
			}
		}
		if off := float64(sum.Queue)/float64(spent.Queue) - 1; math.Abs(off) > 0.2 { // a minute is not in it yet
			t.Errorf("the minutes have %+v, and the accounts were asked %+v", sum, spent)
		}
		p.End()
		q.End()
	})
}

// saysKinds compares what the status says by kind with what the processes have counted.
func saysKinds(t *testing.T, m *status.Money, of ...pump.Requests) {
	t.Helper()
	counted := map[string]int64{}
	for _, r := range of {
		for _, kinds := range r {
			for kind, n := range kinds {
				counted[kind] += n
			}
		}
	}
	day, perDay := 0.0, 0.0
	for _, o := range m.Operations {
		if n := float64(counted[o.Operation]); float64(o.Requests) > n || float64(o.Requests) < 0.9*n-10 {
			t.Errorf("%v were counted, and the day has %+v", n, o)
		}
		if o.PerMinute == nil || math.Abs(*o.CostPerMinute-*o.PerMinute*m.Prices.Of(o.Operation)) > 1e-12 {
			t.Errorf("of a minute: %+v", o)
			return
		}
		day, perDay = day+o.Cost, perDay+*o.CostPerMinute*24*60
		delete(counted, o.Operation)
	}
	for kind, n := range counted {
		if n > 20 {
			t.Errorf("the status says nothing of %d times %s", n, kind)
		}
	}
	if math.Abs(day / *m.DayCost - 1) > 1e-9 || math.Abs(perDay / *m.PerDay - 1) > 1e-9 {
		t.Errorf("by kind the day costs %v, in all %v; a day now %v, in all %v", day, *m.DayCost, perDay, *m.PerDay)
	}
	for _, a := range m.Accounts {
		sum := 0.0
		for _, o := range a.Operations {
			sum += o.Cost
		}
		if len(a.Operations) < 2 || math.Abs(sum/a.Cost-1) > 1e-9 {
			t.Errorf("account %s costs %v, by kind %+v", a.Name, a.Cost, a.Operations)
		}
	}
}

// Who reads the status with prices in another currency than the process that samples sees no amount
// of that one with the own currency beside it.
func TestAnAmountIsNotSaidInAnotherCurrency(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		p := sampled(w, "p", &testworld.Seen{}, nil)
		time.Sleep(5 * time.Minute)
		cfg := w.Operator()
		cfg.Prices = pump.Prices{Currency: "NOK", Queue: 40, Table: 3.6} // 10,000 times as much
		theirs := w.Status(status.Options{}).Money
		s, err := status.Read(t.Context(), cfg, status.Options{})
		must(t, err)
		if m := s.Money; m.DayCost == nil || m.PerDay != nil || len(m.Accounts) != 1 || *m.DayCost != m.Accounts[0].Cost ||
			len(m.Operations) < 4 || m.Operations[0].PerMinute != nil ||
			*m.DayCost < 5000**theirs.DayCost {
			t.Errorf("%+v costs %v, and in USD %v", m, m.DayCost, theirs.DayCost)
		}
		p.End()
		s, err = status.Read(t.Context(), cfg, status.Options{})
		if err != nil || s.Money.DayCost == nil || *s.Money.DayCost < 5000**theirs.DayCost {
			t.Errorf("when none samples: %+v, %v", s.Money, err)
		}
	})
}

// The rows of the history are of the service's clock. A machine whose clock is wrong sees them.
func TestAWrongClockHidesNoMoney(t *testing.T) {
	clocks := []time.Duration{-12 * time.Minute, 12 * time.Minute, -4 * time.Minute, 4 * time.Minute, 8 * time.Minute}
	if proof.Less(t) {
		clocks = clocks[:2]
	}
	for _, off := range clocks {
		testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			time.Sleep(12 * time.Hour)
			w.Sim.SetClockOffset(off)
			p := sampled(w, "p", &testworld.Seen{}, nil)
			time.Sleep(30 * time.Minute)
			s := w.Status(status.Options{})
			if m := s.Money; len(s.Problems) > 0 || m.DayCost == nil || len(m.Accounts) != 1 || m.Accounts[0].Cost < 0.9**m.DayCost {
				t.Errorf("the service's clock is %v ahead: %+v, problems %v", off, m, s.Problems)
			}
			server := time.Now().Add(off)
			points, err := status.History(t.Context(), w.Operator(), server.Add(-10*time.Minute))
			if err != nil || len(points) < 8 || server.Sub(points[len(points)-1].Time) > 3*time.Minute {
				t.Errorf("the service's clock is %v ahead: %d points of the last ten minutes, %v", off, len(points), err)
			}
			p.End()
		})
	}
}

// The process that samples is cut off, and then the one after it, each until others have its place;
// then both are back. The history goes on each time, and the day's sum is that of the accounts' own
// counts.
func TestTheHistoryAndTheDaysSumOutliveTheirWriters(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		time.Sleep(12 * time.Hour)
		before, messages := asked(w), 0
		h := &testworld.Seen{}
		p, q, r := sampled(w, "p", h, nil), sampled(w, "q", h, nil), sampled(w, "r", h, nil)
		work := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				messages += w.PutHome([]uint32{1, 20, 40, 60}, 1)
			}
		}
		sum := func(when string, least float64) {
			t.Helper()
			spent := asked(w).Since(before)
			spent.Queue -= uint64(messages)
			s := w.Status(status.Options{})
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
