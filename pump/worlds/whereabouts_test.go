package worlds

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// reordered is the configuration with its accounts in the opposite order.
func (w *world) reordered(instance string) pump.Config {
	c := w.Config(instance, w.Cfg.Accounts[0].Queues)
	c.Workload = w.Cfg.Workload
	for i, j := 0, len(c.Accounts)-1; i < j; i, j = i+1, j-1 {
		c.Accounts[i], c.Accounts[j] = c.Accounts[j], c.Accounts[i]
	}
	return c
}

// hasRow reports whether an account has a row of the workload.
func (w *world) hasRow(i int) bool {
	w.T.Helper()
	_, err := workload.Load(w.T.Context(), w.Cfg.Accounts[i].Storage.Table(row.TableName), w.Cfg.Workload)
	if err != nil && !errors.Is(err, pump.ErrNoWorkload) {
		w.T.Fatal(err)
	}
	return err == nil
}

// A8: with the accounts in another order, control is another account, where the workload is not.
func TestAConfigurationWithItsAccountsInAnotherOrderMakesNoSecondWorkload(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		ctx, run := t.Context(), w.Run
		use := map[string]func(c pump.Config) error{
			"distributor": func(c pump.Config) error {
				d, err := distributor.New(c, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
				if err != nil {
					return err
				}
				return second(d.Run(ctx))
			},
			"elected distributor": func(c pump.Config) error {
				d, err := distributor.New(c, &testworld.ListSource{Print: "list", N: 10}, distributor.Options{Every: time.Hour})
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				return second(d.Run(ctx))
			},
			"processor": func(c pump.Config) error {
				p, err := processor.New(c, pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{UntilIdle: time.Minute})
				if err != nil {
					return err
				}
				return second(p.Run(ctx))
			},
			"accounts list": func(c pump.Config) error { return second(accounts.List(ctx, c)) },
			"accounts add":  func(c pump.Config) error { return second(accounts.Add(ctx, c, "accountb")) },
			"quarantine":    func(c pump.Config) error { return second(quarantine.Open(ctx, c)) },
			"gates":         func(c pump.Config) error { return second(gates.List(ctx, c)) },
			"status":        func(c pump.Config) error { return second(status.Read(ctx, c, status.Options{})) },
			"wait": func(c pump.Config) error {
				c.Delivery = pump.Once
				return second(runs.Wait(ctx, c, run, pump.WaitOptions{}))
			},
		}
		for name, f := range use {
			err := f(w.reordered("reordered-" + name[:1]))
			e, ok := errors.AsType[*pump.ConfigError](err)
			if !ok || e.Field != "control" || !strings.Contains(err.Error(), "is in account accounta") || !strings.Contains(e.Fix, "control: accounta") {
				t.Errorf("%s: %v", name, err)
			}
			if w.hasRow(1) || w.hasRow(2) {
				t.Fatalf("%s made the workload a second time", name)
			}
			if name == "wait" {
				continue
			}
			named := w.reordered("named")
			named.Control = "accounta"
			if err := f(named); err != nil && !strings.Contains(name, "add") {
				t.Errorf("%s with control named: %v", name, err)
			}
		}
	})
}

// A8: while an account does not answer, the workload may be there.
func TestAWorkloadIsNotMadeWhileAnAccountCannotBeLookedInto(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Workload = "town"
		config := func(control string) pump.Config {
			c := w.Operator()
			c.Control = control
			return c
		}
		run := func(c pump.Config, o distributor.Options, d time.Duration) error {
			dist, err := distributor.New(c, &testworld.ListSource{Print: "list", N: 10}, o)
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			return second(dist.Run(ctx))
		}
		dark := w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.FailBefore})
		for _, c := range []pump.Config{config(""), config("accounta")} {
			if err := run(c, distributor.Options{}, time.Hour); !storage.Ambiguous(err) || !strings.Contains(err.Error(), "account accountc does not answer") || w.hasRow(0) {
				t.Errorf("dark: %v", err)
			}
		}
		go func() {
			time.Sleep(2 * time.Minute)
			dark.Remove()
		}()
		// Who is there to go on waits.
		if err := run(config(""), distributor.Options{Every: time.Hour}, 5*time.Minute); err != nil || !w.hasRow(0) {
			t.Errorf("a service: %v", err)
		}
		// Credentials for queues alone: it cannot be told, unless control is named.
		w.Cfg.Workload = "village"
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"})
		err := run(config(""), distributor.Options{}, time.Hour)
		if e, ok := errors.AsType[*pump.ConfigError](err); !ok || e.Field != "control" || !strings.Contains(e.Fix, "control: accounta") || w.hasRow(0) {
			t.Errorf("without leave to look: %v", err)
		}
		if err := run(config("accounta"), distributor.Options{}, time.Hour); err != nil || !w.hasRow(0) {
			t.Errorf("with control named: %v", err)
		}
	})
}

// A8: the line that is said while a start waits names the account that is waited for.
func TestWhoWaitsForAnotherAccountThanControlSaysForWhich(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Workload = "town"
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "table", Fault: azsim.HangBefore})
		d, err := distributor.New(w.Operator(), &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		must(t, err)
		if err := second(d.Run(t.Context())); !storage.Ambiguous(err) {
			t.Error(err)
		}
		if n := w.Logged("waiting for the control account to answer"); n > 0 {
			t.Errorf("%d lines say that the control account does not answer", n)
		}
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

// B5: a member that knows the account's rivals only joins between the look and the change.
func TestAnAccountIsTakenBackIfAMemberThatCannotReadItJoinsMeanwhile(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		cfg := w.Operator()
		joined := false
		cfg.Accounts[2].Storage = beforeCreate{cfg.Accounts[2].Storage, func() {
			if !joined {
				joined = true
				w.joined("late", cluster.RoleProcessor, cluster.Report{Accounts: []string{"accounta", "accountb"}})
			}
		}}
		e := refused(t, second(accounts.Add(t.Context(), cfg, "accountc")), "processes joined meanwhile")
		if !strings.Contains(e.Problem, "late") || w.states() != "a active 2, b active 2, c draining 2" {
			t.Errorf("%v; %s", e, w.states())
		}
	})
}

// B5: who joins after the second look sees the new map, and must not work with it.
func TestAProcessorRefusesAnAccountThatWasAddedWhileItJoined(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		c := w.Config("p", 2)
		c.Workload, c.Accounts = w.Cfg.Workload, c.Accounts[:2]
		p, err := processor.New(c, pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		must(t, err)
		w.Sim.Inject(azsim.Rule{Instance: "p", Service: "table", Account: "accounta", Fault: azsim.DelayBefore, Delay: 5 * time.Second, Skip: 1, First: 1})
		s := w.start(p)
		time.Sleep(3 * time.Second)
		must(t, errOf(accounts.Add(t.Context(), w.Operator(), "accountc")))
		select {
		case <-s.Done:
		case <-time.After(time.Minute):
			s.Stop()
			<-s.Done
		}
		if s.Err == nil || !strings.Contains(s.Err.Error(), `"accountc", for which there are no credentials`) {
			t.Error(s.Err)
		}
	})
}

// beforeCreate is an account in which something happens before a queue is made.
type beforeCreate struct {
	storage.Account
	then func()
}

type createdQueue struct {
	storage.Queue
	then func()
}

func (a beforeCreate) Queue(name string) storage.Queue {
	return createdQueue{a.Account.Queue(name), a.then}
}

func (q createdQueue) Create(ctx context.Context) error {
	if strings.HasSuffix(q.Name(), "-poison") {
		q.then()
	}
	return q.Queue.Create(ctx)
}
