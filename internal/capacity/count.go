package capacity

import (
	"math"
	"time"

	"github.com/queuepump/queuepump/internal/upkeep"
)

const (
	// A processor also counts what became of the tasks, in 5 s.
	tablePerTally = 1.0 / 5
	// A leader saves a checkpoint and says that it leads: a write a second and one in 5 s.
	tablePerLeader = 1 + 1.0/5
	// A distributor beats in the row of its run every 15 s.
	tablePerRun = 1.0 / 15
	// In mode once a processor commits the waiting records of a partition of the ledger so often, if
	// some wait each time. (Where the load of a partition makes that rarer, this is too much.)
	commitsPerPartition = 20.0

	day = 24 * 3600
)

// A lease follows the work (pump/processor/internal/leases/timing.go): a message that is held for
// less than four fifteenths of the longest lease needs no renewal. After that it is renewed every
// third of that lease.
const (
	longestLease = 300.0
	noRenewal    = longestLease * 4 / 15
	renewEvery   = longestLease / 3
)

// count adds up requests, connections and money.
func (in *Input) count(p *Plan, got float64) {
	m, k := p.Packing.Messages, p.Packing.Tasks
	r := &p.Requests
	r.Put, r.Get, r.Delete = m, m*got, m
	// A message is in hand from its get until its last task is done: about a second waiting, then
	// in turns of as many tasks as there are handlers.
	held := 1 + math.Ceil(k/float64(in.Concurrency))*in.HandlerSeconds
	if held > noRenewal {
		r.Renew = m * (1 + math.Floor((held-noRenewal)/renewEvery))
	}
	members := float64(p.Processors + p.Distributors)
	idle := members * upkeep.PerMember
	r.Table = idle + float64(p.Processors)*tablePerTally + float64(p.Distributors)*tablePerRun
	if in.Elected {
		r.Table += tablePerLeader
	}
	if in.Once {
		r.Table += float64(p.Processors)*upkeep.PerPrune +
			(1+math.Ceil(float64(p.Segments)/64))*upkeep.PerPrune
		r.Table += p.commits()
	}
	queues := r.Put + r.Get + r.Delete + r.Renew
	r.PerThousand = queues / in.Rate * 1000
	busy := in.Hours * 3600
	queuesDay := queues*busy + upkeep.IdleGets(p.Queues*in.readers(p))*(day-busy)
	tablesDay := r.Table*busy + idle*(day-busy)
	r.PerDay = queuesDay + tablesDay

	r.Objects, r.Bodies = in.objects(p), in.Rate*in.LargePart
	// Blobs are looked at once an hour, and then go.
	p.StoredResults = in.Rate * busy * in.Results / in.ResultsRatio *
		(in.Retention + time.Hour).Hours() / 24
	p.StoredBodies = r.Bodies * busy * in.LargeBytes
	p.Money = Money{
		Results: r.Objects * busy * in.Prices.Of("put-blob"),
		Bodies:  r.Bodies * busy * (in.Prices.Of("put-blob") + in.Prices.Of("get-blob")),
		Stored:  (p.StoredResults + p.StoredBodies) / 1e9 * in.StoredPrice * 12 / 365,
		Queues:  queuesDay / 1e4 * in.Prices.Queue, Tables: tablesDay / 1e4 * in.Prices.Table,
		VMs: float64(p.VMs) * 24 * in.Machine.PerHour,
	}
	p.Money.Total = p.Money.Queues + p.Money.Tables + p.Money.Results + p.Money.VMs +
		p.Money.Bodies + p.Money.Stored
	if tasks := in.Rate * busy; tasks > 0 {
		p.Money.PerMillion = p.Money.Total / tasks * 1e6
	}
	p.Connections = in.connections(p)
}

// A processor puts an object of results after a second, objectTasks or objectBytes.
const (
	objectTasks = 1000
	objectBytes = 8 << 20
)

// objects is how many objects of results are put in a second.
func (in *Input) objects(p *Plan) float64 {
	if in.Results == 0 {
		return 0
	}
	x := float64(p.Processors)
	each := max(in.Rate/objectTasks, in.Rate*in.Results/objectBytes) / x
	return x * max(each, min(1, p.Packing.Messages/x))
}

// commits is how many commits a ledger makes in a second. A commit has all messages of a processor
// and a partition that were done since the last one began: m of them, or if there were none the
// next.
func (p *Plan) commits() float64 {
	partitions := math.Ceil(float64(p.Segments) / 64)
	x := float64(p.Processors)
	m := p.Packing.Messages /
		(commitsPerPartition * x * min(partitions, math.Ceil(float64(p.Segments)/x)))
	return p.Packing.Messages / (m + math.Exp(-m))
}

// connections is how many are open at once: the requests under way at a time by Little's law, and
// one to the queues and one to the tables of each account from every process, which keeps
// connections that it has used.
func (in *Input) connections(p *Plan) int {
	under := func(requests, processes float64) float64 {
		each := requests / processes * in.Latency.Seconds() / (1 - in.Headroom)
		return processes * math.Ceil(max(each, float64(p.Accounts)))
	}
	processors, distributors := float64(p.Processors), float64(p.Distributors)
	r := &p.Requests
	return int(under(r.Get+r.Delete+r.Renew+r.Bodies, processors) +
		under(r.Put+r.Bodies, distributors) + processors + distributors)
}
