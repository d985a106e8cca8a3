package member

import (
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// OfLoop is the state of a loop by its counter.
func OfLoop(name string, c *waits.Counter, most time.Duration) pump.LoopState {
	if !c.Running() {
		most = 0
	}
	return pump.LoopState{Name: name, Rounds: c.Count(), Most: most}
}
