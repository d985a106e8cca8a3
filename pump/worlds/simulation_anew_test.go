package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Worlds in which the workload is not what processes take it for: its row was made anew, or is in
// an account that their configuration does not list first; and worlds in which it is theirs, and
// an account does not know that yet.

// madeAnew are worlds in which the workload's row is removed and made again as it was.
func (g *simSeeded) madeAnew() {
	p := g.plan
	p.live, p.limit, p.tables, p.entities, g.events = false, 0, 0, false, -1
	p.pace = max(p.pace, 15*time.Second)
	g.step(simStep{at: g.seconds(4, 30), verb: "remake"})
}

// remakes reports whether the workload of a plan is made anew. A run of the one of before is
// broken then.
func (p *simPlan) remakes() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "remake" })
}

// simAnew is within which time processes of a workload that was made anew end: an owner looks at
// the row with each beat, a distributor when its map grows old, which is checked at each put.
const simAnew = time.Minute

// remake writes the workload's row as if somebody had removed it and made it again. Who works for
// the one of before ends, and is started again.
func (w *simWorld) remake() {
	w.count("workloads that were made anew")
	w.lasts(simAnew + simSent)
	w.goes.Go(func() {
		table, ctx := w.sure(w.sim.Accounts()[0]).Table(row.TableName), context.Background()
		for {
			e, err := table.Read(ctx, "work", "workload")
			if err == nil {
				e.Properties = map[string]any{"Incarnation": fmt.Sprintf("%016x", w.roll(1<<60, "anew", 0))}
				_, err = table.Write(ctx, storage.Write{Mode: storage.Merge, Entity: e})
			}
			if err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		w.mu.Lock()
		before := slices.Clone(w.all)
		before = slices.DeleteFunc(before, func(p *simProcess) bool { return p.over() || p.stopping })
		w.mu.Unlock()
		time.Sleep(simAnew)
		for _, p := range before {
			if !p.over() {
				w.wrongf("%s goes on %v after its workload was made anew (A9)", p, simAnew)
			} else if p.name[0] != 'o' { // whose source is read once
				w.start(p.name)
			}
		}
	})
}

// otherOrder are worlds in which processes are started again by a configuration with its accounts
// in another order, early on, and then as they were.
func (g *simSeeded) otherOrder() {
	p := g.plan
	p.accounts, p.pace = 2+g.roll(2), max(p.pace, 20*time.Second)
	at := g.seconds(15, 20)
	for _, name := range []string{"p1", "d1"}[g.roll(3)%2:] {
		g.step(simStep{at: at, verb: "turn", who: name})
		at += g.seconds(8, 12)
		g.step(simStep{at: at, verb: "restart", who: name})
	}
	g.calm = at
}

// simTurned says that a process has its accounts in another order.
const simTurned = "accounts in another order"

// endedWell reports whether a process's error is what it should have ended with.
func (p *simProcess) endedWell() bool {
	if p.turned {
		e, ok := errors.AsType[*pump.ConfigError](p.err)
		return ok && e.Field == "control"
	}
	return p.err == nil || p.world.counts["workloads that were made anew"] > 0 && workload.Lost(p.err)
}

// checkOneWorkload: whatever the order of accounts in configurations, one account has the workload
// (A8).
func (w *simWorld) checkOneWorkload(ctx context.Context) {
	for _, name := range w.sim.Accounts()[1:] {
		if _, err := w.account(name).Table(row.TableName).Read(ctx, "work", "workload"); err == nil {
			w.wrongf("a second workload was made in %s (A8)", name)
		}
	}
	for _, p := range w.all {
		if p.turned && !p.dead && p.err == nil {
			w.wrongf("%s went on with its accounts in another order (A8)", p)
		}
	}
}

// lateRoles are worlds in which an account refuses what is put there until a role assignment has
// reached it.
func (g *simSeeded) lateRoles() {
	p := g.plan
	p.accounts, p.live = 2+g.roll(2), false
	g.calm = g.seconds(20, 100)
	r := azsim.Rule{
		Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch",
		Operations: []string{"PutMessage"}, Account: g.account(),
	}
	g.step(simStep{at: time.Millisecond, verb: "fault", span: g.calm, rule: r})
}

// deposedLeaders are worlds in which a leader that is about to break its run stands still for
// longer than its lease: what it put is refused as no other's is. Its successor continues the run
// meanwhile.
func (g *simSeeded) deposedLeaders() {
	p := g.plan
	p.live, p.limit, p.bad, p.tables, g.events = false, 0, 0, 0, -1
	p.tasks, p.pace = max(p.tasks, 200), g.seconds(100, 140)
	p.beat = 2 * time.Second // so that another one leads before a request is given up
	at := g.seconds(8, 20)
	g.step(simStep{at: 100 * time.Millisecond, verb: "start", who: "d1"}) // it leads
	g.step(simStep{at: 7 * time.Second, verb: "start", who: "d9"})
	g.step(simStep{at: at, verb: "pause", who: "d1", span: g.seconds(20, 28), point: "break", nth: 1})
	g.step(simStep{at: at, verb: "fault", span: g.seconds(10, 20), rule: azsim.Rule{
		Fault: azsim.Answer, Status: 400, Code: "InvalidInput",
		Operations: []string{"PutMessage"}, Instance: "d1",
	}})
}
