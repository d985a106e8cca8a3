package engine

import (
	"context"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// closeRuns ends runs while this processor is the first of those that live, in rank.
// That two believe so for a while costs some reads.
func (r *processing) closeRuns(ctx context.Context) {
	c := newCloser(r.cfg, r.fleet, r.workload)
	c.unfinished = &r.unfinished
	c.horizonBy(func(context.Context) (*cluster.View, error) { return r.member.Load().view(), nil })
	c.keep(ctx, r.jitter, func(context.Context) bool {
		m := r.member.Load()
		if m == nil {
			return false
		}
		v := m.view()
		return v != nil && v.Rank(r.cfg.Instance) == 0
	})
}
