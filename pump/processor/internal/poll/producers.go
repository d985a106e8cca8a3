package poll

import (
	"time"

	"github.com/queuepump/queuepump/internal/upkeep"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Idle queues are asked rarely because producers nudge (P8.2). Some do not: other programs that put
// messages of their own, and distributors that cannot reach an admin port. Their first message
// waits for the longest back-off. But a message that was found in an idle queue without a nudge
// shows that such a producer is at work, and the producer's next message may go into any queue. So
// for a while all idle queues are asked hasteMore times as often, and the other processors are told
// to do the same.
const (
	// hasteMore is the factor, for all processors together: 100 gets a second instead of ten.
	// hasteLeast keeps the cost of gets in proportion if there are few queues: with a quarter of
	// jitter and the get itself a task is found within a second.
	hasteMore  = 10
	hasteLeast = 750 * time.Millisecond
	// hasteFor is how long such a message counts. At 100 gets a second that is what idle
	// queues cost in two and a half minutes.
	hasteFor = 15 * time.Second
	// hasteAfter is after how many empty gets in a row a queue counts as idle. Until the fifth more
	// than a second has passed since the last message, so its distributor nudges about the next put;
	// for a queue in use it leaves out many nudges.
	hasteAfter = 5
	// hasteAgain is after how long the other processors are told again.
	hasteAgain = hasteFor / 2
)

// hasteBound is how long an idle queue is left alone at most while messages come without nudges, if
// it is otherwise left alone for idle at most.
func hasteBound(idle time.Duration) time.Duration {
	return min(idle, max(hasteLeast, idle/hasteMore))
}

// haste is what the poller knows of messages that come without nudges; the poller's mutex guards
// it.
type haste struct {
	until time.Time // idle queues are asked more often
	told  time.Time // the other processors were told, or told this one
}

// longest is the longest back-off of an idle queue now.
func (p *Poller) longest(now time.Time) time.Duration {
	most := p.idleMost
	if now.Before(p.haste.until) {
		most = hasteBound(p.idleMost)
	}
	return p.Env.Queues.Allowance.Slow(most)
}

// slowest is how long a queue is left alone at most to keep to a day's cap.
func (p *Poller) slowest() time.Duration {
	return upkeep.SlowPause(p.idleMost, upkeep.MostSlower)
}

// unannounced reports whether messages that a get brought say that a producer does not
// nudge: the queue was idle, no nudge has come since it was last asked, and one of them was
// put rather than put back.
func (q *entry) unannounced(msgs []storage.Message) bool {
	if q.empties < hasteAfter || q.hinted.After(q.heard) {
		return false
	}
	for i := range msgs {
		if msgs[i].Dequeued <= 1 {
			return true
		}
	}
	return false
}

// hasten has idle queues asked more often for a while, and reports whether the other processors
// should be told of it.
func (p *Poller) hasten(now time.Time) (tell bool) {
	if !now.Before(p.haste.until) {
		p.makeDue(now)
	}
	p.haste.until = now.Add(hasteFor)
	if now.Sub(p.haste.told) < hasteAgain {
		return false
	}
	p.haste.told = now
	return true
}

// Hasten takes another processor's word that messages come without nudges.
func (p *Poller) Hasten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.haste.told = now // the processor that told this one has told all
	p.hasten(now)
	waits.Signal(p.wake)
}

// makeDue makes idle queues due within their new longest back-off. A queue in trouble keeps its own
// back-off.
func (p *Poller) makeDue(now time.Time) {
	most := p.Env.Queues.Allowance.Slow(hasteBound(p.idleMost))
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.failures == 0 && q.due.Sub(now) > most {
				q.due = now.Add(
					time.Duration(p.Jitter.Float("lively", q.queue.String(), q.asked) * float64(most)),
				)
			}
		}
	}
}
