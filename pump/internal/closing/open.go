package closing

import (
	"context"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// AtWork names the distributor of an open run if it seems to be alive: by the stamps of one
// server's clock. That is good enough: a mistake does no harm. If a live distributor is overlooked,
// two put the same tasks under the same identities and seal with the same counts.
func AtWork(
	ctx context.Context, cfg *pump.Config, f *queues.Set, run *workload.Run, lease time.Duration,
) (instance string, err error) {
	v, err := cluster.LoadView(ctx, f.Control, cfg.Workload)
	if err != nil {
		return "", err
	}
	server, local, err := workload.ServerTime(ctx, f.Control, cfg.Workload)
	if err != nil {
		return "", err
	}
	now := server.Add(time.Since(local))
	o := election.Options{Instance: cfg.Instance}
	named := run.Mode == ModeNamed
	if named { // its own election says who sends it, and not who began it
		o.Run = run.ID
	}
	e, err := election.New(f.Control, cfg.Workload, o).Status(ctx)
	if err != nil {
		return "", err
	}
	if named || e.Run == run.ID {
		lease = max(lease, e.Lease) // the leader's own, which may beat seldom
		if e.Phase == election.Running && e.Leader != "" && now.Sub(e.Changed) <= lease*5/4 {
			return e.Leader, nil
		}
		return "", nil
	}
	i := slices.IndexFunc(
		v.Members,
		func(m cluster.Member) bool {
			return m.Instance == run.Instance && m.Role == cluster.RoleDistributor
		},
	)
	if i >= 0 && !v.Members[i].Silent(now) {
		return run.Instance, nil
	}
	l, ok, err := workload.NewRuns(f.Control, cfg.Workload).LiveOf(ctx, run.ID)
	if err == nil && ok && OfClient(run.Mode) && !l.Silent(now, SilentBeats) {
		return run.Instance, nil
	}
	return "", err
}
