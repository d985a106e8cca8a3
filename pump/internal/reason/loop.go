package reason

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/rounds"
	"github.com/queuepump/queuepump/pump/loop"
)

// OfLoop is the state of a loop by its counter.
func OfLoop(name string, c *rounds.Counter, most time.Duration) loop.State {
	if !c.Running() {
		most = 0
	}
	return loop.State{Name: name, Rounds: c.Count(), Most: most}
}
