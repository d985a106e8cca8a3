package processor

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/storage"
)

// Idle queues are asked rarely because who puts into them nudges (P8.2). Some do not: other
// programs that put messages of their own, and distributors that cannot reach an admin port. What
// they put first waits for the longest back-off; but a message that was found in an idle
// queue without a nudge says that there is such a one at work, and what it puts next may go into
// any queue. So for a while after it all idle queues are asked livelyMore times as often, and
// the other processors are told to do the same.
const (
	// livelyMore is how many times as often, of all processors together: 100 gets
	// a second of ten. livelyLeast keeps what a get costs in proportion where there are few
	// queues: with a quarter of jitter and the get itself a task is found within a second.
	livelyMore  = 10
	livelyLeast = 750 * time.Millisecond
	// livelyFor is how long such a message counts. At 100 gets a second that is what idle
	// queues cost in two and a half minutes.
	livelyFor = 15 * time.Second
	// livelyAfter is after how many empty gets in a row a queue counts as idle. Until the fifth
	// more than a second has passed since the last message, so the next put is one that its
	// distributor nudges about; in a queue that is in use many are not.
	livelyAfter = 5
	// livelyAgain is after what part of that the others are told again.
	livelyAgain = livelyFor / 2
)

// livelyBound is how long an idle queue is left alone at most while messages come that
// nobody nudges about, where it is otherwise left alone for idle at most.
func livelyBound(idle time.Duration) time.Duration {
	return min(idle, max(livelyLeast, idle/livelyMore))
}

// lively is what the poller knows of messages that nobody nudges about; the poller's mutex guards it.
type lively struct {
	until time.Time // the poller is lively
	told  time.Time // the others were told, or told this one
}

// longest is the longest back-off of an idle queue now.
func (p *poller) longest(now time.Time) time.Duration {
	if now.Before(p.lively.until) {
		return livelyBound(p.idleMost)
	}
	return p.idleMost
}

// unannounced reports whether messages that a get brought say that somebody puts without
// nudging: the queue was idle, no nudge has come since it was last asked, and one of them was
// put rather than put back.
func (q *polled) unannounced(msgs []storage.Message) bool {
	if q.empties < livelyAfter || q.hinted.After(q.heard) {
		return false
	}
	for i := range msgs {
		if msgs[i].Dequeued <= 1 {
			return true
		}
	}
	return false
}

// enliven makes the poller lively, and reports whether the others should be told of it.
func (p *poller) enliven(now time.Time) (tell bool) {
	if !now.Before(p.lively.until) {
		p.hurry(now)
	}
	p.lively.until = now.Add(livelyFor)
	if now.Sub(p.lively.told) < livelyAgain {
		return false
	}
	p.lively.told = now
	return true
}

// enlivened takes another processor's word that messages come without nudges.
func (p *poller) enlivened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.lively.told = now // those who told this one have told all
	p.enliven(now)
	backoff.Signal(p.wake)
}

// hurry makes idle queues due within what is their longest back-off from now on. One in
// trouble keeps to its own.
func (p *poller) hurry(now time.Time) {
	most := livelyBound(p.idleMost)
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.failures == 0 && q.due.Sub(now) > most {
				q.due = now.Add(time.Duration(p.r.Jitter.Float("lively", q.shard.String(), q.asked) * float64(most)))
			}
		}
	}
}
