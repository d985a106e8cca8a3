package queues

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/upkeep"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

func member(name string, role cluster.Role, spends, slower float64) cluster.Member {
	m := cluster.Member{Instance: name, Incarnation: name, Role: role, Dead: 20 * time.Second}
	m.Beat = time.Now()
	m.Spends, m.Slower = spends, slower
	return m
}

func view(day *cluster.Day, members ...cluster.Member) *cluster.View {
	if day != nil {
		members[0].Day = day
	}
	return &cluster.View{Members: members, Read: time.Now()}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTheRestOfADayIsGivenOutEvenly(t *testing.T) {
	day := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   time.Duration
		left float64
		want float64
	}{
		{0, 86400, 1},
		{12 * time.Hour, 43200, 1},
		{23*time.Hour + 59*time.Minute + 59*time.Second, 120, 1}, // as if two minutes were left
		{time.Hour, -5, 0},
	} {
		near(t, c.at.String(), rest(c.left, day.Add(c.at)), c.want)
	}
}

func TestWhoIsNotSlowedNeedsWhatItSpendsAndTheOthersShareTheRest(t *testing.T) {
	p, d := cluster.RoleProcessor, cluster.RoleDistributor
	busy, calm := member("busy", p, 5, 3), member("calm", p, 1, 1)
	for _, c := range []struct {
		what     string
		members  []cluster.Member
		instance string
		want     float64
	}{
		{"alone", []cluster.Member{busy}, "busy", 10},
		{"the one that is held back has what is left", []cluster.Member{busy, calm}, "busy", 8.75},
		{"the other one what it needs", []cluster.Member{busy, calm}, "calm", 1.25},
		{"two that are held back", []cluster.Member{busy, member("full", p, 4, 3)}, "busy", 5},
		{"what is put comes first", []cluster.Member{busy, member("d", d, 4, 1)}, "busy", 6},
		{"more is put than there is", []cluster.Member{busy, member("d", d, 40, 1)}, "busy", 0},
		{"one that was evicted", []cluster.Member{busy}, "other", 5},
	} {
		near(t, c.what, Share(view(nil, c.members...), c.instance, 10), c.want)
	}
	silent := member("gone", p, 5, 3)
	silent.Beat = time.Now().Add(-time.Hour)
	near(t, "a silent one has none", Share(view(nil, busy, silent), "busy", 10), 10)
	damaged := cluster.Member{Instance: "x", Role: p, Err: errors.New("damaged")}
	near(t, "nor one that cannot be read", Share(view(nil, busy, damaged), "busy", 10), 10)
}

func capped(c float64) *pump.Config {
	return &pump.Config{
		Budget: pump.Budget{CostPerDay: c}, Prices: pump.Prices{Currency: "USD", Queue: 1e4, Table: 1e4},
		Log: slog.New(slog.DiscardHandler),
	}
}

// Every request is paid for; only gets wait for what there is to spend.
func TestGetsWaitForWhatThereIsToSpend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAllowance(capped(86400)) // one a second, at one a request
		for range handful {
			if ready, _ := a.Ready(time.Now()); !ready {
				t.Fatal("what is saved is not to be spent")
			}
			a.Spend("delete")
		}
		ready, wait := a.Ready(time.Now())
		if ready || wait > time.Second {
			t.Errorf("ready %v, wait %v", ready, wait)
		}
		for range 10 { // what settles goes on, and is owed
			a.Spend("delete")
		}
		_, wait = a.Ready(time.Now())
		proof.Same(t, wait, 10*time.Second, "10 are owed")
		time.Sleep(wait + time.Millisecond)
		if ready, _ = a.Ready(time.Now()); !ready {
			t.Error("it is paid, and not ready")
		}
		time.Sleep(time.Hour)
		n := 0
		for ready, _ = a.Ready(time.Now()); ready; ready, _ = a.Ready(time.Now()) {
			a.Spend("get")
			n++
		}
		if n > handful {
			t.Errorf("%d were saved in an hour", n)
		}
		for range 10_000 {
			a.Spend("delete")
		}
		time.Sleep(owed + time.Minute)
		if ready, _ = a.Ready(time.Now()); !ready {
			t.Error("it owes for ever")
		}
	})
}

// Unknown costs of the day change nothing; a new day begins anew.
func TestAProcessKeepsToTheShareThatItLastKnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAllowance(capped(86400))
		m := member("p", cluster.RoleProcessor, 1, 1)
		look := func(day *cluster.Day) {
			m.Beat, m.Day = time.Now(), nil
			a.Follow(view(day, m), "p", time.Now())
		}
		today := dayOf(time.Now())
		look(nil)
		near(t, "nothing is known yet", a.rate, 1)
		time.Sleep(12 * time.Hour)
		look(&cluster.Day{Number: today, Cost: 86400 - 4320})
		near(t, "a tenth is left for half a day", a.rate, 0.1)
		time.Sleep(time.Hour)
		look(nil)
		near(t, "the sum cannot be learned", a.rate, 0.1)
		look(&cluster.Day{Number: today - 1, Cost: 5})
		near(t, "one of yesterday", a.rate, 0.1)
		look(&cluster.Day{Number: today, Cost: 1e6})
		near(t, "all is spent", a.rate, 0)
		time.Sleep(11*time.Hour + time.Minute)
		look(nil)
		near(t, "another day", a.rate, 1)
	})
}

func TestPausesGrowWhileTheShareIsUsedUpAndShrinkAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAllowance(capped(86400))
		m := member("p", cluster.RoleProcessor, 1, 1)
		look := func(spend int) {
			for range spend {
				a.Spend("get")
			}
			a.Ready(time.Now())
			time.Sleep(5 * time.Second)
			m.Beat = time.Now()
			a.Follow(view(&cluster.Day{Number: dayOf(time.Now())}, m), "p", time.Now())
		}
		proof.Same(t, a.Slow(5*time.Second), 5*time.Second, "nothing is used, and it polls after")
		for range 20 {
			look(20)
		}
		var r cluster.Report
		a.Report(&r)
		if d := a.Slow(5 * time.Second); d != time.Minute || r.Slower != upkeep.MostSlower || !r.HoldsBack {
			t.Errorf("it polls after %v, %+v", d, r)
		}
		proof.Same(t, a.Sample(15*time.Second), upkeep.SampleSlowest, "it samples every")
		for range 100 {
			look(0)
		}
		a.Report(&r)
		if d := a.Slow(5 * time.Second); d != 5*time.Second || r.Slower != 1 || r.HoldsBack {
			t.Errorf("nothing is used any more, and it polls after %v, %+v", d, r)
		}
	})
}

func TestWithoutACapNothingIsHeldBack(t *testing.T) {
	a := NewAllowance(capped(0))
	a.Spend("get")
	a.Follow(nil, "p", time.Now())
	a.Report(nil)
	a.State(nil)
	if ready, _ := a.Ready(time.Now()); !ready || a.Slow(time.Second) != time.Second || a.Sample(time.Second) != time.Second {
		t.Error("it is held back")
	}
}

// A process takes another cap and other prices while it works. Its share follows at once, its
// earlier spending is no debt, and without a cap nothing is left of it.
func TestACapComesChangesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAllowance(capped(0))
		list := a.Prices()
		for range 1000 {
			a.Spend("get")
		}
		if a.Change(0, list) {
			t.Error("nothing is other, and it says so")
		}
		time.Sleep(time.Hour)
		if !a.Change(86400, list) || a.Prices() != list {
			t.Error("a cap is not taken")
		}
		if ready, _ := a.Ready(time.Now()); !ready {
			t.Error("what was spent before there was a cap is owed")
		}
		m := member("p", cluster.RoleProcessor, 1, 1)
		follow := func() {
			m.Beat = time.Now()
			a.Follow(view(&cluster.Day{Number: dayOf(time.Now())}, m), "p", time.Now())
		}
		for range 60 {
			for range 20 {
				a.Spend("get")
			}
			a.Ready(time.Now())
			time.Sleep(5 * time.Second)
			follow()
		}
		var r cluster.Report
		if a.Report(&r); r.Slower != upkeep.MostSlower || !r.HoldsBack {
			t.Errorf("with a cap: %+v", r)
		}
		before := a.rate
		if a.Change(10*86400, list); a.rate <= before || a.slower != upkeep.MostSlower {
			t.Errorf("ten times the cap: %v after %v, %v times slower", a.rate, before, a.slower)
		}
		dear := pump.Prices{Currency: "EUR", Queue: 2e4, Table: 1e4}
		spends := a.spends
		if !a.Change(10*86400, dear) || a.spends != spends {
			t.Error("prices are not taken, or forget what is spent")
		}
		balance := a.balance
		a.Spend("get")
		proof.Same(t, balance-a.balance, 2, "what a get costs")
		a.Change(0, dear)
		r = cluster.Report{}
		var day pump.CostOfDay
		a.Report(&r)
		a.State(&day)
		ready, _ := a.Ready(time.Now())
		if !ready || a.Slow(time.Second) != time.Second || r.Slower != 0 || r.HoldsBack || day.Cap != nil {
			t.Errorf("without the cap: %v, %+v, %+v", ready, r, day)
		}
		a.Change(86400, dear)
		if a.Report(&r); r.Slower != 1 || r.HoldsBack || r.Spends != 0 {
			t.Errorf("with a cap again: %+v", r)
		}
	})
}

func TestACapBelowWhatADayCostsAtTheLeastIsRefused(t *testing.T) {
	cfg := capped(0.001)
	cfg.Prices = pump.Prices{}.OrPublished()
	cfg.Sample = time.Minute
	cfg.Accounts = []pump.Account{{Queues: 4}, {Queues: 4, Foreign: []string{"orders"}}}
	// 9 queues a minute and 11 counts, two processes with two requests in 5 s, a row a minute.
	want := pump.Prices{}.OrPublished().Cost(9./60+11./60, 0.8+1./60) * 86400
	near(t, "the least", Least(cfg, 1, 1), want)
	err := Check(cfg)
	var ce *pump.ConfigError
	if !errors.As(err, &ce) || ce.Field != "budget.costPerDay" {
		t.Fatal(err)
	}
	if want := "0.001 USD is less than what a day costs at the least, with one processor and one distributor and nothing to do: 0.0141 USD"; ce.Problem != want {
		t.Errorf("%s", ce.Problem)
	}
	cfg.Budget.CostPerDay = 0.0143
	proof.Must(t, Check(cfg))
}
