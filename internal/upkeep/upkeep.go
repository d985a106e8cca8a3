// Package upkeep says what a workload asks of its accounts when it has nothing to do: the beats,
// the looks at the cluster, the polling of empty queues. Plans and caps use the same figures as the
// poller itself.
package upkeep

import (
	"math"
	"time"
)

// Requests to tables, a second.
const (
	// PerMember: a process reads the cluster and says that it lives every 5 s, a query and a write.
	PerMember = 2.0 / 5
	// PerPrune: in mode once each processor reads every 15 s which runs are prunable, and one of them
	// lists the runs that live and reads what is recorded, a query for each 64 segments.
	PerPrune = 1.0 / 15
	// PerHistory: one process writes a row a minute.
	PerHistory = 1.0 / 60
)

// How idle queues are polled.
const (
	// IdleRate is gets a second of all idle queues together, polled by any process.
	IdleRate = 10
	// IdleLeast is the shortest time for which a queue is left alone once it has been idle for long
	// enough.
	IdleLeast = 5 * time.Second
	// MostSlower is how many times longer an idle queue may be left alone to keep to a day's cap, up
	// to SlowestPause.
	MostSlower = 12
	// SlowestPause is also how long a message may have to wait there for its get.
	SlowestPause = 5 * time.Minute
	// perSample bounds the requests of a sampler, a second; see package sampling.
	perSample = 25
	// SampleSlowest is how often a workload is sampled at least while a cap holds it back. Alerts
	// take three minutes without a sample for trouble.
	SampleSlowest = time.Minute
)

// IdlePause is how long an idle queue is left alone at most, if so many pairs of a queue and a
// processor that polls it are idle.
func IdlePause(pairs int) time.Duration {
	return max(IdleLeast, time.Duration(pairs)*time.Second/IdleRate)
}

// SlowPause is the longest pause of a queue whose pause is otherwise so long, if pauses are so many
// times longer.
func SlowPause(pause time.Duration, slower float64) time.Duration {
	return max(pause, min(time.Duration(float64(pause)*slower), SlowestPause))
}

// IdleGets is how many gets a second so many idle queues cost.
func IdleGets(pairs int) float64 { return float64(pairs) / IdlePause(pairs).Seconds() }

// Fleet is a workload and its processes.
type Fleet struct {
	Processors, Distributors   int
	Accounts, Queues, Segments int
	Once, Shared               bool
	Sample                     time.Duration // 0: none
}

// Least is how many requests a second of queues and tables the fleet makes at the least: there is
// no work, and everything that can be slowed is as slow as it may be.
func (f Fleet) Least() (queues, tables float64) {
	pairs := f.Queues
	if f.Shared {
		pairs *= max(f.Processors, 1)
	}
	if f.Processors > 0 {
		queues = float64(pairs) / SlowPause(IdlePause(pairs), MostSlower).Seconds()
	}
	tables = float64(f.Processors+f.Distributors)*PerMember + PerHistory
	if f.Sample > 0 {
		every := max(f.Sample, SampleSlowest).Seconds()
		queues += min(float64(f.Queues+f.Accounts)/every, perSample)
	}
	if f.Once {
		tables += (float64(f.Processors) + 1 + math.Ceil(float64(f.Segments)/64)) * PerPrune
	}
	return queues, tables
}
