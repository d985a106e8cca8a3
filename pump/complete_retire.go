package pump

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
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
func (c *closer) retire(ctx context.Context) error {
	if time.Since(c.retired.at) < min(retireEvery, max(retireLeast, c.retain/20)) {
		return nil
	}
	server, local, err := workload.ServerTime(ctx, c.fleet.control, c.workload)
	if err != nil || server.IsZero() {
		return err
	}
	c.retired.at = time.Now()
	before := server.Add(time.Since(local) - c.retain)
	removed := 0
	for next := ""; ; {
		n, from, err := c.runs.Retire(ctx, before, next, c.once)
		removed += n
		if next = from; err != nil || next == "" || ctx.Err() != nil {
			c.tellRetired(removed)
			if err != nil {
				return err
			}
			break
		}
	}
	_, c.retired.claims, err = coordination.RetireClaims(ctx, c.fleet.control, c.workload, c.retired.part, before, c.retired.claims)
	if err == nil && c.retired.claims == "" {
		c.retired.part++
	}
	return errors.Join(err, context.Cause(ctx))
}

func (c *closer) tellRetired(removed int) {
	if removed > 0 {
		c.log.Info("rows of runs that were done with are removed", "runs", removed, "after", c.retain)
	}
}

// closeRuns ends runs while this processor is the first of those that live, in rank.
// That two believe so for a while costs some reads.
func (r *processing) closeRuns(ctx context.Context) {
	c := newCloser(r.cfg, r.fleet, r.workload)
	c.unfinished = &r.unfinished
	c.horizonBy(func(context.Context) (*cluster.View, error) { return r.member.Load().view(), nil })
	c.keep(ctx, r.jitter, func(context.Context) bool {
		m := r.member.Load()
		if m == nil {
			return false
		}
		v := m.view()
		return v != nil && v.Rank(r.cfg.Instance) == 0
	})
}

// closeRuns ends runs while this distributor is the one that distributed last and nobody
// does: it has nothing else to do, and where no processor runs nobody else does it.
func (d *Distributor) closeRuns(ctx context.Context) {
	w := d.router.now().workload
	e := election.New(d.fleet.control, d.cfg.Workload, election.Options{Instance: d.cfg.Instance})
	c := newCloser(&d.cfg, d.fleet, w)
	c.horizonBy(func(ctx context.Context) (*cluster.View, error) {
		return cluster.LoadView(ctx, d.fleet.control, d.cfg.Workload)
	})
	c.keep(ctx, jitter(d.cfg.Instance), func(ctx context.Context) bool {
		s, err := e.Status(ctx)
		return err == nil && s.Phase == election.Idle && s.Leader == d.cfg.Instance
	})
}

// closeEmpty closes a sealed run that has no tasks. The ledger will never know of it.
func (d *Distributor) closeEmpty(ctx context.Context, r *distribution) {
	if d.router.now().workload.Delivery != workload.DeliverOnce || r.count.tasks.Load() > 0 {
		return
	}
	if err := r.runs.Close(ctx, r.id); err != nil {
		r.log.Warn("the run has no tasks, and could not be closed", "error", err)
	}
}
