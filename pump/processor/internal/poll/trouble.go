package poll

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// failed decides when a queue is asked again after a failed get. Such a get does not show what is
// in the queue (window 4). The end of ctx means that the processor stops.
func (p *Poller) failed(ctx context.Context, q *entry, err error, now time.Time) {
	q.width = 1
	full := func(base, limit time.Duration) time.Duration {
		// At least half of it, so that nothing comes back at once by chance.
		d := waits.Doubled(base, limit, q.failures)
		return d/2 + time.Duration(p.Jitter.Float("poll", q.queue.String(), q.asked)*float64(d/2))
	}
	var wait time.Duration
	kind := failure.KindOf(err)
	if kind == failure.NotSent && ctx.Err() != nil {
		return
	}
	switch kind {
	case failure.Throttles:
		wait = full(200*time.Millisecond, 5*time.Second)
	case failure.Silent, failure.Unknown, failure.NotSent: // its time was over before a token came
		most := time.Duration(troubledPart * float64(p.idleMost))
		wait = full(time.Second, min(max(most, pollTroubled), troubledMost))
	case failure.Refuses, failure.NoRight:
		// The driver fetches a new token by itself; nothing is lost by asking
		// again, and nothing is blamed on a task (window 38).
		wait = full(5*time.Second, time.Minute)
	default:
		// Missing or disabled: the queue is never made here, that would hide the loss (window 33).
		wait = full(30*time.Second, time.Minute)
	}
	if e, ok := queues.AsError(err); ok {
		wait += e.RetryAfter
	}
	q.failures++
	q.due = now.Add(wait)
	if q.trouble == nil {
		q.troubled = now
	}
	q.trouble = err
	if now.Sub(q.troubled) >= queueSilent && !q.probes {
		p.dark = now
	}
	p.alarm(q)
}

// queueSilent is after how long without an answer messages of a queue may be late.
const queueSilent = 20 * time.Second

// AllAnswer reports since when all queues that were polled have answered, and whether they do now.
func (p *Poller) AllAnswer() (since time.Time, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.failures > 0 && time.Since(q.troubled) >= queueSilent && !q.probes {
				return time.Time{}, false
			}
		}
	}
	return p.dark, true
}

// alarm logs trouble when it begins and once in alarmEvery while it lasts. A throttle is logged
// only after it has lasted: the budget handles it.
func (p *Poller) alarm(q *entry) {
	say, what := p.Log.Warn, "queue does not answer"
	switch failure.KindOf(q.trouble) {
	case failure.Throttles:
		if q.failures < 8 {
			return
		}
		what = "queue is throttled"
	case failure.Silent, failure.Unknown, failure.NotSent:
	case failure.Refuses, failure.NoRight:
		say, what = p.Log.Error, "queue refuses the credential; it is left alone for a while"
	case failure.Disabled:
		say, what = p.Log.Error, "the account of a queue is disabled or unknown"
	case failure.Missing:
		say, what = p.Log.Error, "queue is missing; a processor that works creates none"
	default:
		say, what = p.Log.Error, "queue cannot be read"
	}
	q.alarm.Say(p.said.Sparing(say), what, "queue", q.queue.String(), "error", q.trouble)
}
