package workload

import (
	"context"
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
)

// Over records that a broken, abandoned or ended run is over, or that what the ledger keeps of
// a closed one is given up; see [Run.Over]. Other runs are ErrRunState.
func (r *Runs) Over(ctx context.Context, id codec.RunID, note string) error {
	return r.over(ctx, id, note, RunBroken, RunAbandoned, RunEnded, RunClosed)
}

// OverSealed is Over for a sealed run with tasks that are not recorded as settled. A run that is
// closed by now, or in another state, is ErrRunState.
func (r *Runs) OverSealed(ctx context.Context, id codec.RunID, note string) error {
	return r.over(ctx, id, note, RunSealed)
}

func (r *Runs) over(ctx context.Context, id codec.RunID, note string, of ...RunState) error {
	return r.change(ctx, "ending", id, func(run *Run) (done bool, err error) {
		switch {
		case run.Over && (run.State == RunEnded || run.State == RunClosed):
			return true, nil
		case !slices.Contains(of, run.State):
			return false, fmt.Errorf("%w: it is %s", pump.ErrRunState, run.State)
		}
		if run.State == RunBroken || run.State == RunAbandoned || run.State == RunSealed {
			if run.Note != "" {
				note = run.Note + "; " + note
			}
			run.State, run.Note = RunEnded, printable(note)
		}
		run.Over = true
		return false, nil
	})
}

// Keep writes the row of a run again as it is: a sign of life for the closer. A run that is closed
// or has ended is ErrRunState.
func (r *Runs) Keep(ctx context.Context, id codec.RunID) error {
	return r.change(ctx, "keeping", id, func(run *Run) (done bool, err error) {
		if !run.State.Live() {
			return false, fmt.Errorf("%w: it is %s: %s", pump.ErrRunState, run.State, run.Note)
		}
		return false, nil
	})
}
