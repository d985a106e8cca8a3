package operator

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/backoff"
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

// answerTries is how often each queue of an account is asked for that may be gone.
const answerTries = 3

// Answers gives a queue of an account that can be counted with the credentials that are configured,
// or that is certainly not there; empty: there is none, for all the tries. A name that a stranger
// has taken answers that the credential is not good, which counts nothing.
func (o *Session) Answers(ctx context.Context, account string, qs []string) (string, error) {
	store := o.Queues.Account(account).Store
	for try := range uint64(answerTries) {
		asked, found := context.WithCancelCause(ctx)
		var g errgroup.Group
		for _, name := range qs {
			g.Go(func() error {
				err := backoff.Within(asked, func(ctx context.Context) error {
					_, err := store.Queue(name).Count(ctx)
					return err
				})
				if err == nil || queues.NotThere(err) {
					found(answered(name))
				}
				return nil
			})
		}
		_ = g.Wait()
		queue, is := context.Cause(asked).(answered)
		found(nil)
		if is {
			return string(queue), nil
		}
		wait := backoff.Jitter(o.Cfg.Instance).Around(time.Second, "answers", account, try)
		if !backoff.Wait(ctx, wait) {
			return "", context.Cause(ctx)
		}
	}
	return "", nil
}

// answered is the queue that an account has answered for.
type answered string

func (q answered) Error() string { return string(q) + " answers" }

// Runs are the runs of the workload.
func (o *Session) Runs() *workload.Runs {
	return workload.NewRuns(o.Queues.Control, o.Cfg.Workload)
}
