package processor

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// unreadLeast is what a processor says of queues that it has read to their ends: zero would say
// that it does not tell.
const unreadLeast = time.Second

// reads notes what a get says about how far the queue is read. A queue gives what has been
// visible for the longest time first, so a message that is delivered for the first time was visible
// as long as it is old, and nothing older is left but what is hidden.
func (q *polled) reads(msgs []storage.Message, sent time.Time, lease time.Duration, limit int) {
	at := sent
	if len(msgs) >= limit {
		oldest := time.Duration(-1)
		for i := range msgs {
			if m := &msgs[i]; m.Dequeued == 1 {
				oldest = max(oldest, ageOf(m, lease))
			}
		}
		if oldest < 0 {
			return
		}
		at = sent.Add(-oldest)
	}
	if at.After(q.read) {
		q.read = at
	}
}

// ageOf is how old a message was when it was got. Both times are the service's own, so no clock of this
// machine is in it.
func ageOf(m *storage.Message, lease time.Duration) time.Duration {
	return max(0, m.NextVisible.Add(-lease).Sub(m.Inserted))
}

// unread is, in seconds, how long messages may wait unread in the queue that is read least far of
// those that are polled, and its name.
func (p *poller) unread(now time.Time) (longest float64, queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest = unreadLeast.Seconds()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			waits := float64(closing.NeverRead)
			if !q.read.IsZero() {
				waits = now.Sub(q.read).Seconds()
			}
			if waits > longest {
				longest, queue = waits, q.shard.String()
			}
		}
	}
	return longest, queue
}

// unread is what the poller says, and never for a queue that this process should read and cannot.
func (r *processing) unread(now time.Time) (longest float64, queue string) {
	if s := r.share.Load(); s != nil {
		if names := s.Unreadable(); len(names) > 0 {
			return closing.NeverRead, names[0]
		}
	}
	return r.poller.unread(now)
}

// metAge is how old a message must be for its delivery to be noted, because its run may be one that nobody
// continues: younger ones cost nothing.
const metAge = time.Minute

// meets notes that a message of a run was delivered, is held on, or was put back, and for how long it is
// hidden. The closer takes a run for over when nothing of it is met for long enough.
func (r *processing) meets(d *message.Delivery, hidden time.Duration) {
	r.Tallies.Add(d.Header.Run, workload.Tally{Met: 1, Hides: hidden.Round(time.Second)})
}
