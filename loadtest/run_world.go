package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/loadtest/scenario"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// loadWorld is what a load test runs on.
type loadWorld struct {
	file  *configfile.File // nil in virtual time
	close func()
	run   func(ctx context.Context, o scenario.Options) (*report.Result, error)
}

// open gets accounts ready.
func (f *runFlags) open(ctx context.Context, console *cli.Console) (*loadWorld, error) {
	switch {
	case f.virtual:
		return f.simulated()
	case f.config != "":
		file, err := configfile.Load(f.config)
		if err != nil {
			return nil, err
		}
		return configured(file, report.Real, func() {})
	}
	return f.beside(ctx, console)
}

// configured is the accounts of a configuration.
func configured(file *configfile.File, against report.Against, closeIt func()) (*loadWorld, error) {
	// Opened as the binaries do it. One handle serves all instances, because they are one process.
	accounts := slices.Clone(file.Config.Accounts)
	keys := service.NewKeys(slog.Default(), func() ([]pump.Account, error) { return accounts, nil })
	take, err := keys.Adopt(accounts)
	if err != nil {
		return nil, file.Locate(err)
	}
	take()
	w := scenario.World{
		Against: against, Config: file.Config, Limits: budgetLimits(file.Config.Budget),
		Open: func(_ string, i int) (storage.Account, error) { return accounts[i].Storage, nil },
	}
	run := func(ctx context.Context, o scenario.Options) (*report.Result, error) {
		return scenario.Run(ctx, w, o)
	}
	return &loadWorld{file: file, close: closeIt, run: run}, nil
}

// budgetLimits are the limits that a configuration states; by default the published ones.
func budgetLimits(b pump.Budget) report.Limits {
	published := azsim.PublishedLimits()
	l := report.Limits{
		Queue:   cmp.Or(b.Queue, float64(published.Queue)),
		Account: cmp.Or(b.Account, float64(published.QueueAccount)), GetCost: storage.MaxGet,
	}
	if b.GetCostsMessages != nil && !*b.GetCostsMessages {
		l.GetCost = 1
	}
	return l
}

// budget tells the pump what simulated accounts give, as its user would. Where they have no
// limit it keeps to the published one.
func budget(l azsim.Limits) pump.Budget {
	return pump.Budget{
		Account: max(float64(l.QueueAccount), 0), Queue: max(float64(l.Queue), 0),
		GetCostsMessages: new(l.GetCost > 1),
	}
}

// virtualLatency is what a request takes in virtual time: within a region.
const virtualLatency = 5 * time.Millisecond

// simulated is accounts in virtual time.
func (f *runFlags) simulated() (*loadWorld, error) {
	limits, err := f.simulate.ReadLimits()
	if err != nil {
		return nil, usage(err)
	}
	return &loadWorld{
		close: func() {},
		run: func(ctx context.Context, o scenario.Options) (r *report.Result, err error) {
			inVirtualTime(ctx, func(ctx context.Context) {
				c := azsim.Config{Limits: limits, Seed: f.simulate.Seed, Latency: virtualLatency}
				cfg := pump.Config{Budget: budget(limits)}
				for i := range f.simulate.Count {
					name := fmt.Sprintf("simulated%d", i+1)
					c.Accounts = append(c.Accounts, azsim.Account{Name: name})
					cfg.Accounts = append(cfg.Accounts, pump.Account{Name: name, Queues: f.simulate.Queues})
				}
				sim := azsim.New(c)
				r, err = scenario.Run(ctx, scenario.World{
					Against: report.Virtual, Config: cfg, Limits: budgetLimits(cfg.Budget),
					Open: func(instance string, i int) (storage.Account, error) {
						return azure.Open(azure.Options{
							ConnectionString: sim.ConnectionString(cfg.Accounts[i].Name),
							Transport:        sim.Transport().As(instance),
						})
					},
				}, o)
			})
			return r, err
		},
	}, nil
}

// inVirtualTime calls do in a bubble of virtual time. Bubbles are only to be had of a test, so
// the program is one for a moment: the test gives what it has and then never ends, or
// the testing package would end the process. Once only in a process.
func inVirtualTime(ctx context.Context, do func(context.Context)) {
	testing.Init()
	_ = flag.CommandLine.Parse(nil) // no flags of tests; the program's own are not in this set
	done := make(chan struct{})
	all := func(string, string) (bool, error) { return true, nil }
	go testing.Main(all, []testing.InternalTest{{Name: "virtual time", F: func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			inside, stop := insideOf(t.Context(), ctx)
			defer stop()
			do(inside)
		})
		close(done)
		select {}
	}}}, nil, nil)
	<-done
}

// insideOf is a context of the bubble that ends when the outside context does. The bubble cannot
// wait for the outside channel: virtual time would stand still.
func insideOf(bubble, outside context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(bubble)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ctx.Err() == nil {
			if outside.Err() != nil {
				cancel(context.Cause(outside))
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-gone
	}
}

// beside is simulated accounts in a process of their own, so that the test's use of the machine can
// be told from theirs.
func (f *runFlags) beside(ctx context.Context, console *cli.Console) (*loadWorld, error) {
	limits, err := f.simulate.ReadLimits()
	if err != nil {
		return nil, usage(err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "pump.yaml")
	p, err := startProcess("simulator", console.Log, self, "serve", "--write-config", path,
		"--accounts", strconv.Itoa(f.simulate.Count), "--queues", strconv.Itoa(f.simulate.Queues),
		"--limits", f.simulate.Limits, "--seed", strconv.FormatUint(f.simulate.Seed, 10))
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	closeIt := func() {
		p.stop(5 * time.Second)
		_ = os.RemoveAll(dir)
	}
	file, err := served(ctx, p, path)
	if err != nil {
		closeIt()
		return nil, err
	}
	file.Config.Budget = budget(limits)
	w, err := configured(file, report.Simulated, closeIt)
	if err != nil {
		closeIt()
	}
	return w, err
}

// served waits until the simulator serves, and reads how it is reached.
func served(ctx context.Context, p *process, path string) (*configfile.File, error) {
	for {
		if _, err := os.Stat(path); err == nil {
			return configfile.Load(path)
		}
		if p.ended() {
			return nil, errors.Join(p.failure(), fmt.Errorf("the %s ended before it served", p.name))
		}
		if err := scenario.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
