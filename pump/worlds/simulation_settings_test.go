package worlds

import (
	"context"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/workloads"
)

// simSettings are what operators set in worlds: leases up to that of other worlds, or what the end of a
// world waits for would come later.
var simSettings = []map[string]string{
	{"beat": "1s", "lease": "4s"},
	{"beat": "2s", "lease": "15s"},
	{"beat": "5s", "lease": "20s"},
	{"beat": "4s", "lease": "12s"},
	{"max-rate": "40"},
	{"max-rate": "400", "max-busy": "20h"},
	{"cost-per-day": "1000"},
}

// settings has operators set values and take them back while there is work. Some die of it.
func (g *simSeeded) settings() {
	calm := g.pausing()
	at := g.seconds(1, 20)
	for range 2 + g.roll(5) {
		by := g.operate(at, []string{"set", "set", "unset"}[g.roll(3)])
		if !calm && g.roll(4) == 0 {
			g.step(simStep{at: at, verb: "crash", who: by, after: g.roll(2) == 0, point: "write", nth: 1 + g.roll(3)})
		}
		at += g.seconds(1, 25)
	}
}

// sets reports whether operators of a plan set values, which processes then leave out.
func (p *simPlan) sets() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "operate" && s.order[0] == "set" })
}

// times are those that the processes of a plan give themselves.
func (p *simPlan) times() (beat, lease time.Duration) {
	if p.sets() {
		return 0, 0
	}
	return p.beat, p.lease()
}

// setsValues carries out a command, with values by the operator's name.
func (p *simProcess) setsValues(ctx context.Context, cfg pump.Config, order string) error {
	at := testkit.Hash(p.world.plan.seed, p.name, 0)
	if order == "unset" {
		_, err := workloads.SetSettings(ctx, cfg, nil, [][]string{{"beat", "lease"}, {"max-rate"}}[at%2], p.name)
		return err
	}
	_, err := workloads.SetSettings(ctx, cfg, simSettings[at%uint64(len(simSettings))], nil, p.name)
	return err
}
