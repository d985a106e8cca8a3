package processor

import (
	"context"

	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/member"
)

// pinReducer makes sure that all processors of the workload reduce by the same reducer, or by none.
// A request that the control account does not answer is tried again, as when the workload is
// loaded: a machine that stands still for a minute in between must not end its processor. The row
// says which process pinned which reducer.
func (r *run) pinReducer(ctx context.Context) error {
	name := ""
	if reducer, is := r.handler.(ledger.Reducing); is {
		name = reducer.Pinned()
	}
	for n := uint64(0); ; n++ {
		w, err := r.Workload.PinReducer(ctx, name)
		switch {
		case err == nil:
			r.Workload = w
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !member.MayJoinLater(err, r.stake()) || r.startIsOver():
			return err
		}
		r.Log.Warn("the reducer could not be noted in the workload's row; trying again",
			"control", r.Cfg.Control, "error", err)
		if !r.startLater(ctx, "pin", n) {
			return context.Cause(ctx)
		}
	}
}
