package settle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// retryGroup is tasks of one message that come back together.
type retryGroup struct {
	attempt uint32 // as it will stand in the header
	notNow  bool   // this delivery counts among those that were told so
	delay   time.Duration
	tasks   []int
}

// header is the same for tasks that may share one.
func (g *retryGroup) header() uint64 {
	header := uint64(g.attempt) << 1
	if g.notNow {
		header++
	}
	return header
}

// plan decides how a message is settled, and what of it is recorded before.
func (r *Settlers) plan(d *message.Delivery) *message.Plan {
	s, poison := r.planTasks(d)
	if r.Recorder != nil {
		r.Recorder.Enter(d, s, poison)
		if len(s.Entries) > 0 && d.Written == message.WrittenInText {
			s.Unmarked, _ = r.Trials.UntriedText(d)
		}
	}
	if r.Results != nil {
		r.Results.Enter(d, s)
	}
	return s
}

// planTasks decides by the verdicts on the message's tasks. poison are the tasks that go into
// quarantine.
func (r *Settlers) planTasks(d *message.Delivery) (s *message.Plan, poison []message.ToQuarantine) {
	if d.Whole != nil {
		return r.planWhole(d), nil
	}
	verdicts, troubles := d.Outcomes.All()
	retry := r.Timing.Retry()
	var rest []retryGroup
	untouched := retryGroup{attempt: d.Header.Attempt}
	for i, v := range verdicts {
		if v == message.Unfinished {
			untouched.tasks = append(untouched.tasks, i)
		}
	}
	if verdicts == nil || len(untouched.tasks) == len(verdicts) { // nothing was done to it
		return r.putBack(d, 0, 0, d.Count), nil
	}
	if len(untouched.tasks) > 0 {
		rest = append(rest, untouched)
	}
	backoff := r.backoff(d, uint64(d.Header.Attempt))
	told, pause := toldNotNow(d), r.pause(d)
	for _, t := range troubles {
		attempts := int(d.Header.Attempt) + 1
		switch v := verdicts[t.Task]; {
		case v == message.Postponed:
			rest = append(rest, retryGroup{
				attempt: d.Header.Attempt, delay: min(t.After, storage.MaxVisibility), tasks: []int{t.Task},
			})
		case v == message.Rejected:
			poison = append(poison, message.ToQuarantine{
				Task: t.Task, Reason: rejection(t.Err), Err: t.Err,
			})
		case v == message.NotNow && retry.MaxBusy > 0 &&
			d.ServerTime().Sub(told.First) >= retry.MaxBusy:
			poison = append(poison, message.ToQuarantine{
				Task: t.Task, Reason: codec.ReasonNotNow, Err: t.Err,
			})
		case v == message.Failed && r.endsProcesses(attempts, t.Err):
			poison = append(poison, message.ToQuarantine{
				Task: t.Task, Reason: codec.ReasonEndsProcess, Err: t.Err,
			})
		case v != message.NotNow && retry.MaxAttempts > 0 && attempts >= retry.MaxAttempts:
			poison = append(poison, message.ToQuarantine{
				Task: t.Task, Reason: codec.ReasonAttempts, Err: t.Err,
			})
		case retry.MaxAge > 0 && d.Age >= retry.MaxAge:
			poison = append(poison, message.ToQuarantine{
				Task: t.Task, Reason: codec.ReasonAge, Err: r.tooOld(t.Err),
			})
		case v == message.NotNow:
			rest = append(rest, retryGroup{
				attempt: d.Header.Attempt, notNow: true, delay: r.within(max(t.After, pause)),
				tasks: []int{t.Task},
			})
		case v == message.Retry:
			rest = append(rest, retryGroup{
				attempt: d.Header.Attempt + 1, delay: r.within(t.After), tasks: []int{t.Task},
			})
		default:
			rest = append(rest, retryGroup{
				attempt: d.Header.Attempt + 1, delay: r.within(max(t.After, backoff)), tasks: []int{t.Task},
			})
		}
	}
	if len(rest) == 0 && len(poison) == 0 {
		return &message.Plan{Final: message.StepDelete}, nil
	}
	// Without trust in the lease another process may already work on the message:
	// it is left to that process, rather than making copies besides its own.
	if !r.Keeper.Trusted(d) {
		return &message.Plan{Final: message.StepForget}, nil
	}
	s = &message.Plan{Final: message.StepDelete, Copies: r.quarantineTasks(d, poison)}
	r.planRest(d, s, groupRetries(rest))
	return s, poison
}

// rejection is the reason for which a rejected task goes into quarantine.
func rejection(err error) string {
	switch {
	case err == message.ErrRunEnded:
		return codec.ReasonRunEnded
	case errors.Is(err, bodies.ErrGone):
		return codec.ReasonNoBody
	}
	return codec.ReasonRejected
}

// endsProcesses reports whether a task that has ended its child is given up. That takes half of the
// usual attempts: each costs a child, and only the task can be to blame.
func (r *Settlers) endsProcesses(attempts int, err error) bool {
	_, ended := errors.AsType[interface {
		error
		Ended() // the process that had this task alone, and no other, has ended with it
	}](err)
	return ended && r.Timing.Retry().MaxAttempts > 0 && 2*attempts >= r.Timing.Retry().MaxAttempts
}

// tooOld is the error of a task that is given up for its age, after what was wrong with it. It is
// the same for all such tasks, so that they are shown together.
func (r *Settlers) tooOld(err error) error {
	detail := detailOf(err)
	if detail != "" {
		detail += "; "
	}
	return fmt.Errorf("%sits message is older than --max-age, %v; give more if it is worth doing "+
		"later, and redrive it", detail, r.Timing.Retry().MaxAge)
}

// backoff is the delay before the next attempt of the tasks that failed in this delivery, after n
// earlier attempts.
func (r *Settlers) backoff(d *message.Delivery, n uint64) time.Duration {
	least, most := r.Timing.Backoff(n)
	return least + time.Duration(r.Jitter.Float("retry", d.ID, n)*float64(most-least))
}

// within holds a delay that a handler asked for to the longest there is.
func (r *Settlers) within(delay time.Duration) time.Duration {
	if delay <= r.Timing.Retry().Max {
		return delay
	}
	r.cutOnce.Do(func() {
		r.Log.Warn("a longer delay was asked for than tasks are put back for; such delays are cut",
			"asked", delay, "retry_max", r.Timing.Retry().Max)
	})
	return r.Timing.Retry().Max
}

// toldNotNow is what the header of a message is to say after tasks of it were told "not now".
func toldNotNow(d *message.Delivery) codec.NotNow {
	told := d.Header.NotNow
	if told.First.IsZero() {
		told.First = d.ServerTime()
	}
	told.Deliveries++
	told.Here++
	return told
}

// pause is the delay of tasks that were told "not now". At first it is that of a first failure.
// Then it is from half as long to as long as they have been told so, but no longer than after as
// many failures: tasks told so long ago, and now again, are not put off for long.
func (r *Settlers) pause(d *message.Delivery) time.Duration {
	first := d.Header.NotNow.First
	if first.IsZero() {
		return r.backoff(d, 0)
	}
	told := d.ServerTime().Sub(first)
	share := (1 + r.Jitter.Float("not now", d.ID, uint64(d.Dequeued))) / 2
	_, most := r.Timing.Backoff(uint64(d.Header.NotNow.Deliveries))
	return max(r.backoff(d, 0), min(time.Duration(share*float64(told)), most))
}

// planWhole settles a message without looking at its tasks.
func (r *Settlers) planWhole(d *message.Delivery) *message.Plan {
	w := d.Whole
	switch {
	case w.Forget:
		return &message.Plan{Final: message.StepDelete}
	case w.Forward != nil:
		return &message.Plan{Final: message.StepDelete, Copies: r.forward(d, w.Forward)}
	case w.Pieces != nil:
		slices.SortStableFunc(w.Pieces, func(a, b message.Copy) int {
			return cmp.Compare(r.turn(&a), r.turn(&b))
		})
		return r.Trials.PlanSplit(d)
	case w.PassOn:
		return &message.Plan{Final: message.StepRelease, Delay: w.Delay}
	case w.Reason == "":
		return r.putBack(d, w.Delay, 0, max(d.Count, 1))
	default:
		return &message.Plan{Final: message.StepDelete, Copies: r.quarantineWhole(d, w.Reason, w.Detail)}
	}
}

// turn is which pieces of a message are put first: those that may fail, because what was put before
// one that fails is put again with each try.
func (r *Settlers) turn(piece *message.Copy) int {
	if _, refuses := r.refuse.Load(piece.Queue); refuses {
		return 0
	}
	return 1
}

// putBack makes the message visible again as it is.
func (r *Settlers) putBack(
	d *message.Delivery, delay time.Duration, retried, released int,
) *message.Plan {
	if s := r.Trials.PlanPutBack(d, delay, released); s != nil {
		return s
	}
	return &message.Plan{
		Final: message.StepRelease, Delay: delay, Retried: retried, Released: released,
	}
}

// groupRetries joins tasks that may come back in one message. A message has one visibility, and a
// task must not come earlier than it asked to; so tasks share a message when the latest of them
// waits at most twice as long as the earliest (and a second more). That is one message for all
// failed tasks, and at most twenty for any set of RetryAfter: the powers of two between a second
// and a week.
func groupRetries(rest []retryGroup) []retryGroup {
	slices.SortStableFunc(rest, func(a, b retryGroup) int {
		return cmp.Or(cmp.Compare(a.header(), b.header()), cmp.Compare(a.delay, b.delay))
	})
	var out []retryGroup
	var earliest time.Duration
	for _, a := range rest {
		if k := len(out) - 1; k >= 0 && out[k].header() == a.header() &&
			a.delay <= 2*earliest+time.Second {
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
		out[i].delay = min(leases.InWholeSeconds(out[i].delay), storage.MaxVisibility)
	}
	return out
}

// planRest puts tasks back: the last group in the message in hand, rewritten (P4.1), the others as
// messages of their own before it. If anything does not fit, the message comes back whole, at the
// latest time that any task asked for. Its attempts cannot be written down then, so its delay grows
// with its count of deliveries. Only here that count matters, because it also grows when no process
// worked on the message (P4.2).
func (r *Settlers) planRest(d *message.Delivery, s *message.Plan, groups []retryGroup) {
	if len(groups) == 0 {
		return
	}
	for i, g := range groups {
		here := i == len(groups)-1 && !(g.attempt == d.Header.Attempt && r.Trials.Acquits(d))
		text, ok := r.rewrite(d, g, here)
		if !ok {
			attrs := d.Attrs()
			r.Lines.Of("full").Add(d.Count, func(messages, _ int) {
				r.Log.Warn("message is too full to be rewritten; all of its tasks come "+
					"back, with no attempt counted",
					append(attrs, "messages", messages)...)
			})
			s.Copies = slices.DeleteFunc(s.Copies, func(c message.Copy) bool { return c.Reason == "" })
			s.Final, s.Text = message.StepRelease, nil
			s.Delay = max(latest(groups), r.backoff(d, uint64(max(d.Dequeued-1, 0))))
			s.Retried, s.Released = 0, d.Count
			d.Untried = g.attempt == d.Header.Attempt
			r.noteWhole(d, s, groups)
			return
		}
		if g.attempt > d.Header.Attempt {
			s.Retried += len(g.tasks)
		} else if !g.notNow { // which are counted already
			s.Released += len(g.tasks)
		}
		if here {
			s.Final, s.Text, s.Delay = message.StepReplace, text, g.delay
			return
		}
		s.Copies = append(s.Copies,
			message.Copy{Queue: d.Queue, Text: text, Delay: g.delay, Tasks: len(g.tasks)})
	}
}

func latest(groups []retryGroup) (delay time.Duration) {
	for _, g := range groups {
		delay = max(delay, g.delay)
	}
	return delay
}

// noteWhole keeps the "not now" of a message that comes back whole: in its header, or in a row if
// the header has no room.
func (r *Settlers) noteWhole(d *message.Delivery, s *message.Plan, groups []retryGroup) {
	if !slices.ContainsFunc(groups, func(g retryGroup) bool { return g.notNow }) {
		return
	}
	if d.Foreign == "" && r.writesNotNow(d) {
		text, err := codec.Restamped(d.Text, d.Header.Attempt, d.Header.Generation, toldNotNow(d))
		if err == nil {
			s.Final, s.Text = message.StepReplace, text
			return
		}
	}
	d.Told = toldNotNow(d)
}

// writesNotNow reports whether all processors read a header that says so (P4.6).
func (r *Settlers) writesNotNow(d *message.Delivery) bool {
	return d.Header.Version >= codec.NotNowSince ||
		r.Assignment.Load().View.CommonFormat() >= codec.NotNowSince
}

// rewrite packs some of a message's tasks into a text of its own. The text takes the message's
// place if here is set.
func (r *Settlers) rewrite(d *message.Delivery, g retryGroup, here bool) (text []byte, ok bool) {
	h := d.Header
	h.Attempt = g.attempt
	if g.notNow && r.writesNotNow(d) {
		h.NotNow = toldNotNow(d)
	}
	if !here {
		h.NotNow.Here = 0
	}
	if d.Foreign == "" && len(g.tasks) == d.Count {
		text, err := codec.Restamped(d.Text, h.Attempt, h.Generation, h.NotNow)
		if err == nil {
			return text, true
		}
	}
	return d.Pack(h, g.tasks, storage.MaxText-codec.DefaultHeadroom)
}
