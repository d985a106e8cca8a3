package send

import (
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// makeError is a queue that could not be made.
type makeError struct{ err error }

func (e *makeError) Error() string { return e.err.Error() }
func (e *makeError) Unwrap() error { return e.err }

// Back-off of puts: full jitter, so that what failed together does not come back
// together. A throttle also lowers the budget, which does most of the slowing down.
const (
	putThrottledBase = 100 * time.Millisecond
	putBase          = 250 * time.Millisecond
	putLimit         = 15 * time.Second
	putStoppedBase   = 5 * time.Second
	putStoppedLimit  = time.Minute
)

// judge says what follows from a failed request: a pause before the next or, with an error, the end
// of the distribution. Made: the queue was known to exist when the put was sent.
func (p *Putter) judge(m *message, err error, made bool) (time.Duration, error) {
	s, attempt := m.sink, m.attempt
	j, object := p.Jitter, fmt.Sprintf("%s %d/%d", s.name, m.Segment, m.First)
	_, making := errors.AsType[*makeError](err)
	d := failure.Decide(failure.Queue, err, failure.Work)
	if !s.accepted.Load() {
		s.refuses(err, d.Kind, time.Now())
	}
	switch {
	case d.Do == failure.End: // the same bytes would fail each time
		return 0, fmt.Errorf("an envelope of %d characters was refused: %w", len(m.Text), err)
	case d.Kind == failure.NotSent:
		// The cause is not this process's own context, or deliver would not have asked. So the put waited
		// for a slot of its host until its time was over, while others there hung.
		p.observe(s, (*health).lost)
		return j.Full(putBase, putLimit, "put", object, attempt), nil
	case d.Kind == failure.Throttles:
		p.observe(s, (*health).refused)
		m.refused++
		// After a 503 the request was surely not done. After a 500 OperationTimedOut, which an overloaded
		// partition answers too, it may have been.
		var asked time.Duration
		if e, ok := errors.AsType[*storage.Error](err); ok {
			asked = min(e.RetryAfter, putLimit)
			if e.Status != 503 && !making {
				p.Count.Resent.Add(1)
			}
		}
		return asked + j.Full(putThrottledBase, putLimit, "put", object, attempt), nil
	case d.Kind == failure.Silent || d.Kind == failure.Unknown:
		// A timeout, a 5xx, a broken connection: it may be in the queue. A second
		// copy is harmless, a missing one is a lost task.
		p.observe(s, (*health).lost)
		if !making {
			p.Count.Resent.Add(1)
		}
		s.alarm(p.said(p.Log.Warn), err, d)
		return j.Full(putBase, putLimit, "put", object, attempt), nil
	}
	p.observe(s, (*health).turnedDown)
	if err := p.Router.hopeless(p.Stake); err != nil {
		return 0, err
	}
	if d.Kind == failure.Missing && !made && !making {
		s.missing()
		return 0, nil
	}
	s.alarm(p.said(p.Log.Warn), err, d)
	if making && d.Kind == failure.Missing { // an older queue of that name is being deleted
		return j.Full(putBase, putLimit/3, "put", object, attempt), nil
	}
	return j.Full(putStoppedBase, putStoppedLimit, "put", object, attempt), nil
}

// observe counts an event for a queue's health, and wakes messages that should go another way
// because of it.
func (p *Putter) observe(s *Sink, what func(h *health, now time.Time)) {
	if !s.observe(what) {
		return
	}
	switch s.state() {
	case dark:
		p.said(p.Log.Warn)("a queue is dark; its tasks go to others once the workload's row says so",
			"queue", s.name, "because", s.why())
	case limited:
		p.said(p.Log.Warn)("a queue is at its limit; the rest goes to others once the workload's row "+
			"says so", "queue", s.name)
	default:
		p.said(p.Log.Info)("a queue is as it should be again; its tasks come home", "queue", s.name)
	}
	p.Router.turned()
}

// said makes a method of the log write about many queues at once.
func (p *Putter) said(log func(string, ...any)) func(string, ...any) {
	return p.Router.said.Sparing(log)
}

// hopeless is an error if all accounts refuse the credential, no queue has taken anything from this
// process, and waiting longer would not mend that.
func (r *Router) hopeless(at failure.Stake) error {
	t := r.Current()
	of, made := map[string]refusal{}, false // the first of each account
	for i, shard := range t.Workload.Map.Shards {
		s := t.sinks[i]
		if shard.State != shardmap.Active || s.refused != nil {
			continue
		}
		if s.accepted.Load() {
			return nil
		}
		made = made || s.made.Load()
		now, before := s.refusing(), of[shard.Account]
		if before.err == nil || now.err != nil && now.since.Before(before.since) {
			of[shard.Account] = now
		}
	}
	var last refusal
	var since time.Time // the last of the accounts
	for _, first := range of {
		if first.err == nil {
			return nil
		}
		if first.since.After(since) {
			since = first.since
		}
		if last.err == nil || first.kind == failure.NoRight {
			last = first
		}
	}
	if last.err == nil || made && last.kind == failure.Refuses { // the key was good
		return nil
	}
	d := failure.Decide(failure.AllAccounts, last.err, at)
	if d.Do == failure.End || d.Patience > 0 && time.Since(since) >= d.Patience {
		return fmt.Errorf("no queue takes messages: every account refuses the credential; %s: %w",
			d.Fix, last.err)
	}
	return nil
}
