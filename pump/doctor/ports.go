package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/status"
)

const (
	// portsTimeout is how long all looks at admin ports may take together: enough for 512 members that
	// do not answer, at a second each.
	portsTimeout = 8 * time.Second
	portsAtOnce  = 64
)

// ports asks each live member's admin port whether it can be reached, and by how much its budgets
// are cut.
func (c *checkup) ports(ctx context.Context, l look) {
	ctx, cancel := context.WithTimeout(ctx, portsTimeout)
	defer cancel()
	var mu sync.Mutex // guards what follows
	var unreachable, elsewhere []string
	var cause error
	var address string
	rates := map[string]pump.AccountState{}
	var g errgroup.Group
	g.SetLimit(portsAtOnce)
	for i := range l.view.Members {
		m := &l.view.Members[i]
		if m.Admin == "" || m.Err != nil || silent(l.status, m.Instance) {
			continue
		}
		here := m.Host != "" && m.Host == c.o.Host
		if loops(m.Admin) && !here {
			elsewhere = append(elsewhere, m.Instance)
			continue
		}
		g.Go(func() error {
			_, err := c.o.Get(ctx, m.Admin, "/healthz", here)
			if ctx.Err() != nil {
				return nil // it was not asked in time
			}
			if err == nil {
				states := c.states(ctx, m, here)
				mu.Lock()
				defer mu.Unlock()
				add(rates, states)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if unreachable = append(unreachable, m.Instance); cause == nil ||
				m.Instance < slices.Min(unreachable[:len(unreachable)-1]) {
				cause, address = err, m.Admin
			}
			return nil
		})
	}
	_ = g.Wait()
	if len(unreachable) > 0 {
		slices.Sort(unreachable)
		c.find(
			CheckNudges,
			Warning,
			setup.SomeOf(unreachable, 4),
			fmt.Sprintf("curl -sS http://%s/healthz", address),
			"%d admin ports do not answer here, so tasks wait for the next poll where a hint would come: %v",
			len(unreachable),
			cause,
		)
	}
	if len(elsewhere) > 0 && c.manyHosts(l) {
		c.find(CheckNudges, Warning, setup.SomeOf(elsewhere, 4),
			"start them with --admin :9090, or set admin.listen in "+c.o.Config,
			"%d processes of other machines have their admin ports on loopback, "+
				"so tasks wait there for the next poll where a hint would come", len(elsewhere))
	}
	for name, s := range rates {
		if s.BudgetRate < cutBelow*s.BudgetTarget && s.Throttled > 0 {
			c.throttled(name,
				"the processes may ask for %.0f messages a second, "+
					"and could for %.0f if fewer requests were refused as too many", s.BudgetRate,
				s.BudgetTarget)
		}
	}
}

// manyHosts reports whether live members are on more than one machine: on one machine a loopback
// address is enough for hints.
func (c *checkup) manyHosts(l look) bool {
	host := ""
	for i := range l.view.Members {
		m := &l.view.Members[i]
		if m.Host == "" || silent(l.status, m.Instance) {
			continue
		}
		if host != "" && m.Host != host {
			return true
		}
		host = m.Host
	}
	return false
}

func silent(s *status.Status, instance string) bool {
	return slices.ContainsFunc(s.Instances,
		func(i status.Instance) bool { return i.Instance == instance && i.Silent })
}

// loops reports whether an address is one of the machine's own.
func loops(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// states are what a member may spend on each account; nil: it does not say.
func (c *checkup) states(ctx context.Context, m *cluster.Member, here bool) []pump.AccountState {
	text, err := c.o.Get(ctx, m.Admin, "/state", here)
	if err != nil {
		return nil
	}
	var s struct {
		Accounts []pump.AccountState `json:"accounts"`
	}
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	return s.Accounts
}

// add adds up what the members may spend.
func add(sum map[string]pump.AccountState, states []pump.AccountState) {
	for _, s := range states {
		of := sum[s.Name]
		of.BudgetRate += s.BudgetRate
		of.BudgetTarget += s.BudgetTarget
		of.Throttled += s.Throttled
		sum[s.Name] = of
	}
}
