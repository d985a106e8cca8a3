package sim

import (
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// Seeding makes what a process does a function of a seed, in simulations (P9). Outside of
// simulations it is zero.
type Seeding struct {
	// Draw is the source of rows' nonces, ids of runs and the jitter of rows. Default: the system's
	// random source. (The engine's own jitter is a hash already.)
	Draw row.Draw
	// Turn lets goroutines that come in one instant decide one after another.
	Turn Step
	// Ahead is by how much the process's wall clock has moved on more than its monotonic
	// clock at a time, because its machine was suspended or its clock was set. nil: not at all.
	Ahead func(at time.Time) time.Duration
}

// Clock tells the process how long it may trust something.
func (s *Seeding) Clock() waits.Clock { return waits.Clock{Ahead: s.Ahead} }

// Step waits for the turn of a goroutine that wants to do something that many goroutines may want
// in the same instant: spend from a budget, take a slot, look at what has arrived. In virtual time
// much happens in the same nanosecond, and which goroutine comes first in it is the scheduler's
// choice; a simulation's turn gives each a nanosecond of its own, by what the goroutine is about to
// do. Time only moves on when all goroutines wait, so a goroutine in its turn finds all earlier
// events at rest.
//
// nil, outside of simulations, does not wait: there the scheduler's choice is as good as any. A
// caller must not hold a lock, because virtual time does not know of waits for a lock.
type Step func(operation, about string)

// Wait waits for the turn; see [Step].
func (t Step) Wait(operation string, about ...string) {
	if t != nil {
		t(operation, strings.Join(about, " "))
	}
}
