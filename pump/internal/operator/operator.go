package operator

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/locate"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// CountEvery is how often a command counts what is left in queues while it waits for that to go. A
// count is a request for each queue.
const CountEvery = 2 * time.Second

// Session is a workload as a command of an operator looks at it or changes it. One goroutine uses
// it.
type Session struct {
	Cfg      pump.Config
	Queues   *queues.Set
	Workload *workload.Workload
}

// Reload reads the workload's row. It is an error if the row is no later version of what was read.
func (o *Session) Reload(ctx context.Context) error {
	w, err := workload.Load(ctx, o.Queues.Control, o.Cfg.Workload)
	if err == nil && o.Workload != nil {
		err = o.Workload.Replaced(w)
	}
	if err == nil {
		o.Workload = w
	}
	return locate.WithAdvice(ctx, &o.Cfg, err)
}

// Tell nudges all members to look at the cluster's rows. That it fails costs a beat.
func (o *Session) Tell(ctx context.Context) (members, nudged int) {
	v, err := cluster.LoadView(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		o.Cfg.Log.Warn("the members could not be told; they see the new map at their next beat",
			"error", err)
		return 0, 0
	}
	var nudges []pump.Nudge
	for i := range v.Members {
		nudges = append(nudges, nudging.To(&v.Members[i], pump.Nudge{}))
	}
	return len(v.Members), nudging.Send(ctx, &o.Cfg, nudges)
}

// Open gives the session also of a workload that is being deleted, beside the error.
func Open(ctx context.Context, cfg pump.Config) (*Session, error) {
	cfg, err := settings.Complete(cfg)
	if err != nil {
		return nil, err
	}
	f := queues.Open(&cfg, row.TableName)
	w, err := workload.Load(ctx, f.Control, cfg.Workload)
	if err != nil && !errors.Is(err, workload.ErrDeleting) {
		return nil, locate.WithAdvice(ctx, &cfg, err)
	}
	return &Session{Cfg: cfg, Queues: f, Workload: w}, err
}

// Runs are the runs of the workload.
func (o *Session) Runs() *workload.Runs {
	return workload.NewRuns(o.Queues.Control, o.Cfg.Workload)
}
