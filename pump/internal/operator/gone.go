package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

const (
	// LostAfter is how long an account must have been draining before it is taken for gone for good:
	// one that was dark for a while answers by then.
	LostAfter = 10 * time.Minute
	// goneTries is how often each queue of an account is asked for that may be gone.
	goneTries = 3
)

// NotGone is why an account is not taken for gone for good, and for how long, if that is a matter
// of time; empty: it is. An account is there while one of its queues can be counted with the
// credentials that are configured, or is certainly missing in it. A name that a stranger has taken
// answers that the credential is not good, which counts nothing.
func (o *Session) NotGone(
	ctx context.Context, name string,
) (problem string, left time.Duration, err error) {
	qs, drains := []string{settings.PoisonQueue(o.Cfg.Workload)}, false
	for _, s := range o.Workload.Map.Shards {
		if s.Account == name {
			qs, drains = append(qs, s.Queue), s.State == shardmap.Draining || drains
		}
	}
	server, _, err := workload.ServerTime(ctx, o.Queues.Control, o.Cfg.Workload)
	if left = LostAfter - server.Sub(o.Workload.Changed); err == nil && drains && left > 0 &&
		o.Workload.Deleting.IsZero() {
		return fmt.Sprintf("it has not been draining for long enough: it may answer again for another %v",
			left.Round(time.Second)), left, nil
	}
	for try := uint64(0); err == nil && try < goneTries; try++ {
		if queue := o.answers(ctx, name, qs); queue != "" {
			return "it is not gone: it answers for its queue " + queue, 0, nil
		}
		wait := backoff.Jitter(o.Cfg.Instance).Around(time.Second, "gone", name, try)
		if !backoff.Wait(ctx, wait) {
			err = context.Cause(ctx)
		}
	}
	return "", 0, err
}

// answers gives a queue that an account answers for, asking for all at once; empty: there is none.
func (o *Session) answers(ctx context.Context, name string, qs []string) string {
	store := o.Queues.Account(name).Store
	g, ctx := errgroup.WithContext(ctx)
	for _, queue := range qs {
		g.Go(func() error {
			err := backoff.Within(ctx, func(ctx context.Context) error {
				_, err := store.Queue(queue).Count(ctx)
				return err
			})
			if err == nil || queues.NotThere(err) {
				return errors.New(queue) // which ends the others
			}
			return nil
		})
	}
	if found := g.Wait(); found != nil {
		return found.Error()
	}
	return ""
}
