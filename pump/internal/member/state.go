package member

import (
	"cmp"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// State is this process's place in the cluster. The member may be nil: it has not joined.
func (m *Member) State() pump.ClusterState {
	c := pump.ClusterState{Rank: -1}
	if m == nil {
		return c
	}
	p := m.Presence.Load()
	if p == nil {
		return c
	}
	v := p.View()
	c.Members, c.Rank, c.MapVersion = len(v.Members), v.Rank(m.cfg.Instance), v.Workload.Map.Version
	c.DarkSeconds = p.Dark().Seconds()
	c.Segments = len(v.Owners)
	plan := v.Plan() // nil if segments have no owners
	for s := range v.Owners {
		// Counted in the view, which knows what was claimed since the last look.
		if _, owned := v.OwnerOf(uint32(s)); !owned {
			c.Unowned++
		}
		_, held := p.Hold(uint32(s))
		planned := c.Rank >= 0 && s < len(plan) && plan[s] == c.Rank
		if held {
			c.Held++
		}
		if planned {
			c.Planned++
			if !held {
				c.Missing++
			}
		}
	}
	if _, longest := p.Unowned(); c.Unowned > 0 {
		c.UnownedSeconds = longest.Seconds()
	}
	return c
}

// Loop is the state of the loop that beats and looks at the cluster. The member may be nil: it has
// not joined. It rests for a beat at most, and a request has a deadline of ten seconds at most.
func (m *Member) Loop() pump.LoopState {
	name := "member"
	if m != nil {
		if p := m.Presence.Load(); p != nil {
			return OfLoop(name, p.Rounds(), 2*cmp.Or(m.Queues.Values().Beat, DefaultBeat)+time.Minute)
		}
	}
	return pump.LoopState{Name: name}
}

// OfLoop is the state of a loop by its counter.
func OfLoop(name string, c *waits.Counter, most time.Duration) pump.LoopState {
	if !c.Running() {
		most = 0
	}
	return pump.LoopState{Name: name, Rounds: c.Count(), Most: most}
}
