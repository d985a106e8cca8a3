package queues

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/queuepump/queuepump/internal/upkeep"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/shardmap"
)

const (
	dayLength = 24 * time.Hour
	// lastMinutes is the least time over which what is left of a day is given out: the sum that is
	// known is up to half a minute old, and what was not spent in the last minutes is not made up for.
	lastMinutes = 2 * time.Minute
	// headroom is how much more than it spends is a process's fair share while it is not held back.
	headroom = 1.25
)

// dayOf is the number of a UTC day.
func dayOf(at time.Time) int64 { return at.Unix() / int64(dayLength.Seconds()) }

// rest is how much a second may be spent, evenly over the rest of the day, of what is left of it.
func rest(left float64, now time.Time) float64 {
	end := time.Unix((dayOf(now)+1)*int64(dayLength.Seconds()), 0)
	return max(left, 0) / max(end.Sub(now), lastMinutes).Seconds()
}

// Share is what one processor may spend a second, if all processes together may spend all. The
// spending of distributors and others that poll nothing comes first, because they are not held
// back. A processor that is not slowed needs what it spends; those that are share the rest.
func Share(v *cluster.View, instance string, all float64) float64 {
	stamp := v.Stamp()
	var demands []float64
	me := -1
	for i := range v.Members {
		m := &v.Members[i]
		switch {
		case m.Instance == instance && m.Role == cluster.RoleProcessor:
			me = len(demands)
		case m.Err != nil || m.Silent(stamp):
			continue
		case m.Role != cluster.RoleProcessor:
			all = max(all-m.Spends, 0)
			continue
		}
		demand := m.Spends * headroom
		if m.Slower > 1 || m.HoldsBack {
			demand = math.MaxFloat64
		}
		demands = append(demands, min(demand, all))
	}
	if me < 0 { // evicted after a pause, and about to come back; or no processor
		me, demands = len(demands), append(demands, all)
	}
	return Even(all, demands)[me]
}

// Least is what a day of a workload costs at the least: its processes beat and look at the cluster,
// and its queues are polled as slowly as they may be.
func Least(cfg *pump.Config, processors, distributors int) float64 {
	f := upkeep.Fleet{
		Processors: processors, Distributors: distributors, Accounts: len(cfg.Accounts),
		Once: cfg.Delivery == pump.Once, Shared: cfg.Segments == pump.Shared,
		Segments: max(cfg.Segments, 0), Sample: cfg.Sample,
	}
	for _, a := range cfg.Accounts {
		f.Queues += a.Queues + len(a.Foreign)
	}
	f.Segments = cmp.Or(f.Segments, shardmap.DefaultSegments(f.Queues))
	queues, tables := f.Least()
	return cfg.Prices.Cost(queues, tables) * dayLength.Seconds()
}

// Check refuses a cap below the least cost of a day, that with one process of each role. The
// configuration has its defaults.
func Check(cfg *pump.Config) error {
	least := Least(cfg, 1, 1)
	if c := cfg.Budget.CostPerDay; c <= 0 || c >= least {
		return nil
	}
	return pump.Invalid("budget.costPerDay", fmt.Sprintf("%.4g %s is less than what a day costs "+
		"at the least, with one processor and one distributor and nothing to do: %.4f %s",
		cfg.Budget.CostPerDay, cfg.Prices.Currency, least, cfg.Prices.Currency),
		fmt.Sprintf("use %.4f or more, or fewer queues, or leave it out for no cap",
			math.Ceil(least*1e4)/1e4))
}
