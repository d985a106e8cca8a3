package processor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// TestANewAccountIsTakenWithoutARestart: processes that run learn of it from their configuration,
// then the workload takes it, and they use it.
func TestANewAccountIsTakenWithoutARestart(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Without("accountc")
		less := func(instance string) pump.Config {
			c := w.Config(instance, 2)
			c.Accounts = c.Accounts[:2]
			return c
		}
		p, err := processor.New(less("p"), &testworld.Seen{}, processor.Options{})
		proof.Must(t, err)
		source := &testworld.ListSource{Print: "p", N: 4000, Pace: 100 * time.Millisecond}
		d, err := distributor.New(less("d"), source, distributor.Options{Every: time.Second})
		proof.Must(t, err)
		if err := p.Reload(w.Config("p", 2)); err == nil {
			t.Error("a processor that does not run takes a configuration")
		}
		processing, distributing := testworld.Start(w.T, p), testworld.Start(w.T, d)
		time.Sleep(time.Minute)
		add := func() error {
			_, err := accounts.Add(t.Context(), w.Operator(), "accountc")
			return err
		}
		if err := add(); err == nil {
			t.Fatal("an account was added that no process can reach")
		}
		proof.Must(t, errors.Join(p.Reload(w.Config("p", 2)), d.Reload(w.Config("d", 2))))
		time.Sleep(2 * time.Second) // sooner than the next beats
		proof.Must(t, add())
		time.Sleep(2 * time.Minute)
		if s := p.State(); s.Queues != 6 || !s.Ready || len(s.Accounts) != 3 {
			t.Errorf("the processor reads %d queues: %q", s.Queues, s.Reasons)
		}
		if made := d.State().Done.Requests["accountc"]["put"]; made == 0 {
			t.Error("the distributor puts nothing into the new account")
		}
		distributing.Stop()
		<-distributing.Done
		processing.End()
	})
}

// TestALimitIsChangedWithoutARestart, and what cannot be changed so is refused with all else.
func TestALimitIsChangedWithoutARestart(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Made(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		run := testworld.Start(w.T, p)
		time.Sleep(time.Minute)
		target := func() float64 { return p.State().Accounts[0].BudgetTarget }
		proof.Same(t, target(), 20_000, "at first … messages a second")
		c := w.Config("p", 2)
		c.Budget.Account = 500
		wrong := c
		wrong.Segments = 1024
		var ce *pump.ConfigError
		if err := p.Reload(wrong); !errors.As(err, &ce) {
			t.Errorf("a wrong configuration is taken: %v", err)
		}
		other := c
		other.Workload = "another"
		proof.Says(t, p.Reload(other), "workload", "another workload is taken")
		if s := p.State(); target() != 20_000 || len(s.Accounts) != 2 {
			t.Errorf("of a wrong configuration something was taken: %v, %d accounts", target(), len(s.Accounts))
		}
		proof.Must(t, p.Reload(c))
		proof.Same(t, target(), 500, "then … messages a second")
		time.Sleep(time.Minute)
		proof.Same(t, target(), 500, "and a minute later")
		run.End()
	})
}

// TestACapAndPricesAreChangedWithoutARestart: a processor without a cap takes one, slows its
// polling of empty queues, and polls as ever once the cap is taken away. A cap that cannot be kept
// is refused.
func TestACapAndPricesAreChangedWithoutARestart(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		c := w.Config("p", 2)
		c.Sample = time.Minute
		p, err := processor.New(c, &testworld.Seen{}, processor.Options{})
		proof.Must(t, err)
		run := testworld.Start(w.T, p)
		time.Sleep(5 * time.Minute)
		before := p.State().Money
		if before.Cap != nil || before.Cost == nil || before.Currency != "USD" {
			t.Fatalf("at first %+v", before)
		}
		next := w.Config("p", 2)
		next.Prices = pump.Prices{Currency: "EUR", Queue: 0.4, Table: 0.036, Source: "a contract"}
		next.Budget.CostPerDay = 0.01
		var ce *pump.ConfigError
		if err := p.Reload(next); !errors.As(err, &ce) || ce.Field != "budget.costPerDay" {
			t.Errorf("a cap that cannot be kept is taken: %v", err)
		}
		if m := p.State().Money; m.Cap != nil || m.Currency != "USD" {
			t.Errorf("of a configuration that is refused something was taken: %+v", m)
		}
		// A cap near what polling costs by itself (1.5 here) would be kept at full speed at times.
		next.Budget.CostPerDay = 1
		proof.Must(t, p.Reload(next))
		time.Sleep(10 * time.Minute)
		with := p.State().Money
		if with.Cap == nil || *with.Cap != 1 || with.Currency != "EUR" || with.TimesSlower <= 1 {
			t.Errorf("with a cap: %+v", with)
		}
		if with.Cost == nil || *with.Cost < 50**before.Cost {
			t.Errorf("the day is counted as %v after %v, at a hundred times the price", with.Cost, *before.Cost)
		}
		next.Budget.CostPerDay = 0
		proof.Must(t, p.Reload(next))
		if m := p.State().Money; m.Cap != nil || m.TimesSlower != 0 {
			t.Errorf("without the cap: %+v", m)
		}
		run.End()
	})
}

// TestHowForeignMessagesAreReadIsNotChangedWithoutARestart: a process that took another key would
// look for messages in other segments than the others do. The map says which queues are read, so
// the file may name others.
func TestHowForeignMessagesAreReadIsNotChangedWithoutARestart(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Made(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		d, err := distributor.New(w.Config("d", 2), &testworld.ListSource{Print: "p"}, distributor.Options{Every: time.Second})
		proof.Must(t, err)
		run, distributing := testworld.Start(w.T, p), testworld.Start(w.T, d)
		time.Sleep(time.Minute)
		for field, change := range map[string]func(*pump.Config){
			"foreign.key":      func(c *pump.Config) { c.ForeignKey = "city" },
			"foreign.encoding": func(c *pump.Config) { c.ForeignEncoding = "text" },
			"foreign.split":    func(c *pump.Config) { c.ForeignSplit = true },
		} {
			c := w.Config("p", 2)
			c.Budget.Account = 500
			change(&c)
			for who, err := range map[string]error{"processor": p.Reload(c), "distributor": d.Reload(c)} {
				var ce *pump.ConfigError
				if !errors.As(err, &ce) || ce.Field != field || ce.Fix == "" {
					t.Errorf("a %s takes another %s: %v", who, field, err)
				}
			}
			if target := p.State().Accounts[0].BudgetTarget; target == 500 {
				t.Error("of a configuration that is refused the limit is taken")
			}
		}
		c := w.Config("p", 2)
		c.Accounts[1].Foreign = []string{"orders"}
		proof.Is(t, errors.Join(p.Reload(c), d.Reload(c)), nil, "foreign queues that are not read yet")
		distributing.Stop()
		<-distributing.Done
		run.End()
	})
}
