package poll

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// unreachable is how long, at least, a queue must have failed before a
// processor that waits to be idle leaves without an answer from it.
const unreachable = 30 * time.Second

// logLeft logs what is left in the queues because it was put back for longer than UntilIdle.
func (p *Poller) logLeft() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := time.Until(p.later); left > 0 {
		p.Log.Info("idle; tasks that were put back come back later, for the processor that runs then",
			"last_in", left.Round(time.Second))
	}
}

// idle reports whether nothing has been in hand for d and every queue of this process has then
// answered "empty" once more, or when to look again. An answer from before may be older than a
// retry that was put back for less than d. A process is not idle while it is paused, or while
// segments are or may be on their way to it: its idle time begins when they are there. It also
// waits for messages that a request without an answer may have hidden, and for messages that it put
// back for a moment because it could not take them yet. It waits for a queue that keeps failing for
// d or half a minute at most, and names the queue in the error.
func (p *Poller) idle(d time.Duration) (over bool, again time.Duration, err error) {
	// Under this lock no get is between bringing messages and saying so.
	p.mu.Lock()
	defer p.mu.Unlock()
	since, calm := p.Messages.IdleSince()
	if !calm {
		return false, time.Hour, nil // settling the last one wakes the poller
	}
	s := p.Assignment.Load()
	damaged := p.Recorder().DamagedSegments()
	if s == nil || s.Outside || s.Lacking > damaged || p.paused {
		p.lacks = true
		// a change of the held segments, or the end of the pause, wakes the poller
		return false, time.Hour, nil
	}
	now := time.Now()
	if p.lacks { // until now
		p.lacks, since = false, now
		p.Messages.Restart()
	}
	if left := d - now.Sub(since); left > 0 {
		return false, left, nil
	}
	var silent []string
	if damaged > 0 {
		silent = append(silent, fmt.Sprintf("%d segments (their ledger is damaged)", damaged))
	}
	for _, name := range s.Unreadable() {
		silent = append(silent, name+" (no credentials here)")
	}
	again = time.Hour
	for _, a := range p.accounts {
		for _, q := range a.queues {
			switch {
			case q.probes: // what is there is others'
			case q.trouble != nil:
				from := q.troubled
				if since.After(from) {
					from = since
				}
				if left := max(d, unreachable) - now.Sub(from); left > 0 {
					again = min(again, left)
				} else {
					silent = append(silent, fmt.Sprintf("%v (%v)", q.queue, q.trouble))
				}
			case q.flying > 0:
				again = min(again, waits.RequestTimeout) // its answer wakes the poller
			case q.hidden.After(now):
				again = min(again, q.hidden.Sub(now))
			case !q.emptyAt.Before(since.Add(d)) && !q.emptyAt.Before(q.hidden): // empty
			case q.due.After(now):
				q.due = now
				again = 0
			default: // waits for its turn
				again = min(again, pollBase)
			}
		}
	}
	if again != time.Hour {
		return false, again, nil
	}
	if len(silent) > 0 {
		slices.Sort(silent)
		return true, 0, fmt.Errorf("idle, but not every queue could be read: %s",
			strings.Join(silent, "; "))
	}
	return true, 0, nil
}
