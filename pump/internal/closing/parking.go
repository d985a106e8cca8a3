package closing

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// parkingRounds is how often in a row the queues of a mark must be found empty.
const parkingRounds = 2

// endParkings takes the first of the marks that were resumed out of the workload's row, with its
// queues, when nothing is or will be in them: processors may park by the row of before until
// queues.RemoveAfter has passed, as they may put into an account that was removed (P6.5). The next
// pass takes the next one.
func (c *Closer) endParkings(ctx context.Context) error {
	if c.view == nil || len(c.view.Workload.Returning()) == 0 {
		return nil
	}
	w, err := workload.Load(ctx, c.queues.Control, c.workload)
	if err != nil {
		return err
	}
	numbers := w.Returning()
	if len(numbers) == 0 {
		return nil
	}
	server, _, err := workload.ServerTime(ctx, c.queues.Control, c.workload)
	if err != nil || server.Sub(w.Changed) < queues.RemoveAfter {
		return err
	}
	for _, n := range numbers {
		left, err := c.parked(ctx, w, n)
		if err != nil {
			return fmt.Errorf("what comes home of a pause could not be counted: %w", err)
		}
		if left > 0 {
			continue
		}
		ended, err := workload.EndParking(ctx, w, n)
		if ended {
			c.log.Info("what was paused has come home; its parking queues leave the map", "number", n)
		}
		return err
	}
	return nil
}

// parked counts what is in the queues of a mark: zero if they were empty in each round.
func (c *Closer) parked(ctx context.Context, w *workload.Workload, number int) (left int64, err error) {
	for range parkingRounds {
		n, err := c.queues.CountParked(ctx, w, number)
		if left += n; err != nil || left > 0 {
			return left, err
		}
	}
	return left, nil
}
