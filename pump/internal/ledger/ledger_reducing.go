package ledger

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Reducing is a Handler that contributes to the state of its segment instead of having an effect of
// its own. The processor calls Contribute instead of Handle, and the ledger folds the result when
// it records the task. [reduce.Reducer.Handler] makes it.
type Reducing interface {
	pump.Handler
	State
	// Pinned is its name, as pinned in the workload.
	Pinned() string
	// Check says what is wrong with the reducer.
	Check() error
	// Contribute runs in a slot like Handle, concurrently.
	Contribute(ctx context.Context, t *pump.Task) (any, error)
}

// CheckReducer says what is wrong with a handler that is a reducer, and with the place where it is
// to work: its states belong to the owners of segments, and nothing may stand between the pool and
// it.
func CheckReducer(h pump.Handler, cfg *pump.Config, discard bool, minInterval time.Duration) error {
	r, is := h.(Reducing)
	if !is {
		return nil
	}
	if err := r.Check(); err != nil {
		return err
	}
	problem, fix := "", ""
	switch {
	case cfg.Segments == pump.Shared:
		problem = "it needs segments with owners, and segments is 0"
		fix = "leave segments out in a new workload"
	case minInterval > 0:
		problem, fix = "it does not count tasks that min-interval skips", "leave min-interval out"
	case discard:
		problem, fix = "nothing is handled that it could reduce", "do not discard"
	default:
		return nil
	}
	return pump.Invalid("reducer", problem, fix)
}
