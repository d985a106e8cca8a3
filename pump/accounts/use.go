package accounts

import (
	"cmp"
	"context"
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// The states of an account in a workload.
const (
	Active   = "active"
	Draining = "draining" // gets nothing new, is still read
	Unused   = "unused"   // configured, but not in the workload's map
)

// Use says how a workload uses a storage account.
type Use struct {
	Name string `json:"name"`
	// State is Active, Draining or Unused.
	State string `json:"state"`
	// Control: the workload's rows are in this account.
	Control bool `json:"control"`
	// Configured: this configuration has credentials for it.
	Configured bool    `json:"configured"`
	Queues     int     `json:"queues"`
	Weight     float64 `json:"weight"`
	Segments   int     `json:"homes"` // whose home is one of its queues
	// Foreign are other programs' queues in it that the workload reads; never null.
	Foreign []string `json:"foreignQueues"`
}

// List says how the workload uses each account of its map and of the
// configuration, by name. The error is pump.ErrNoWorkload if the workload does not exist. If the
// configuration differs from what is pinned, the error is a [*pump.MismatchError], and the list is
// given too.
func List(ctx context.Context, cfg pump.Config) ([]Use, error) {
	o, err := readAccounts(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return Uses(&o.Cfg.Config, o.Workload.Map), o.Check()
}

// Uses says how a workload with this map uses each account of it and of the configuration, by name.
func Uses(cfg *pump.Config, m *shardmap.Map) []Use {
	return UsesOf(cfg, m.Shards, m.Loads())
}

// UsesOf is Uses of shards that are the homes of so many segments each.
func UsesOf(cfg *pump.Config, shards []shardmap.Shard, loads []int) []Use {
	var uses []Use
	find := func(name string) *Use {
		i := slices.IndexFunc(uses, func(u Use) bool { return u.Name == name })
		if i < 0 {
			i = len(uses)
			uses = append(uses, Use{
				Name: name, State: Unused, Control: name == cfg.Control, Foreign: []string{},
			})
		}
		return &uses[i]
	}
	for i, s := range shards {
		u := find(s.Account)
		if s.State == shardmap.Foreign {
			u.Foreign = append(u.Foreign, s.Queue)
			continue
		}
		u.Queues++
		u.Weight += s.Weight
		u.Segments += loads[i]
		// The operations change all queues of an account together.
		u.State = Draining
		if s.State == shardmap.Active {
			u.State = Active
		}
	}
	for _, a := range cfg.Accounts {
		u := find(a.Name)
		u.Configured = true
		if u.State == Unused {
			u.Queues, u.Weight = a.Queues, a.Weight
		}
	}
	for i := range uses {
		// A weight is kept in millionths for each queue; people gave it for all.
		uses[i].Weight = float64(int64(uses[i].Weight*1e4+0.5)) / 1e4
	}
	slices.SortFunc(uses, func(a, b Use) int { return cmp.Compare(a.Name, b.Name) })
	return uses
}
