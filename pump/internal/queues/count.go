package queues

import (
	"context"
	"fmt"

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
	err = Each(ctx, w.Map.Shards, func(ctx context.Context, n int, s shardmap.Shard) error {
		if s.State == shardmap.Foreign {
			return nil
		}
		queue, err := f.Queue(s.Account, s.Queue)
		if err != nil {
			return err
		}
		counts[n], err = waits.Get(ctx, queue.Queue.Count)
		if err != nil && !NotThere(err) {
			return fmt.Errorf("queue %s: %w", queue, err)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, n := range counts {
		messages += n
	}
	return messages, nil
}
