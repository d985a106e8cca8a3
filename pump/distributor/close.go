package distributor

import (
	"context"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// closeRuns ends runs while no process distributes and this distributor was the last: it has
// nothing else to do, and if no processor runs, no other process ends runs.
func (d *Distributor) closeRuns(ctx context.Context) {
	w := d.router.Current().Workload
	e := election.New(d.fleet.Control, d.cfg.Workload, election.Options{Instance: d.cfg.Instance})
	c := closing.New(&d.cfg.Config, d.fleet, w)
	c.HorizonBy(func(ctx context.Context) (*cluster.View, error) {
		return cluster.LoadView(ctx, d.fleet.Control, d.cfg.Workload)
	})
	c.Keep(ctx, waits.Jitter(d.cfg.Instance), func(ctx context.Context) bool {
		s, err := e.Status(ctx)
		return err == nil && s.Phase == election.Idle && s.Leader == d.cfg.Instance
	})
}

func (d *Distributor) recordsOnce() bool {
	return d.router.Current().Workload.Delivery == string(pump.Once)
}

// endUnput ends a broken run if nothing of it was put and no other leader began it: no process can
// meet its tasks, so its end need not wait for a quiet time.
func (d *Distributor) endUnput(ctx context.Context, r *run) {
	in, posts := r.source.(*intake)
	if !d.recordsOnce() || r.leads != nil || r.count.Begun.Load()+r.count.Quarantined.Load() > 0 ||
		posts && in.posts.used.Load() { // a repeat of a post may put its tasks
		return
	}
	if err := r.runs.Over(ctx, r.id, "nothing of it was put"); err != nil {
		r.log.Debug("the run ends later", "error", err)
	}
}

// closeEmpty closes a sealed run that has no tasks. The ledger will never know of it.
func (d *Distributor) closeEmpty(ctx context.Context, r *run) {
	if !d.recordsOnce() || r.count.Tasks.Load() > 0 {
		return
	}
	if err := r.runs.Close(ctx, r.id); err != nil {
		r.log.Warn("the run has no tasks, and could not be closed", "error", err)
	}
}
