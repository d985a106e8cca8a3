package queues

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// CountAll counts the messages in all queues that a task of a run may be in. Those are all queues
// of the map except other programs', because a task may have spilled, or lie in a queue that
// drains. A missing queue counts as empty.
func (f *Set) CountAll(ctx context.Context, name string) (messages int64, err error) {
	w, err := workload.Load(ctx, f.Control, name)
	if err != nil {
		return 0, err
	}
	counts := make([]int64, len(w.Map.Shards))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(AtOnce)
	for n, s := range w.Map.Shards {
		if s.State == shardmap.Foreign {
			continue
		}
		queue, err := f.Queue(s.Account, s.Queue)
		if err != nil {
			return 0, errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			err := waits.Within(ctx, func(ctx context.Context) (err error) {
				counts[n], err = queue.Queue.Count(ctx)
				return err
			})
			if err != nil && !NotThere(err) {
				return fmt.Errorf("queue %s: %w", queue, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	for _, n := range counts {
		messages += n
	}
	return messages, nil
}
