package processor

import "github.com/queuepump/queuepump/pump/processor/internal/message"

// others says what becomes of a message whose segment this process does not hold:
// it is brought home if that is this process's task (P6.4), else put back for its
// owner (P7). Nothing is unpacked for either, and neither is an attempt.
func (r *processing) others(d *message.Delivery) *message.Disposition {
	d.Started.Store(true)
	if r.Stopping.Load() { // it will not be here again, so others may have it now
		return &message.Disposition{Pass: true}
	}
	if r.mine(d.Header.Segment) { // and its ledger will not be so soon
		return r.notNow(d, lobbyStuck)
	}
	s := r.Assignment.Load()
	if home := s.Stray(d.Shard, d.Header.Segment); home != nil {
		return &message.Disposition{Forward: home}
	}
	return &message.Disposition{Pass: true, Delay: s.Pass(r.Jitter, d.Shard, d.Header.Segment, d.ID, d.Dequeued, r.lease())}
}
