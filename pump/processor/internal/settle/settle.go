package settle

import (
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// The measures of trying again.
const (
	// settleBase and settleLimit bound the back-off of a settling that failed.
	settleBase  = 100 * time.Millisecond
	settleLimit = 5 * time.Second
	// settleAfterLease is for how long a settling is tried after the lease ended.
	// The receipt stays good until another process gets the message (window 10), and
	// an account that was dark for minutes comes back with many of those.
	settleAfterLease = 5 * time.Minute
	// poisonTries is how often a quarantine is tried before the message goes back
	// for poisonDelay.
	poisonTries = 8
	poisonDelay = time.Minute
	// forwardTries is the same for messages that are put into their home queue: the queue they are in
	// must not be left unread because the home is dark.
	forwardTries = 4
)

// settle goes on with the settling of one message. The order is: effect (the handlers have
// returned), copies put and acknowledged, then the one request that ends the delivery. A crash
// between any two of these delivers tasks again and does not lose any (windows 7, 17).
func (r *Settlers) settle(d *message.Delivery) {
	if d.Plan == nil {
		d.Plan = r.plan(d)
		r.tally(d)
		r.freeContents(d)
	}
	s := d.Plan
	for len(s.Copies) > 0 {
		if err := r.putCopy(d, &s.Copies[0]); err != nil {
			r.settleLater(d, err)
			return
		}
		if s.Copies[0].Reason != "" {
			r.Tallies.Add(d.Header.Run, workload.Tally{Quarantined: uint64(s.Copies[0].Tasks)})
		}
		s.Copies = s.Copies[1:]
	}
	// After every effect, before the message can be gone (P3.3).
	if len(s.Entries) > 0 {
		r.Recorder.Add(d)
		return
	}
	if len(s.Lines) > 0 { // no ledger records their tasks
		r.Results.Add(d)
		return
	}
	if s.Final == message.StepForget {
		r.leaveToLease(d)
		return
	}
	receipt, err := r.Keeper.Take(r.Wire, d)
	if err == nil {
		err = r.finalStep(d, receipt)
	} else if errors.Is(err, leases.ErrEnded) {
		err = receiptDead(d, err)
	} else {
		r.end(d) // the processor's last moment is over
		return
	}
	switch {
	case err == nil:
		r.count(d)
	case storage.Is(err, storage.Gone):
		// After a delete of finished work, or after an own request without an answer, success looks like
		// this (window 9). Otherwise another process got the message and will settle it, or an own
		// renewal acted and its answer was lost (window 14).
		if s.Final != message.StepDelete && !s.Doubt {
			r.Log.Debug("message went to another process before it was settled", d.Attrs()...)
		}
		if !s.Doubt && !(s.Recorded && s.Final == message.StepDelete) {
			r.leaveToLease(d)
			return
		}
	case failure.Decide(failure.Queue, err, failure.Hold).Do == failure.GiveBack:
		r.Log.Error("message cannot be settled; it is left to its lease",
			append(d.Attrs(), "error", err)...)
		r.leaveToLease(d)
		return
	default:
		s.Doubt = s.Doubt || storage.Ambiguous(err)
		r.Keeper.GiveBack(d, s.Doubt)
		r.settleLater(d, err)
		return
	}
	r.Trials.CloseAttempts(d)
	r.end(d)
}

// count counts a message whose last request has succeeded.
func (r *Settlers) count(d *message.Delivery) {
	s := d.Plan
	r.Counts.Retried.Add(int64(s.Retried))
	r.Counts.Released.Add(int64(s.Released))
	r.Tallies.Add(d.Header.Run, workload.Tally{Retried: uint64(s.Retried)})
	if r.Recorder != nil {
		r.Recorder.Deleted(d)
	}
	if d.PassedOn() {
		r.Counts.Passed.Add(1)
		r.hints.sendLater(d, s.Delay)
	} else if s.Delay > 0 {
		r.Tallies.AddMet(d.Header.Run, s.Delay)
		r.Poller.NoteLater(time.Now().Add(s.Delay))
	}
	if r.isSoonHere(d, s.Delay) {
		r.Poller.NoteHidden(d.Queue, time.Now().Add(leases.InWholeSeconds(s.Delay)))
	}
}

// receiptDead is the error of a message whose receipt is dead, as renewing found out.
func receiptDead(d *message.Delivery, err error) error {
	return &storage.Error{
		Code: storage.Gone, Op: "settle", Account: d.Queue.Account.Name, Object: d.Queue.Name, Index: -1,
		Err: err,
	}
}

// soonBack is the longest delay of a message that this processor put back undone and still waits
// for before it leaves as idle: a little more than a message waits for its segment (lobbyAgain).
// Delays that grow pass it after a few deliveries, so that the wait has an end.
const soonBack = 7 * time.Second

// isSoonHere reports whether this processor is soon to handle a message that was put back: its
// tasks have not failed, and its segment is this processor's, or has no owner yet.
func (r *Settlers) isSoonHere(d *message.Delivery, delay time.Duration) bool {
	if d.Whole == nil || delay <= 0 || delay > soonBack {
		return false
	}
	owner, live := r.Assignment.Load().View.OwnerOf(d.Header.Segment)
	return !live || owner.Instance == r.Cfg.Instance
}

// finalStep makes the request that ends a delivery.
func (r *Settlers) finalStep(d *message.Delivery, receipt storage.Receipt) error {
	s := d.Plan
	switch s.Final {
	case message.StepReplace:
		err := d.Queue.Replace(r.Wire, receipt, s.Text, s.Delay)
		if !storage.Is(err, storage.TooLarge) {
			return err
		}
		s.Final, s.Text = message.StepRelease, nil // only the visibility changes (P4.1)
		return d.Queue.Release(r.Wire, receipt, s.Delay)
	case message.StepRelease:
		return d.Queue.Release(r.Wire, receipt, s.Delay)
	default:
		return d.Queue.Delete(r.Wire, receipt)
	}
}

// putCopy puts one message that must exist before the message in hand may go. A copy that was put
// twice because an answer was lost does no harm: its tasks have their identities.
func (r *Settlers) putCopy(d *message.Delivery, c *message.Copy) error {
	if c.Forward {
		return r.bringHome(d, c)
	}
	if !r.Assignment.Load().Uses(c.Queue.Account) {
		// which was found empty: the message in hand has been settled by another process
		return errNotHome
	}
	if c.Row != nil {
		if err := r.writeCause(c.Row); err != nil {
			return err
		}
		c.Row = nil
	}
	if err := c.Queue.Put(r.Wire, c.Text, c.Delay); err != nil {
		return err
	}
	if c.Delay > 0 {
		r.Tallies.AddMet(d.Header.Run, c.Delay)
		r.Poller.NoteLater(time.Now().Add(c.Delay))
	}
	if c.Reason != "" {
		r.Counts.Quarantined.Add(int64(c.Tasks))
		queues.HookQuarantine(&r.Cfg.Hooks, c.Queue.Account.Name, c.Reason, c.Tasks)
	}
	return nil
}

// settleLater tries again after a back-off, while the keeper holds the lease.
func (r *Settlers) settleLater(d *message.Delivery, err error) {
	s := d.Plan
	s.Tries++
	over := time.Since(r.Keeper.Until(d))
	switch {
	case r.Wire.Err() != nil:
		r.end(d)
		return
	case errors.Is(err, errNotHome): // it is judged again when it comes back
		s.Copies, s.Final, s.Delay, s.Text = nil, message.StepRelease, base.PassOnMost, nil
		s.Retried = 0
		if r.Recorder != nil {
			r.Recorder.Unquarantine(d)
		}
	case over > settleAfterLease, over > 0 && (s.Final == message.StepRelease || len(s.Copies) > 0):
		// A release comes by itself, and copies without the lease would only be more copies: the process
		// that gets the message next makes them again.
		if len(s.Entries) > 0 { // what was done is still recorded
			r.Recorder.Unquarantine(d)
			s.Copies, s.Final, s.Text = nil, message.StepForget, nil
			settlerFor(d).resume(d)
			return
		}
		attrs := append(d.Attrs(), "error", err)
		r.Lines.Of("unsettled").Add(d.Count, func(messages, _ int) {
			r.Log.Warn("message could not be settled while it was leased; it will be delivered again",
				append(attrs, "messages", messages)...)
		})
		r.end(d)
		return
	case len(s.Copies) > 0 && s.Copies[0].Reason != "" && s.Tries >= poisonTries:
		r.AlarmOnce("poison", "cannot quarantine; messages go back for a while",
			append(d.Attrs(), "error", err)...)
		s.Copies, s.Final, s.Delay, s.Text = nil, message.StepRelease, poisonDelay, nil
		s.Retried = 0
		if r.Recorder != nil {
			r.Recorder.Unquarantine(d)
		}
	case len(s.Copies) > 0 && s.Copies[0].Forward && s.Tries >= forwardTries:
		r.AlarmOnce("forward",
			"messages cannot be brought to the queues that are their homes; they stay for a while",
			append(d.Attrs(), "home", s.Copies[0].Queue.String(), "error", err)...)
		r.refuse.Store(s.Copies[0].Queue, true)
		s.Copies, s.Final, s.Delay = nil, message.StepRelease, poisonDelay
	}
	wait := r.Jitter.Full(settleBase, settleLimit, "settle again", d.ID, s.Tries)
	if e, ok := queues.AsError(err); ok {
		wait += e.RetryAfter // plus the jitter, or all that were told the same come back together
	}
	if failure.Decide(failure.Queue, err, failure.Hold).Fix != "" {
		wait = max(wait, settleLimit/2) // what an operator mends takes a while (window 38)
	}
	time.AfterFunc(wait, func() { settlerFor(d).resume(d) })
}

// freeContents frees the contents of a message: what is needed of them stands in the plan.
func (r *Settlers) freeContents(d *message.Delivery) {
	hung := d.Outcomes.Forget()
	d.Text, d.Key, d.Body = nil, nil, nil
	if d.Env != nil && !hung {
		d.Env.Release()
	}
	d.Env = nil
	if !hung {
		message.ReuseTasks(d.Tasks)
		d.Tasks, d.Fresh, d.Contributions = nil, nil, nil
	}
	kept := d.Plan.Size()
	settlerFor(d).holds(d, kept)
	r.Backlog.Free(d, kept)
}

// leaveToLease ends a delivery whose message this process cannot settle: it comes back when
// its lease ends.
func (r *Settlers) leaveToLease(d *message.Delivery) {
	r.Poller.NoteHidden(d.Queue, r.Keeper.Hidden(d))
	r.end(d)
}

// end ends a delivery.
func (r *Settlers) end(d *message.Delivery) {
	if d.Worked.Load() && !d.Delayed {
		r.Timing.Settled(time.Since(d.Sent))
	}
	r.Keeper.Drop(d)
	r.Backlog.Free(d, 0)
	d.End(nil)
	r.Disown(d)
	wasFull := settlerFor(d).Full()
	settlerFor(d).done(d)
	d.Queue.Account.Hold(-1)
	if kept := d.Kept.Load(); kept > 0 {
		held := r.ResultBytes.Add(-kept)
		wasFull = wasFull || held < base.ResultsSoft && held+kept >= base.ResultsSoft
	}
	if calm := r.Messages.Done(1, d.IsWork()); calm || wasFull {
		r.Poller.Wake()
	}
}

// tally counts the verdicts on a message's tasks, once for each delivery.
func (r *Settlers) tally(d *message.Delivery) {
	var t workload.Tally
	verdicts, _ := d.Outcomes.All()
	for _, v := range verdicts {
		switch v {
		case message.Finished:
			t.Handled++
		case message.Skipped:
			t.Skipped++
		case message.Failed, message.Rejected:
			t.Failed++
		}
	}
	quarantined := 0
	for i := range d.Plan.Copies {
		if d.Plan.Copies[i].Reason != "" {
			quarantined++
		}
	}
	r.Tallies.Spend(d.Header.Run, d.Spent(quarantined)) // first, so that both are written together
	r.Tallies.Add(d.Header.Run, t)
}
