package runs

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Wait waits until every task of a run is done or in quarantine. It learns that from the ledger, so
// the delivery mode must be [pump.Once]. It waits for a run that is open to be sealed, and closes
// one that is done. A control account that does not answer is waited for.
//
// The error is a [*pump.StuckError], [pump.ErrRunState] if the run is broken, abandoned or ended,
// [pump.ErrNoRun], that of a damaged row, or that ctx ended; the Completion says how far the run
// was then.
func Wait(
	ctx context.Context, cfg pump.Config, run pump.RunID, o pump.WaitOptions,
) (pump.Completion, error) {
	s, err := setup.Reach(cfg)
	if err != nil {
		return pump.Completion{}, err
	}
	if o, err = closing.CompleteWait(o); err != nil {
		return pump.Completion{}, err
	}
	ctx, cancel := o.Within(ctx)
	defer cancel()
	began := time.Now()
	switch err := s.Load(ctx); {
	case err != nil && ctx.Err() != nil:
		return pump.Completion{
			Run: run, State: pump.RunWaiting, Lacking: []pump.SegmentLack{},
			Seconds: time.Since(began).Seconds(),
		}, context.Cause(ctx)
	case err != nil:
		return pump.Completion{}, s.Advise(ctx, err)
	}
	if err := errors.Join(setup.NeedOnce(s.Workload.Delivery, "delivery", "waiting"),
		s.Check()); err != nil {
		return pump.Completion{}, err
	}
	return closing.Wait(ctx, &s.Cfg.Config, s.Queues, s.Workload.Map.Segments,
		workload.Run{ID: run}, o)
}
