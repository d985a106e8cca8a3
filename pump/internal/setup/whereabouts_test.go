package setup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// A8: while an account does not answer, the workload may be there.
func TestAWorkloadIsNotMadeWhileAnAccountCannotBeLookedInto(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		config := func(control string) pump.Config {
			c := w.Operator()
			c.Control = control
			return c
		}
		run := func(c pump.Config, o distributor.Options, d time.Duration) error {
			dist, err := distributor.New(c, &testworld.ListSource{Print: "list", N: 10}, o)
			proof.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			return proof.ErrOf(dist.Run(ctx))
		}
		dark := w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.FailBefore})
		for _, c := range []pump.Config{config(""), config("accounta")} {
			if err := run(c, distributor.Options{}, time.Hour); !storage.Ambiguous(err) || !strings.Contains(err.Error(), "account accountc does not answer") || w.HasRow(0) {
				t.Errorf("dark: %v", err)
			}
		}
		go func() {
			time.Sleep(2 * time.Minute)
			dark.Remove()
		}()
		// Who is there to go on waits.
		if err := run(config(""), distributor.Options{Every: time.Hour}, 5*time.Minute); err != nil || !w.HasRow(0) {
			t.Errorf("a service: %v", err)
		}
		// Credentials for queues alone: it cannot be told, unless control is named.
		w.Cfg.Workload = "village"
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"})
		err := run(config(""), distributor.Options{}, time.Hour)
		if e, ok := errors.AsType[*pump.ConfigError](err); !ok || e.Field != "control" || !strings.Contains(e.Fix, "control: accounta") || w.HasRow(0) {
			t.Errorf("without leave to look: %v", err)
		}
		if err := run(config("accounta"), distributor.Options{}, time.Hour); err != nil || !w.HasRow(0) {
			t.Errorf("with control named: %v", err)
		}
	})
}

// A8: the line that is said while a start waits names the account that is waited for.
func TestWhoWaitsForAnotherAccountThanControlSaysForWhich(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.HangBefore})
		d, err := distributor.New(w.Operator(), &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		proof.Must(t, err)
		if err := proof.ErrOf(d.Run(t.Context())); !storage.Ambiguous(err) {
			t.Error(err)
		}
		proof.Same(t, w.Logged("waiting for the control account to answer"), 0, "it does not answer")
		if n := w.Logged("accounts=accountc"); n == 0 {
			t.Error("no line names the account that does not answer")
		}
	})
}

// B5: one account with two names has each queue twice.
func TestTheSameAccountUnderTwoNamesIsRefused(t *testing.T) {
	const key = "AccountKey=YWJj;"
	for _, two := range []pump.Account{
		{Name: "other", ConnectionString: "AccountName=acct;" + key + "QueueEndpoint=https://ACCT.queue.core.windows.net/;TableEndpoint=https://acct.table.core.windows.net"},
		{Name: "other", Endpoint: "https://acct.queue.core.windows.net?sv=2021-01-01&sig=abc"},
	} {
		_, err := setup.Complete(pump.Config{Workload: "work", Accounts: []pump.Account{
			{ConnectionString: "AccountName=acct;" + key + "EndpointSuffix=core.windows.net;DefaultEndpointsProtocol=https"}, two,
		}})
		e, ok := errors.AsType[*pump.ConfigError](err)
		if !ok || e.Field != "accounts[1]" || !strings.Contains(e.Problem, "same storage account as accounts[0]") {
			t.Error(err)
		}
	}
}

// B5: who joins after the second look sees the new map, and must not work with it.
func TestAProcessorRefusesAnAccountThatWasAddedWhileItJoined(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		c := w.Config("p", 2)
		c.Workload, c.Accounts = w.Cfg.Workload, c.Accounts[:2]
		p, err := processor.New(c, pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		proof.Must(t, err)
		w.Sim.Inject(azsim.Rule{Instance: "p", Service: "table", Account: "accounta", Fault: azsim.DelayBefore, Delay: 5 * time.Second, Skip: 1, First: 1})
		s := testworld.Start(w.T, p)
		time.Sleep(3 * time.Second)
		proof.Must(t, proof.ErrOf(accounts.Add(t.Context(), w.Operator(), "accountc")))
		select {
		case <-s.Done:
		case <-time.After(time.Minute):
			s.Stop()
			<-s.Done
		}
		proof.Says(t, s.Err, `"accountc", for which there are no credentials`)
	})
}

// reordered is the configuration with its accounts in the opposite order.
func reordered(w *testworld.World, instance string) pump.Config {
	c := w.Config(instance, w.Cfg.Accounts[0].Queues)
	c.Workload = w.Cfg.Workload
	for i, j := 0, len(c.Accounts)-1; i < j; i, j = i+1, j-1 {
		c.Accounts[i], c.Accounts[j] = c.Accounts[j], c.Accounts[i]
	}
	return c
}

// A8: with the accounts in another order, control is another account, where the workload is not.
func TestAConfigurationWithItsAccountsInAnotherOrderMakesNoSecondWorkload(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		ctx, run := t.Context(), w.Run
		use := map[string]func(c pump.Config) error{
			"distributor": func(c pump.Config) error {
				d, err := distributor.New(c, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
				if err != nil {
					return err
				}
				return proof.ErrOf(d.Run(ctx))
			},
			"elected distributor": func(c pump.Config) error {
				d, err := distributor.New(c, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{Every: time.Hour})
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				return proof.ErrOf(d.Run(ctx))
			},
			"processor": func(c pump.Config) error {
				p, err := processor.New(c, pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{UntilIdle: time.Minute})
				if err != nil {
					return err
				}
				return proof.ErrOf(p.Run(ctx))
			},
			"accounts list": func(c pump.Config) error { return proof.ErrOf(accounts.List(ctx, c)) },
			"accounts add":  func(c pump.Config) error { return proof.ErrOf(accounts.Add(ctx, c, "accountb")) },
			"quarantine":    func(c pump.Config) error { return proof.ErrOf(quarantine.Open(ctx, c)) },
			"gates":         func(c pump.Config) error { return proof.ErrOf(gates.List(ctx, c)) },
			"status":        func(c pump.Config) error { return proof.ErrOf(status.Read(ctx, c, status.Options{})) },
			"wait": func(c pump.Config) error {
				c.Delivery = pump.Once
				return proof.ErrOf(runs.Wait(ctx, c, run, pump.WaitOptions{}))
			},
		}
		for name, f := range use {
			err := f(reordered(w, "reordered-"+name[:1]))
			e, ok := errors.AsType[*pump.ConfigError](err)
			if !ok || e.Field != "control" || !strings.Contains(err.Error(), "is in account accounta") || !strings.Contains(e.Fix, "control: accounta") {
				t.Errorf("%s: %v", name, err)
			}
			if w.HasRow(1) || w.HasRow(2) {
				t.Fatalf("%s made the workload a second time", name)
			}
			if name == "wait" {
				continue
			}
			named := reordered(w, "named")
			named.Control = "accounta"
			if err := f(named); err != nil && !strings.Contains(name, "add") {
				t.Errorf("%s with control named: %v", name, err)
			}
		}
	})
}

// racer is a distributor that starts when others do, with its own order of the accounts.
type racer struct {
	w      *testworld.World
	name   string
	chance *rand.Rand
	config pump.Config
	err    error // of its last start
}

// shuffled gives the racer a configuration with the accounts in another order.
func (r *racer) shuffled(life int) {
	r.config = r.w.Config(fmt.Sprintf("%s-%d", r.name, life), 2)
	r.config.Workload = "town"
	accounts := r.config.Accounts
	r.chance.Shuffle(len(accounts), func(i, j int) { accounts[i], accounts[j] = accounts[j], accounts[i] })
	if r.chance.IntN(3) == 0 {
		r.config.Control = accounts[r.chance.IntN(len(accounts))].Storage.Name()
	}
}

// start is the start of a distributor, until there is a workload and its queues.
func (r *racer) start(ctx context.Context) {
	r.err = testworld.Prepared(ctx, distributor.New, r.config)
}

// startAndDie starts, and dies at some request: before it, or when it has acted.
func (r *racer) startAndDie(t *testing.T) {
	ctx, die := context.WithCancel(t.Context())
	defer die()
	at, name := r.chance.IntN(14), r.config.Instance
	rules := []*azsim.Injection{r.w.Sim.Inject(azsim.Rule{Instance: name, Fault: azsim.FailBefore, Skip: at + 1})}
	last := azsim.FailBefore
	if r.chance.IntN(2) == 0 {
		last = azsim.AnswerLost
	}
	rules = append(rules, r.w.Sim.Inject(azsim.Rule{Instance: name, Fault: last, Skip: at, First: 1}))
	time.AfterFunc(time.Duration(1+r.chance.IntN(3000))*time.Millisecond, die)
	r.start(ctx)
	for _, rule := range rules {
		rule.Remove()
	}
}

// run starts until the workload is there, for it or for another.
func (r *racer) run(t *testing.T, lives int) {
	for life := range lives {
		time.Sleep(time.Duration(r.chance.IntN(40)) * time.Millisecond)
		r.shuffled(life)
		if life < lives-1 {
			r.startAndDie(t)
			continue
		}
		for range 10 {
			if r.start(t.Context()); r.err == nil || strings.Contains(r.err.Error(), "is in account") {
				return
			}
			time.Sleep(time.Second)
		}
	}
}

// trouble lets requests fail, be late and go without an answer for half a minute.
func trouble(w *testworld.World, chance *rand.Rand) {
	faults := []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost, azsim.DelayBefore, azsim.DelayAfter}
	for _, f := range faults {
		if chance.IntN(2) == 0 {
			continue
		}
		rule := azsim.Rule{Service: "table", Fault: f, Probability: chance.Float64() / 4}
		rule.Delay = time.Duration(chance.IntN(15_000)) * time.Millisecond
		on := w.Sim.Inject(rule)
		time.AfterFunc(30*time.Second, on.Remove)
	}
}

// A8: two that look at the same time both find nothing.
func TestOfDistributorsWithAccountsInAnotherOrderAtTheSameTimeOneMakesTheWorkload(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		chance := rand.New(rand.NewPCG(seed, 8))
		accounts := 2 + chance.IntN(3)
		slow := time.Duration(1+chance.IntN(300)) * time.Millisecond
		testworld.In(t, testworld.Plain, accounts, 2, func(c *azsim.Config) { c.Seed, c.Latency = seed, slow }, func(t *testing.T, w *testworld.World) {
			w.Cfg.Workload = "town"
			if chance.IntN(3) > 0 {
				trouble(w, chance)
			}
			racers := make([]racer, 2+chance.IntN(4))
			var all sync.WaitGroup
			for i := range racers {
				r := &racers[i]
				*r = racer{w: w, name: fmt.Sprintf("d%d", i), chance: rand.New(rand.NewPCG(seed, uint64(i)))}
				lives := 1 + chance.IntN(3)
				all.Go(func() { r.run(t, lives) })
			}
			all.Wait()
			where := ""
			for i, a := range w.Cfg.Accounts {
				if w.HasRow(i) {
					where += a.Name
				}
			}
			for _, r := range racers {
				cfg, err := setup.Complete(r.config)
				proof.Must(t, err)
				_, refused := errors.AsType[*pump.ConfigError](r.err)
				switch {
				case cfg.Control == where && r.err != nil, cfg.Control != where && !refused:
					t.Errorf("seed %d: the workload is in %q; %s, who would have it in %s: %v", seed, where, r.name, cfg.Control, r.err)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A8: nothing that a maker has left where it died keeps others from making the workload.
func TestAMakerThatDiedAtAnyRequestKeepsNoOtherFromMakingTheWorkload(t *testing.T) {
	for _, last := range []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost} {
		for at := range 20 {
			testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
				w.Cfg.Workload = "town"
				ctx, die := context.WithTimeout(t.Context(), 5*time.Second)
				defer die()
				dead := racer{w: w, config: w.Config("dead", 2)}
				dead.config.Workload = "town"
				w.Sim.Inject(azsim.Rule{Instance: "dead", Fault: azsim.FailBefore, Skip: at + 1})
				w.Sim.Inject(azsim.Rule{Instance: "dead", Fault: last, Skip: at, First: 1})
				dead.start(ctx)
				made := w.HasRow(0)
				next := racer{w: w, config: reordered(w, "next")}
				began := time.Now()
				next.start(t.Context())
				if took := time.Since(began); took > 3*time.Second || made && next.err == nil || !made && next.err != nil {
					t.Errorf("%s at request %d: made %v, then in %v: %v", last, at, made, took, next.err)
				}
			})
		}
	}
}

// A8: configurations that share an account; neither lists the other's control account.
func TestAnAccountThatTakesPartInAnUnknownWorkloadOfTheNameIsRefused(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		with := func(name string, drop int) *racer {
			r := &racer{w: w, config: w.Config(name, 2)}
			r.config.Workload = "town"
			r.config.Accounts = append(r.config.Accounts[:drop:drop], r.config.Accounts[drop+1:]...)
			return r
		}
		first, second := with("first", 1), with("second", 0) // of a and c, and of b and c
		first.start(t.Context())
		proof.Must(t, first.err)
		second.start(t.Context())
		if e, ok := errors.AsType[*pump.ConfigError](second.err); !ok || e.Field != "accounts" || !strings.Contains(e.Problem, "of account accounta") || w.HasRow(1) {
			t.Error(second.err)
		}
	})
}

// Two that there are already, made by versions that raced: no process takes part in either.
func TestAProcessThatFindsASecondWorkloadOfItsNameRefusesToStart(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		rival(w, 1, setup.Shards(w.Cfg))
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.HangBefore})
		d, err := distributor.New(w.Config("d", 2), &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		proof.Must(t, err)
		began := time.Now()
		errs := []error{proof.ErrOf(d.Run(t.Context()))}
		p, err := processor.New(w.Config("p", 2), pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		proof.Must(t, err)
		errs = append(errs, proof.ErrOf(p.Run(t.Context())))
		for _, err := range errs {
			e, ok := errors.AsType[*pump.ConfigError](err)
			if !ok || !strings.Contains(e.Problem, "in account accounta") || !strings.Contains(e.Problem, "in account accountb") || !strings.Contains(e.Fix, "workload delete") {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 2*setup.RivalPatience+time.Second {
			t.Errorf("an account that does not answer kept them for %v", took)
		}
	})
}

// A workload whose anchors are gone is found: a process that finds it makes none.
func TestAWorkloadWithoutAnchorsIsFound(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		late := w.Sim.Inject(azsim.Rule{Instance: "d", Account: "accountb", Service: "table", Fault: azsim.DelayBefore, Delay: 3 * time.Second, Skip: 1})
		defer late.Remove()
		r := racer{w: w, config: w.Config("d", 2)}
		r.config.Workload = "town"
		done := make(chan struct{})
		go func() { r.start(t.Context()); close(done) }()
		time.Sleep(time.Second) // it has looked once, and is about to announce itself
		rival(w, 1, setup.Shards(w.Cfg))
		<-done
		if r.err == nil || !strings.Contains(r.err.Error(), "is in account accountb") || w.HasRow(0) {
			t.Error(r.err)
		}
	})
}
