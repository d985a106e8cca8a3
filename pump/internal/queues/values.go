package queues

import (
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Values are what must be equal in all processes of a workload: an operator can set them while
// processes run (setup.Follow).
type Values struct {
	Beat, Lease time.Duration
	MaxRate     float64 // of the tasks that all processors start together; 0: no limit
	Retry       pump.RetryPolicy
	Retention   time.Duration
	CostPerDay  float64
	Prices      pump.Prices
	PerKey      pump.PerKey
}

// Heeds is what a process gives itself, and what the workload says. The lock guards it.
type Heeds struct {
	sync.Mutex
	Given Values
	Own   []string          // the names of what is given
	Set   workload.Settings // in force
	Paced bool              // the process starts tasks
	Amiss string            // the id of settings that cannot be in force here
}

// Values are those in force in this process. They never change: others come in their place.
func (f *Set) Values() *Values { return f.values.Load() }

// SetValues puts others in force, as far as this set has a part in them.
func (f *Set) SetValues(v Values) {
	f.values.Store(&v)
	f.Allowance.Change(v.CostPerDay, v.Prices)
	if f.Cfg.Hooks.Priced != nil {
		f.Cfg.Hooks.Priced(v.Prices)
	}
	switch b := f.Tasks.Load(); {
	case v.MaxRate > 0 && b != nil:
		b.SetLimit(v.MaxRate)
	case v.MaxRate > 0:
		b = NewWithBurst(v.MaxRate, 1)
		b.Bucket.Owe(time.Now(), b.Bucket.Burst-1) // one task: a burst comes only with time
		if f.Targets.Load() != nil {               // others start tasks, too
			b.SetTarget(v.MaxRate * FloorPart)
		}
		f.Tasks.Store(b)
	case b != nil:
		f.Tasks.Store(nil)
		b.SetTarget(1e9) // what waits goes on
	}
}
