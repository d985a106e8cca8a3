package poll

import (
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/ownership"
	"github.com/queuepump/queuepump/pump/storage"
)

// For how long an account must have failed until this process says that it cannot read it. What
// refuses has refused twice by then, and a new key or signature has had time to arrive. What does
// not answer may do so to all processes, and a change of owners would help none of them.
const (
	refusesAfter = 10 * time.Second
	silentAfter  = time.Minute
)

// Cannot names the accounts that this process cannot read now, in order: no queue of such an
// account has answered since one began to fail, and it has failed for long enough. A queue that is
// missing says nothing about its account.
func (p *Poller) Cannot(now time.Time) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		if a.fails(now) {
			names = append(names, a.account.Name)
		}
	}
	slices.Sort(names)
	return names
}

// fails reports whether the account cannot be read now.
func (a *account) fails(now time.Time) bool {
	var since, heard time.Time
	long := false
	for _, q := range a.queues {
		if q.heard.After(heard) {
			heard = q.heard
		}
		if q.trouble == nil || queues.NotThere(q.trouble) {
			continue
		}
		if since.IsZero() || q.troubled.Before(since) {
			since = q.troubled
		}
		switch storage.CodeOf(q.trouble) {
		case storage.Auth, storage.Missing:
			long = long || now.Sub(q.troubled) >= refusesAfter
		case storage.MaybeDone:
			long = long || now.Sub(q.troubled) >= silentAfter
		}
	}
	return long && heard.Before(since)
}

// probes gives a queue of each account that cannot be read and that an assignment leaves out: it
// is asked for a message now and then, so that this process finds out when it can read the account
// again. A message that it is given is another's, and goes back at once.
func (p *Poller) probes(assigned *ownership.Assignment, polled []*queues.Queue) []*queues.Queue {
	var more []*queues.Queue
	now := time.Now()
	for _, a := range p.accounts {
		if !a.fails(now) || slices.ContainsFunc(polled, func(q *queues.Queue) bool {
			return q.Account == a.account
		}) {
			continue
		}
		for _, q := range a.queues {
			if q.trouble != nil && slices.Contains(assigned.Shards, q.queue) {
				more = append(more, q.queue)
				break
			}
		}
	}
	return more
}
