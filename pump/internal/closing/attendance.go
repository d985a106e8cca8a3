package closing

import (
	"context"
	"slices"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// attendance finds out that no processor runs while tasks of a run wait, the usual trouble of a
// first hour, or that the workload is paused.
type attendance struct {
	cfg    *pump.Config
	queues *queues.Set
	run    pump.RunID

	settled uint64    // of the run, when it changed last
	changed time.Time // when that was; zero: judge was not called yet
	asked   time.Time // when the processors were counted last

	paused, alone logs.Limited
}

const (
	// unattendedAfter is after how long without a record the processors are counted.
	unattendedAfter = 4 * time.Second
	// countAgain is how often they are counted after that: a query of the members.
	countAgain = 30 * time.Second
)

// judge takes what a look at the ledger has shown.
func (a *attendance) judge(ctx context.Context, settled uint64) {
	now := time.Now()
	if settled != a.settled || a.changed.IsZero() {
		a.settled, a.changed = settled, now
		a.alone.Over()
	}
	if now.Sub(a.changed) < unattendedAfter || now.Sub(a.asked) < countAgain {
		return
	}
	v, err := cluster.LoadView(ctx, a.queues.Control, a.cfg.Workload)
	if err != nil {
		return
	}
	a.asked = now
	if mark := v.Workload.Paused; mark.Is() {
		a.paused.GoesOn(a.cfg.Log.Warn, "the workload is paused; the tasks wait until it is resumed",
			"run", a.run.String(), "since", mark.Since, "by", mark.By, "fix", "distributor workload resume")
		return
	}
	a.paused.Over()
	stamp := v.Stamp()
	if !slices.ContainsFunc(v.Members, func(m cluster.Member) bool {
		return (m.Role == cluster.RoleProcessor || m.Err != nil) && !m.Silent(stamp)
	}) {
		a.alone.GoesOn(a.cfg.Log.Warn, "no processor is running; the tasks wait until one does",
			"run", a.run.String(), "fix", "start one: processor run")
	}
}
