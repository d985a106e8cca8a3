package setup

import (
	"cmp"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// Gate is what gates.Status has.
type Gate struct {
	Name    string
	Open    bool
	By      string
	Since   *time.Time
	Waiting int
}

// Gates joins the gates of a workload with the gates that its members wait at, by name.
func Gates(states []coordination.GateState, members []cluster.Member) (gates []Gate) {
	for _, g := range states {
		s := Gate{Name: g.Name, Open: g.Open, By: g.By}
		if !g.Since.IsZero() {
			s.Since = new(g.Since.UTC())
		}
		gates = append(gates, s)
	}
	for _, m := range members {
		if m.Waiting == "" {
			continue
		}
		i := slices.IndexFunc(gates, func(g Gate) bool { return g.Name == m.Waiting })
		if i < 0 { // no operator has opened or closed it yet
			i = len(gates)
			gates = append(gates, Gate{Name: m.Waiting})
		}
		gates[i].Waiting++
	}
	slices.SortFunc(gates, func(a, b Gate) int { return cmp.Compare(a.Name, b.Name) })
	return gates
}
