package engine

import (
	"context"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// atWork names the distributor of an open run if it seems to be alive: by the stamps of
// one server's clock, which is good enough, because nothing is lost by a mistake. Were a
// live one overlooked, two would put the same tasks under the same identities and seal with
// the same counts.
func atWork(ctx context.Context, cfg *pump.Config, f *fleet, run *workload.Run, lease time.Duration) (instance string, err error) {
	v, err := cluster.LoadView(ctx, f.control, cfg.Workload)
	if err != nil {
		return "", err
	}
	server, local, err := workload.ServerTime(ctx, f.control, cfg.Workload)
	if err != nil {
		return "", err
	}
	now := server.Add(time.Since(local))
	e, err := election.New(f.control, cfg.Workload, election.Options{Instance: cfg.Instance}).Status(ctx)
	if err != nil {
		return "", err
	}
	if e.Run == run.ID {
		if e.Phase == election.Running && e.Leader != "" && now.Sub(e.Changed) <= lease*5/4 {
			return e.Leader, nil
		}
		return "", nil
	}
	i := slices.IndexFunc(v.Members, func(m cluster.Member) bool { return m.Instance == run.Instance && m.Role == cluster.RoleDistributor })
	if i >= 0 && !v.Members[i].Silent(now) {
		return run.Instance, nil
	}
	l, ok, err := workload.NewRuns(f.control, cfg.Workload).LiveOf(ctx, run.ID)
	if err == nil && ok && run.Mode == modeClient && !l.Silent(now, silentBeats) {
		return run.Instance, nil
	}
	return "", err
}

// orphanLook is how often who waits for an open run asks whether anybody still sends it.
const orphanLook = time.Minute

// orphaned says in the log that nobody seems to send the run that is waited for. It ends
// nothing: a distributor need not be a member of the cluster, and of elected ones
// another may take over.
func (w *waiter) orphaned(ctx context.Context) {
	if time.Since(w.askedOpen) < orphanLook {
		return
	}
	w.askedOpen = time.Now()
	by, err := atWork(ctx, w.cfg, w.fleet, &w.run, 4*defaultBeat)
	if err == nil && by == "" {
		w.cfg.Log.Warn("the run is open, and no distributor seems to be at work on it; if none is, its source can be sent to the end with: distributor repair "+w.id.String(), "run", w.id.String())
	}
}
