package poll

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// unreadLeast is what a processor says of queues that it has read to their ends: zero would mean
// that it does not say.
const unreadLeast = time.Second

// noteRead notes what a get says about how far the queue is read. A queue gives what has been
// visible for the longest time first, so a message that is delivered for the first time was visible
// for all of its age, and only hidden messages can be older.
func (q *entry) noteRead(msgs []storage.Message, sent time.Time, lease time.Duration, limit int) {
	at := sent
	if len(msgs) >= limit {
		oldest := time.Duration(-1)
		for i := range msgs {
			if m := &msgs[i]; m.Dequeued == 1 {
				oldest = max(oldest, message.AgeOf(m, lease))
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

// Unread is, in seconds, how long messages may wait unread in the polled queue that is read least
// far, and that queue's name. Foreign queues are left out: no run has a message there.
func (p *Poller) Unread(now time.Time) (longest float64, queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest = unreadLeast.Seconds()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if waits := q.unread(now); waits > longest && !q.foreign && !q.probes {
				longest, queue = waits, q.queue.String()
			}
		}
	}
	return longest, queue
}

// UnreadForeign is the longest of the polled foreign queues; 0 without such a queue. Polled says
// which they are.
func (p *Poller) UnreadForeign(now time.Time) (longest float64, polled uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.foreign && !q.probes {
				longest = max(longest, q.unread(now), unreadLeast.Seconds())
				polled += xxhash.Sum64String(q.queue.String())
			}
		}
	}
	return longest, polled
}

func (q *entry) unread(now time.Time) float64 {
	if q.read.IsZero() {
		return closing.NeverRead
	}
	return now.Sub(q.read).Seconds()
}
