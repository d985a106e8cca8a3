package poll

import (
	"cmp"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/shardmap"
)

// For how long an account must have failed until this process says that it cannot read it. The
// consequences take some beats: a short refusal, as while a key is rotated, does not move segments.
// A silent account is mostly silent for all processes, and then a change of owners would not help.
const (
	refusesAfter = time.Second
	silentAfter  = 5 * time.Minute
	// vouchEvery is how often a process asks a queue that others cannot read for one message, which
	// mostly belongs to another and goes back at once.
	vouchEvery = 30 * time.Second
)

// Cannot names the accounts that this process cannot read now, in order: no queue of such an
// account has answered since the first began to fail. A missing queue is not a sign of its account.
func (p *Poller) Cannot(now time.Time) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		if a.fails(now, refusesAfter, silentAfter) {
			names = append(names, a.account.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Vouches names those of the accounts that this process can read, in order.
func (p *Poller) Vouches(doubted []string, now time.Time) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		if slices.Contains(doubted, a.account.Name) && !a.fails(now, 0, 0) &&
			slices.ContainsFunc(a.queues, func(q *entry) bool { return !q.heard.IsZero() }) {
			names = append(names, a.account.Name)
		}
	}
	slices.Sort(names)
	return names
}

// fails reports whether the account has refused, or not answered, for so long.
func (a *account) fails(now time.Time, refuses, silent time.Duration) bool {
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
		after, d := refuses, failure.Decide(failure.Queue, q.trouble, failure.Work)
		unsent := d.Kind == failure.NotSent // no token comes, for any of its queues
		if d.Kind == failure.Silent || d.Kind == failure.Unknown || unsent {
			after = silent
		}
		long = long || (d.Whole || unsent) && now.Sub(q.troubled) >= after
	}
	return long && heard.Before(since)
}

// probes gives a queue of each account that cannot be read and that an assignment leaves out: it is
// asked for a message now and then, so that this process finds out when it can read the account
// again. The first processors by rank also ask a queue of an account that others cannot read, to
// vouch for it.
func (p *Poller) probes(assigned *base.Assignment, polled []*queues.Queue) []*queues.Queue {
	var wanted []string
	now := time.Now()
	for _, a := range p.accounts {
		if a.fails(now, refusesAfter, silentAfter) {
			wanted = append(wanted, a.account.Name)
		}
	}
	v := assigned.View
	if rank := v.Rank(p.Cfg.Instance); rank >= 0 && rank < cluster.Vouchers {
		wanted = append(wanted, v.Doubted(p.Cfg.Instance)...)
	}
	var candidates, more []*queues.Queue
	for i, q := range assigned.Shards {
		if q != nil && assigned.Of.Shards[i].State == shardmap.Active &&
			slices.Contains(wanted, q.Account.Name) {
			candidates = append(candidates, q)
		}
	}
	// What is known of the account is known of the queue that failed.
	slices.SortStableFunc(candidates, func(a, b *queues.Queue) int {
		return cmp.Compare(p.untroubled(a), p.untroubled(b))
	})
	for _, q := range candidates {
		of := func(o *queues.Queue) bool { return o.Account == q.Account }
		if !slices.ContainsFunc(polled, of) && !slices.ContainsFunc(more, of) {
			more = append(more, q)
		}
	}
	return more
}

// untroubled is 0 for a queue whose last get failed, else 1.
func (p *Poller) untroubled(q *queues.Queue) int {
	if e := p.queues[q]; e != nil && e.trouble != nil {
		return 0
	}
	return 1
}
