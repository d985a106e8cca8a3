package poll

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// lookOne counts the messages of the next queue that is due and did not answer last, and reports
// whether there is one. While the workload is paused the processor gets nothing. Without the count
// nothing would show that the queue's account answers again, and this process would not be ready
// until the resume.
func (p *Poller) lookOne(ctx context.Context, now time.Time) bool {
	if !p.paused {
		return false
	}
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.failures > 0 && q.flying == 0 && a.flying < a.width && !q.due.After(now) {
				q.asked++
				q.flying++
				a.flying++
				p.Gets.Add(1)
				go p.look(ctx, a, q)
				return true
			}
		}
	}
	return false
}

func (p *Poller) look(ctx context.Context, a *account, q *entry) {
	_, err := q.queue.Count(ctx, waits.RequestTimeout)
	p.mu.Lock()
	q.flying--
	a.flying--
	if now := time.Now(); err != nil {
		p.failed(ctx, q, err, now)
	} else {
		q.due = now
		p.answers(q)
	}
	p.mu.Unlock()
	p.Gets.Done(1, true)
	waits.Signal(p.wake)
}
