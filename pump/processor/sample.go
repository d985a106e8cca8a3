package processor

import "github.com/queuepump/queuepump/pump/internal/cluster"

// view is the latest look at the cluster; nil before the first.
func (r *run) view() *cluster.View {
	if m := r.Member.Load(); m != nil {
		return m.View()
	}
	return nil
}
