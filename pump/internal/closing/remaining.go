package closing

import "github.com/queuepump/queuepump/pump/internal/workload"

// countRemaining adds up what is left of all runs that are not over. For an open run it is what was
// put, by its client's last beat. Without a new reading of the ledger the last number stands.
func (c *Closer) countRemaining(live []workload.LiveRun) {
	if !c.once {
		c.Remaining.Store(-1)
		return
	}
	if c.sums == nil && len(live) > 0 {
		return
	}
	left := int64(0)
	for i := range live {
		l := &live[i]
		if l.Err != nil || l.Over || l.State == workload.RunClosed {
			continue
		}
		put, sum := l.Put, c.sums.Runs[l.ID]
		if l.State == workload.RunSealed {
			put = l.Tasks
		}
		left += max(int64(put)-int64(sum.Done+sum.Quarantined), 0)
	}
	c.Remaining.Store(left)
}
