package closing

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// How often it is looked for rows that are older than the retention.
const (
	retireEvery = 10 * time.Minute
	retireLeast = time.Minute // of a short retention, a twentieth of which is waited otherwise
)

// retired is how far a closer has come with removing old rows.
type retired struct {
	at     time.Time // when it was looked last
	part   int       // of the claims
	claims string
}

// retire removes the rows of runs that were done with a retention ago, by the server's clock, their
// tallies, and claims of then.
func (c *Closer) retire(ctx context.Context) error {
	if c.view == nil || len(c.view.Workload.Parkings) > 0 {
		return nil // what is parked is of runs that are known when it comes home
	}
	if time.Since(c.retired.at) < min(retireEvery, max(retireLeast, c.retain/20)) {
		return nil
	}
	server, local, err := workload.ServerTime(ctx, c.queues.Control, c.workload)
	if err != nil || server.IsZero() {
		return err
	}
	c.retired.at = time.Now()
	before := server.Add(time.Since(local) - c.retain)
	removed, damaged := 0, error(nil)
	for next := ""; ; {
		n, from, damage, err := c.Runs.Retire(ctx, before, next, c.once)
		removed, damaged = removed+n, errors.Join(damaged, damage)
		if next = from; err != nil || next == "" || ctx.Err() != nil {
			c.tellRetired(removed)
			if err != nil {
				return errors.Join(damaged, err)
			}
			break
		}
	}
	_, c.retired.claims, err = coordination.RetireClaims(
		ctx, c.queues.Control, c.workload, c.retired.part, before, c.retired.claims,
	)
	if err == nil && c.retired.claims == "" {
		c.retired.part++
	}
	return errors.Join(damaged, err, context.Cause(ctx))
}

func (c *Closer) tellRetired(removed int) {
	if removed > 0 {
		c.log.Info("rows of runs that were done with are removed", "runs", removed, "after", c.retain)
	}
}
