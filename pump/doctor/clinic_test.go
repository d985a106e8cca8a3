package doctor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// clinic is a world with processors at work, and what the doctor sees of this machine.
type clinic struct {
	*testworld.World
	cfg        pump.Config
	o          doctor.Options
	names      map[string]doctor.Resolved // that do not resolve to a public address
	unresolved string                     // a name that is not there
	closed     string                     // an address that does not answer
	cut        string                     // an account whose budgets are cut
	throttles  int64                      // of that account
	free       uint64                     // bytes of the disk
	work       pump.HandlerFunc           // what handlers do; nil: nothing
	started    []*testworld.Started[*processor.Processor, processor.Summary]
}

// inClinic runs a test in a world of two accounts with so many queues each.
func inClinic(
	t *testing.T,
	spec workload.Spec,
	queues, processors int,
	test func(t *testing.T, c *clinic),
) {
	t.Helper()
	testworld.In(t, spec, 2, queues, nil, func(t *testing.T, w *testworld.World) {
		host, err := os.Hostname()
		must(t, err)
		c := &clinic{World: w, cfg: w.Operator(), throttles: 12, names: map[string]doctor.Resolved{}, free: 100 << 30}
		c.o = doctor.Options{
			Host: host, Resolve: c.resolve, Get: c.get,
			FreeDisk: func(string) (uint64, uint64, error) { return c.free, 200 << 30, nil },
		}
		defer func() {
			for _, s := range c.started {
				s.Stop()
			}
			for _, s := range c.started {
				<-s.Done
			}
		}()
		for i := range processors {
			c.start(fmt.Sprintf("p%02d", i))
		}
		if processors > 0 {
			w.Settled(processors)
			time.Sleep(time.Minute) // so that none of them has just come
		}
		test(t, c)
	})
}

func (c *clinic) start(instance string) {
	c.T.Helper()
	cfg := c.Config(instance, len(c.ShardMap().Shards)/2)
	cfg.Workload = c.Cfg.Workload
	cfg.Admin = fmt.Sprintf("10.0.0.%d:9090", len(c.started)+1)
	cfg.Nudge = func(context.Context, pump.Nudge) error { return nil }
	p, err := processor.New(cfg, &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
		if c.work == nil {
			return nil
		}
		return c.work(ctx, task)
	}}, processor.Options{Concurrency: 50, Timeout: -1})
	must(c.T, err)
	c.started = append(c.started, testworld.Start(c.T, p))
}

func (c *clinic) resolve(_ context.Context, host string) (doctor.Resolved, error) {
	if host == c.unresolved {
		return doctor.Resolved{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if r, ok := c.names[host]; ok {
		return r, nil
	}
	return doctor.Resolved{
		Canonical: host, Addresses: []netip.Addr{netip.MustParseAddr("20.60.0.1")},
	}, nil
}

func (c *clinic) get(_ context.Context, address, path string, _ bool) ([]byte, error) {
	if address == c.closed {
		return nil, errors.New("connection refused")
	}
	if path == "/healthz" {
		return []byte("alive\n"), nil
	}
	s := processor.State{}
	for _, a := range c.Cfg.Accounts {
		of := pump.AccountState{Name: a.Name, BudgetRate: 1000, BudgetTarget: 1000}
		if a.Name == c.cut {
			of.BudgetRate, of.Throttled = 400, c.throttles
		}
		s.Accounts = append(s.Accounts, of)
	}
	return json.Marshal(s)
}

// join is a member that does nothing.
func (c *clinic) join(instance string, o cluster.Options) {
	c.T.Helper()
	w, err := workload.Load(c.T.Context(), c.Table(), c.Cfg.Workload)
	must(c.T, err)
	o.Instance, o.Version = instance, cmp.Or(o.Version, logs.Revision())
	if o.Role == "" {
		o.Role = cluster.RoleProcessor
	}
	if o.Host == "" {
		o.Host = c.o.Host
	}
	if o.Report == nil {
		o.Report = func() cluster.Report { return cluster.Report{Reads: codec.Version} }
	}
	p, err := cluster.Join(c.T.Context(), w, o)
	must(c.T, err)
	c.T.Cleanup(func() { p.Leave(context.WithoutCancel(c.T.Context())) })
}

// deny has an account refuse operations to the doctor.
func (c *clinic) deny(account, code string, operations ...string) {
	c.Fault(
		azsim.Rule{Account: account, Instance: "operator", Fault: azsim.Answer, Status: 403, Code: code},
		operations...)
}

// found is what a doctor found, a line each, without words that are for people.
func found(r *doctor.Report) (lines []string) {
	for _, f := range r.Findings {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Severity, f.Check, f.Subject)))
	}
	return lines
}

func (c *clinic) check() *doctor.Report {
	c.T.Helper()
	began := time.Now()
	r := doctor.Check(c.T.Context(), c.cfg, c.o)
	if took := time.Since(began); took > 10*time.Second {
		c.T.Errorf("it took %v", took)
	}
	return r
}

// left is what stands in the accounts of what doctors make.
func (c *clinic) left() (left []string) {
	c.T.Helper()
	for _, a := range c.Cfg.Accounts {
		names, err := a.Storage.Queues(c.T.Context(), c.Cfg.Workload+"-doctor")
		must(c.T, err)
		left = append(left, names...)
		for e, err := range a.Storage.Table("queuepump").Query(c.T.Context(), storage.Query{Partition: c.Cfg.Workload + ".doctor"}) {
			if storage.Is(err, storage.Missing) {
				break // it has no table
			}
			must(c.T, err)
			left = append(left, e.Row)
		}
	}
	return left
}

func byAccount(r *doctor.Report) map[string]doctor.Account {
	of := map[string]doctor.Account{}
	for _, a := range r.Accounts {
		of[a.Name] = a
	}
	return of
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
