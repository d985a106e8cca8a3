package processor

import (
	"context"

	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// closeRuns ends runs while this processor is the first live one in rank. If two believe that for a
// while, it costs some reads.
func (r *run) closeRuns(ctx context.Context) {
	c := closing.New(&r.Cfg.Config, r.Queues, r.Workload)
	c.Unfinished, c.Remaining = &r.unfinished, &r.remaining
	c.HorizonBy(func(context.Context) (*cluster.View, error) { return r.Member.Load().View(), nil })
	c.Keep(ctx, r.Jitter, func(context.Context) bool {
		m := r.Member.Load()
		if m == nil {
			return false
		}
		v := m.View()
		return v != nil && v.Rank(r.Cfg.Instance) == 0
	})
}
