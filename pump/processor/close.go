package processor

import (
	"context"

	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// closeRuns ends runs while this processor is the first of those that live, in rank.
// That two believe so for a while costs some reads.
func (r *processing) closeRuns(ctx context.Context) {
	c := closing.New(r.cfg, r.fleet, r.workload)
	c.Unfinished = &r.unfinished
	c.HorizonBy(func(context.Context) (*cluster.View, error) { return r.member.Load().View(), nil })
	c.Keep(ctx, r.jitter, func(context.Context) bool {
		m := r.member.Load()
		if m == nil {
			return false
		}
		v := m.View()
		return v != nil && v.Rank(r.cfg.Instance) == 0
	})
}
