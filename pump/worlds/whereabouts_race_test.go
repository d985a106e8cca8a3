package worlds

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
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// racer is a distributor that starts when others do, with its own order of the accounts.
type racer struct {
	w      *world
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
	d, err := distributor.New(r.config, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
	if err == nil {
		err = d.Prepare(ctx)
	}
	r.err = err
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
func (w *world) trouble(chance *rand.Rand) {
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
		inWorld(t, accounts, 2, func(c *azsim.Config) { c.Seed, c.Latency = seed, slow }, func(t *testing.T, w *world) {
			w.Cfg.Workload = "town"
			if chance.IntN(3) > 0 {
				w.trouble(chance)
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
				if w.hasRow(i) {
					where += a.Name
				}
			}
			for _, r := range racers {
				cfg, err := setup.Complete(r.config)
				must(t, err)
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
			inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
				w.Cfg.Workload = "town"
				ctx, die := context.WithTimeout(t.Context(), 5*time.Second)
				defer die()
				dead := racer{w: w, config: w.Config("dead", 2)}
				dead.config.Workload = "town"
				w.Sim.Inject(azsim.Rule{Instance: "dead", Fault: azsim.FailBefore, Skip: at + 1})
				w.Sim.Inject(azsim.Rule{Instance: "dead", Fault: last, Skip: at, First: 1})
				dead.start(ctx)
				made := w.hasRow(0)
				next := racer{w: w, config: w.reordered("next")}
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
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Workload = "town"
		with := func(name string, drop int) *racer {
			r := &racer{w: w, config: w.Config(name, 2)}
			r.config.Workload = "town"
			r.config.Accounts = append(r.config.Accounts[:drop:drop], r.config.Accounts[drop+1:]...)
			return r
		}
		first, second := with("first", 1), with("second", 0) // of a and c, and of b and c
		if first.start(t.Context()); first.err != nil {
			t.Fatal(first.err)
		}
		second.start(t.Context())
		if e, ok := errors.AsType[*pump.ConfigError](second.err); !ok || e.Field != "accounts" || !strings.Contains(e.Problem, "of account accounta") || w.hasRow(1) {
			t.Error(second.err)
		}
	})
}

// Two that there are already, made by versions that raced: no process takes part in either.
func TestAProcessThatFindsASecondWorkloadOfItsNameRefusesToStart(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.rival(1, setup.Shards(w.Cfg))
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.HangBefore})
		d, err := distributor.New(w.Config("d", 2), &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		must(t, err)
		began := time.Now()
		errs := []error{second(d.Run(t.Context()))}
		p, err := processor.New(w.Config("p", 2), pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		must(t, err)
		errs = append(errs, second(p.Run(t.Context())))
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
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Workload = "town"
		late := w.Sim.Inject(azsim.Rule{Instance: "d", Account: "accountb", Service: "table", Fault: azsim.DelayBefore, Delay: 3 * time.Second, Skip: 1})
		defer late.Remove()
		r := racer{w: w, config: w.Config("d", 2)}
		r.config.Workload = "town"
		done := make(chan struct{})
		go func() { r.start(t.Context()); close(done) }()
		time.Sleep(time.Second) // it has looked once, and is about to announce itself
		w.rival(1, setup.Shards(w.Cfg))
		<-done
		if r.err == nil || !strings.Contains(r.err.Error(), "is in account accountb") || w.hasRow(0) {
			t.Error(r.err)
		}
	})
}
