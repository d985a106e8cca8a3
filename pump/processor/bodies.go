package processor

import (
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

const (
	// bodyLater is the least time for which a task is put back whose body cannot be read now; it is
	// half of the time that its account has been dark, up to bodyLatest.
	bodyLater  = 2 * time.Second
	bodyLatest = 5 * time.Minute
	// bodyAgain is how often a dark account is asked, by one slot.
	bodyAgain = 15 * time.Second
)

// darkAccounts are those that did not give a body lately. One slot at a time asks such an account,
// so that the others handle tasks that do not need it.
type darkAccounts struct {
	mu   sync.Mutex
	dark map[string]*darkAccount
}

type darkAccount struct {
	since, next time.Time // from when on it is dark, and when it is asked again
}

// waits is how long a task of an account is put back for that is not asked now; 0: it is asked, and
// if it is dark no other slot asks it meanwhile.
func (a *darkAccounts) waits(account string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.dark[account]
	switch {
	case d == nil:
		return 0
	case now.Before(d.next):
		return d.later(now)
	}
	d.next = now.Add(bodyLatest)
	return 0
}

// heard notes the answer of an account, and gives how long a task of it is put back for.
func (a *darkAccounts) heard(account string, err error, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.dark, account)
		return 0
	}
	d, again := a.dark[account], bodyAgain
	if d == nil {
		d, again = &darkAccount{since: now}, bodyLater
		a.dark[account] = d
	}
	d.next = now.Add(again)
	return d.later(now)
}

func (d *darkAccount) later(now time.Time) time.Duration {
	return max(bodyLater, min(now.Sub(d.since)/2, bodyLatest))
}

// fetch reads the body of the one task of a message (P3.10). false: the task is settled without its
// handler. It is put back without an attempt if the account does not give the body now; other tasks
// go on.
func (p *workers) fetch(d *message.Delivery) bool {
	r, account, now := p.r, d.Header.Body.Account, time.Now()
	if later := p.dark.waits(account, now); later > 0 {
		p.putOff(d, 0, later)
		return false
	}
	body, err := bodies.Get(d.Ctx, r.Queues, &d.Header)
	switch parts := r.aside.parts.Load(); {
	case errors.Is(err, bodies.ErrGone):
		err = pump.Reject(err)
	case err == nil && (r.aside.isPaused() || parts.Run(d.Header.Run) != nil ||
		parts.Key(d.Tasks[0].Key) != nil): // meanwhile
		err = pump.Release(errUnpaced)
	case err == nil:
		p.dark.heard(account, nil, now)
		d.TakeBody(body)
		return true
	case d.Ctx.Err() == nil:
		r.AlarmOnce("bodies "+account, "the body of a task cannot be read now; the tasks that have "+
			"theirs in the account are put back", "account", account, "error", err)
		p.putOff(d, 0, r.Jitter.Around(p.dark.heard(account, err, time.Now()), "body", d.ID,
			uint64(d.Dequeued)))
		return false
	}
	// It was answered, or the lease has ended.
	p.dark.heard(account, nil, now)
	d.Started.Store(true)
	p.recordOutcome(d.Ctx, d, 0, err, now, trace.SpanContext{})
	return false
}
