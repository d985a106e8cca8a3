package processor

import (
	"cmp"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// again is tasks of one message that come back together.
type again struct {
	attempt uint32 // as it will stand in the header
	delay   time.Duration
	tasks   []int
}

// plan decides how a message is settled, and what of it is recorded before.
func (r *processing) plan(d *delivery) *settlement {
	s, poison := r.planTasks(d)
	if r.recorder != nil {
		r.recorder.enter(d, s, poison)
		if len(s.entries) > 0 && d.mark == markInText {
			s.unmarked, _ = r.unmarkedText(d)
		}
	}
	return s
}

// planTasks decides from the verdicts on the message's tasks. poison are those
// that go into quarantine.
func (r *processing) planTasks(d *delivery) (s *settlement, poison []condemned) {
	if d.whole != nil {
		return r.planWhole(d), nil
	}
	d.mu.Lock() // a handler that was given up may be about to end
	verdicts, troubles := d.verdicts, d.troubles
	d.mu.Unlock()
	var rest []again
	untouched := again{attempt: d.header.Attempt}
	for i, v := range verdicts {
		if v == unfinished {
			untouched.tasks = append(untouched.tasks, i)
		}
	}
	if verdicts == nil || len(untouched.tasks) == len(verdicts) { // nothing was done to it
		return r.putBack(d, 0, 0, d.count), nil
	}
	if len(untouched.tasks) > 0 {
		rest = append(rest, untouched)
	}
	backoff := r.backoff(d, uint64(d.header.Attempt))
	for _, t := range troubles {
		attempts := int(d.header.Attempt) + 1
		switch v := verdicts[t.task]; {
		case v == postponed:
			rest = append(rest, again{d.header.Attempt, min(t.after, storage.MaxVisibility), []int{t.task}})
		case v == rejected && t.err == errRunEnded:
			poison = append(poison, condemned{t.task, pump.ReasonRunEnded, t.err})
		case v == rejected:
			poison = append(poison, condemned{t.task, pump.ReasonRejected, t.err})
		case r.o.Retry.MaxAttempts > 0 && attempts >= r.o.Retry.MaxAttempts:
			poison = append(poison, condemned{t.task, pump.ReasonAttempts, t.err})
		case r.o.Retry.MaxAge > 0 && d.age >= r.o.Retry.MaxAge:
			poison = append(poison, condemned{t.task, pump.ReasonAge, t.err})
		case v == retry:
			rest = append(rest, again{d.header.Attempt + 1, min(t.after, storage.MaxVisibility), []int{t.task}})
		default:
			rest = append(rest, again{d.header.Attempt + 1, backoff, []int{t.task}})
		}
	}
	if len(rest) == 0 && len(poison) == 0 {
		return &settlement{final: stepDelete}, nil
	}
	// Without trust in the lease somebody else may already work on the message:
	// it is left to them, rather than making copies besides theirs.
	if !r.keeper.trusted(d) {
		return &settlement{final: stepForget}, nil
	}
	s = &settlement{final: stepDelete, copies: r.quarantineTasks(d, poison)}
	r.planRest(d, s, together(rest))
	return s, poison
}

// backoff is the delay before the next attempt of what failed in this delivery,
// after n attempts before it.
func (r *processing) backoff(d *delivery, n uint64) time.Duration {
	least, most := r.terms.backoff(n)
	return least + time.Duration(r.jitter.Float("retry", d.id, n)*float64(most-least))
}

// planWhole settles a message without looking at its tasks.
func (r *processing) planWhole(d *delivery) *settlement {
	w := d.whole
	switch {
	case w.forget:
		return &settlement{final: stepDelete}
	case w.forward != nil:
		return &settlement{final: stepDelete, copies: r.forward(d, w.forward)}
	case w.pieces != nil:
		return r.planPieces(d)
	case w.pass:
		return &settlement{final: stepRelease, delay: w.delay}
	case w.reason == "":
		return r.putBack(d, w.delay, 0, max(d.count, 1))
	default:
		return &settlement{final: stepDelete, copies: r.quarantineWhole(d, w.reason, w.detail)}
	}
}

// putBack makes the message visible again as it is.
func (r *processing) putBack(d *delivery, delay time.Duration, retried, released int) *settlement {
	if s := r.putBackSuspect(d, delay, released); s != nil {
		return s
	}
	return &settlement{final: stepRelease, delay: delay, retried: retried, released: released}
}

// together joins tasks that may come back in one message. A message has one
// visibility, and no task may come before it asked to; so tasks share a message
// when the latest of them waits at most twice as long as the earliest (and a
// second more). That is one message for all that failed, and for any set of
// RetryAfter at most twenty, the powers of two between a second and a week.
func together(rest []again) []again {
	slices.SortStableFunc(rest, func(a, b again) int {
		return cmp.Or(cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.delay, b.delay))
	})
	var out []again
	var earliest time.Duration
	for _, a := range rest {
		if k := len(out) - 1; k >= 0 && out[k].attempt == a.attempt && a.delay <= 2*earliest+time.Second {
			out[k].tasks = append(out[k].tasks, a.tasks...)
			out[k].delay = a.delay
			continue
		}
		earliest = a.delay
		out = append(out, a)
	}
	for i := range out {
		slices.Sort(out[i].tasks)
		// The service counts whole seconds; earlier than asked would be too early.
		out[i].delay = min(inWholeSeconds(out[i].delay), storage.MaxVisibility)
	}
	return out
}

// planRest puts tasks back: the last group in the message in hand, rewritten
// (P4.1), the others as messages of their own before it. If anything does not
// fit, the message comes back whole, at the latest time that anyone asked for.
// Its attempts cannot be written down then, so it is left to how often it was
// delivered that it comes back less and less often: the only place where that
// counts, because it also grows where nobody worked on the message (P4.2).
func (r *processing) planRest(d *delivery, s *settlement, groups []again) {
	if len(groups) == 0 {
		return
	}
	for i, g := range groups {
		text, ok := r.rewrite(d, g)
		if !ok {
			attrs := d.attrs(-1)
			r.lines.Of("full").Add(d.count, func(messages, _ int) {
				r.log.Warn("message is too full to be rewritten; all of its tasks come back, with no attempt counted", append(attrs, "messages", messages)...)
			})
			s.copies = slices.DeleteFunc(s.copies, func(c poisonOrRest) bool { return c.reason == "" })
			s.final, s.text = stepRelease, nil
			s.delay = max(latest(groups), r.backoff(d, uint64(max(d.dequeued-1, 0))))
			s.retried, s.released = 0, d.count
			d.untried = g.attempt == d.header.Attempt
			return
		}
		if g.attempt > d.header.Attempt {
			s.retried += len(g.tasks)
		} else {
			s.released += len(g.tasks)
		}
		if i == len(groups)-1 && !(g.attempt == d.header.Attempt && r.acquits(d)) {
			s.final, s.text, s.delay = stepReplace, text, g.delay
			return
		}
		s.copies = append(s.copies, poisonOrRest{shard: d.shard, text: text, delay: g.delay, tasks: len(g.tasks)})
	}
}

func latest(groups []again) (delay time.Duration) {
	for _, g := range groups {
		delay = max(delay, g.delay)
	}
	return delay
}

// rewrite packs some of a message's tasks into a text of its own.
func (r *processing) rewrite(d *delivery, g again) (text []byte, ok bool) {
	if d.foreign == "" && len(g.tasks) == d.count {
		if text, err := codec.Restamped(d.text, g.attempt, d.header.Generation); err == nil {
			return text, true
		}
	}
	return r.pack(d, g.attempt, g.tasks, storage.MaxText-codec.DefaultHeadroom)
}

// pack makes an envelope of some of a message's tasks.
func (r *processing) pack(d *delivery, attempt uint32, tasks []int, limit int) (text []byte, ok bool) {
	b := codec.NewBuilder(limit)
	h := d.header
	h.Attempt = attempt
	b.Reset(h)
	for _, i := range tasks {
		t := &d.tasks[i]
		ct := codec.Task{N: t.N, Key: t.Key, ID: []byte(t.ID), Body: t.Body}
		if t.Foreign != "" && h.Run == (pump.RunID{}) {
			ct.ID = []byte(t.Foreign) // so that it stays what it is, wherever the text goes (P1.4)
		}
		if fits, err := b.Add(ct); err != nil || !fits {
			return nil, false
		}
	}
	text, _, err := b.Seal(nil)
	return text, err == nil
}
