package closing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// parkingRounds is how often in a row the queues of a mark must be found empty.
const parkingRounds = 2

// returning is a mark that was resumed, or that was lost.
type returning struct {
	number int
	since  time.Time // by the mark; zero: it was lost
}

// endParkings takes marks that were resumed out of the workload's row, with their queues, when
// nothing is or will be in them: processors may park by the row of before until queues.RemoveAfter
// has passed, as they may put into an account that was removed (P6.5).
func (c *Closer) endParkings(ctx context.Context) error {
	if c.view == nil || len(c.view.Workload.Parkings)+len(c.view.Workload.Returning()) == 0 {
		c.returning = nil
		return nil
	}
	w, err := workload.Load(ctx, c.queues.Control, c.workload)
	if err != nil {
		return err
	}
	errs := []error{c.resumeEnded(ctx, w)}
	seen := map[returning]time.Time{}
	changed := false // by which the map that was judged is an old one
	for _, n := range w.Returning() {
		mark := returning{number: n}
		for _, p := range w.Parkings {
			if p.Number == n {
				mark.since = p.Returning
			}
		}
		since, known := c.returning[mark]
		if !known {
			since = time.Now()
		}
		seen[mark] = since
		if changed || queues.Elapsed(since) < queues.RemoveAfter {
			continue
		}
		changed, err = c.endParking(ctx, w, n)
		errs = append(errs, err)
	}
	c.returning = seen
	return errors.Join(errs...)
}

// resumeEnded lets what is parked of runs come home that are closed or have ended: nothing else
// would, and no run ends for being quiet while there is a mark. The damaged row of one run keeps no
// other run from it.
func (c *Closer) resumeEnded(ctx context.Context, w *workload.Workload) error {
	var bad []error
	for _, p := range w.Parkings {
		if p.Run.IsZero() || !p.Holds() {
			continue
		}
		run, err := c.Runs.Get(ctx, p.Run)
		switch {
		case errors.Is(err, workload.ErrNoRun):
			continue
		case errors.Is(err, row.ErrCorrupt):
			bad = append(bad, err)
			continue
		case err != nil:
			return err
		case run.State != workload.RunClosed && run.State != workload.RunEnded:
			continue
		}
		p.Returning = time.Now()
		if _, _, err := workload.Unpark(ctx, c.queues.Control, c.workload, p); err != nil {
			return err
		}
		c.log.Info("a run that was paused is done with; what is parked of it comes home",
			"run", p.Run.String(), "state", string(run.State))
	}
	return errors.Join(bad...)
}

func (c *Closer) endParking(
	ctx context.Context, w *workload.Workload, number int,
) (ended bool, err error) {
	for range parkingRounds {
		n, err := c.queues.CountParked(ctx, w, number)
		if err != nil {
			return false, fmt.Errorf("what comes home from parking queues %d could not be counted: %w",
				number, err)
		}
		if n > 0 {
			return false, nil
		}
	}
	ended, err = workload.EndParking(ctx, w, number)
	if ended {
		c.log.Info("what was paused has come home; its parking queues leave the map", "number", number)
	}
	return ended, err
}
