package processor

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/ownership"
	"github.com/queuepump/queuepump/pump/storage"
)

// The measures of settling.
const (
	// settlersPerQueue is how many messages of one queue are settled at the same
	// time: at 15 ms a delete, a queue's published 2,000 a second. As many more, up to
	// settlersMost, as a delete takes longer than that (quickest.ahead). Queues do not share
	// them: the requests to one that hangs or is throttled would take them all.
	settlersPerQueue = 32
	settlersMost     = 256
	// unsettledLeast and unsettledMost bound how many messages of a queue, and of
	// an account, may wait to be settled before it is not asked for more. Between them
	// the bound is what its budget can settle in a quarter of a lease: otherwise
	// leases run out faster than deletes get through (window 27).
	unsettledLeast = 64
	unsettledMost  = 4096
	// settleBase and settleLimit bound the back-off of a settling that failed.
	settleBase  = 100 * time.Millisecond
	settleLimit = 5 * time.Second
	// settleAfterLease is for how long a settling is tried after the lease ended.
	// The receipt stays good until somebody else gets the message (window 10), and
	// an account that was dark for minutes comes back with many of those.
	settleAfterLease = 5 * time.Minute
	// poisonTries is how often a quarantine is tried before the message goes back
	// for poisonDelay.
	poisonTries = 8
	poisonDelay = time.Minute
	// forwardTries is the same for what is brought home: its own queue must not be
	// left unread because the home is dark.
	forwardTries = 4
)

// settler settles the messages of one queue, with goroutines that end when
// there is nothing to do. Handlers and gets never wait for it.
type settler struct {
	r       *processing
	shard   *queues.Queue
	waiting atomic.Int64 // messages from their last outcome until they are settled
	account *unsettled

	mu      sync.Mutex // guards what follows
	queue   []*message.Delivery
	running int
}

// unsettled is what waits to be settled in all queues of one account.
type unsettled struct {
	messages atomic.Int64
	// bytes of their texts. At most mostBytes before the account is not asked for
	// more: all accounts together then hold half of Options.MaxBytes, and one
	// that takes no puts leaves room for the others.
	bytes     atomic.Int64
	mostBytes int64
}

// leastUnsettledBytes is what every account may hold, however many there are.
const leastUnsettledBytes = 4 * storage.MaxText

// settlerOf gives the settler of a queue.
func (r *processing) settlerOf(s *queues.Queue) *settler {
	r.settlersMu.Lock()
	defer r.settlersMu.Unlock()
	if known := r.settlers[s]; known != nil {
		return known
	}
	a := r.unsettled[s.Account]
	if a == nil {
		a = &unsettled{mostBytes: max(r.o.MaxBytes/2/int64(len(r.Fleet.Names)), leastUnsettledBytes)}
		r.unsettled[s.Account] = a
	}
	r.settlers[s] = &settler{r: r, shard: s, account: a}
	return r.settlers[s]
}

// Add takes a message whose tasks all have their verdicts.
func (s *settler) Add(d *message.Delivery) {
	s.waiting.Add(1)
	s.account.messages.Add(1)
	s.holds(d, len(d.Text))
	s.resume(d)
}

// holds says how much text of a message is still in memory.
func (s *settler) holds(d *message.Delivery, bytes int) {
	more := int64(bytes - d.Held)
	d.Held = bytes
	now, most := s.account.bytes.Add(more), s.account.mostBytes
	if now < most && now-more >= most {
		s.r.poller.Wake()
	}
}

// done takes a settled message out of the count.
func (s *settler) done(d *message.Delivery) {
	s.holds(d, 0)
	s.account.messages.Add(-1)
	s.waiting.Add(-1)
}

func (s *settler) resume(d *message.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, d)
	if s.running < s.shard.Settles.Ahead(s.shard.Budget.Rate(), settlersPerQueue, settlersMost) {
		s.running++
		go s.run()
	}
}

func (s *settler) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running--
			s.queue = nil
			s.mu.Unlock()
			return
		}
		d := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		// The handler that gave the last verdict goes on at the same time.
		s.r.Cfg.Private.Seeding.Turn.Wait("settle", s.shard.Account.Name, d.ID)
		s.r.settle(d)
		s.r.trials.Finish(d)
	}
}

// full reports whether so much waits to be settled that nothing should be fetched.
func (s *settler) full() bool {
	return s.tooMany(&s.waiting, s.shard.Budget) || s.tooMany(&s.account.messages, s.shard.Account.Budget) ||
		s.account.bytes.Load() >= s.account.mostBytes
}

func (s *settler) tooMany(waiting *atomic.Int64, b *quota.Budget) bool {
	n := waiting.Load()
	return n >= unsettledLeast && n >= min(int64(b.Rate()*s.r.terms.Lease().Seconds()/4), unsettledMost)
}

// settle goes on with the settling of one message. The order is: effect (the
// handlers have returned), copies put and acknowledged, then the one request
// that ends the delivery. A crash between any two of these delivers tasks again
// and loses none (windows 7, 17).
func (r *processing) settle(d *message.Delivery) {
	if d.Settlement == nil {
		d.Settlement = r.plan(d)
		r.tally(d)
		r.letGo(d)
	}
	s := d.Settlement
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
		r.recorder.Add(d)
		return
	}
	if s.Final == message.StepForget {
		r.leave(d)
		return
	}
	receipt, err := r.keeper.Take(r.Wire, d)
	if err == nil {
		err = r.finalStep(d, receipt)
	} else if errors.Is(err, leases.ErrEnded) {
		// Renewing found out that the receipt is dead.
		err = &storage.Error{Code: storage.Gone, Op: "settle", Account: d.Shard.Account.Name, Object: d.Shard.Name, Index: -1, Err: err}
	} else {
		r.settled(d) // the processor's last moment is over
		return
	}
	switch {
	case err == nil:
		r.Counts.Retried.Add(int64(s.Retried))
		r.Counts.Released.Add(int64(s.Released))
		r.Tallies.Add(d.Header.Run, workload.Tally{Retried: uint64(s.Retried)})
		if r.recorder != nil {
			r.recorder.Deleted(d)
		}
		if d.Passes() {
			r.Counts.Passed.Add(1)
			r.hints.later(d, s.Delay)
		} else if s.Delay > 0 {
			r.Tallies.AddMet(d.Header.Run, s.Delay)
			r.poller.NoteLater(time.Now().Add(s.Delay))
		}
		if r.isSoonHere(d, s.Delay) {
			r.poller.NoteHidden(d.Shard, time.Now().Add(leases.InWholeSeconds(s.Delay)))
		}
	case storage.Is(err, storage.Gone):
		// After a delete of what was done, or after a request of ours that was
		// not answered, that is what success looks like (window 9). Otherwise
		// somebody else got the message and will settle it, or a renewal of ours
		// acted whose answer was lost (window 14).
		if s.Final != message.StepDelete && !s.Doubt {
			r.Log.Debug("message went to somebody else before it was settled", d.Attrs(-1)...)
		}
		if !s.Doubt && !(s.Recorded && s.Final == message.StepDelete) {
			r.leave(d)
			return
		}
	case storage.Is(err, storage.Missing), storage.Is(err, storage.Invalid), storage.Is(err, storage.TooLarge), storage.Is(err, storage.Precondition), storage.Is(err, storage.Exists):
		r.Log.Error("message cannot be settled; it is left to its lease", append(d.Attrs(-1), "error", err)...)
		r.leave(d)
		return
	default:
		s.Doubt = s.Doubt || storage.Ambiguous(err)
		r.keeper.GiveBack(d, s.Doubt)
		r.settleLater(d, err)
		return
	}
	r.trials.CloseAttempts(d)
	r.settled(d)
}

// soonBack is the longest delay of a message that this processor put back undone, and still waits
// for when it is to leave once idle: a little more than a message waits for its segment
// (lobbyAgain). Delays that grow pass it after a few deliveries, so that the wait has an end.
const soonBack = 7 * time.Second

// isSoonHere reports whether a message that was put back is this processor's to do in a moment: its
// tasks have not failed, and its segment is this processor's, or not yet anybody's.
func (r *processing) isSoonHere(d *message.Delivery, delay time.Duration) bool {
	if d.Whole == nil || delay <= 0 || delay > soonBack {
		return false
	}
	owner, live := r.Assignment.Load().View.OwnerOf(d.Header.Segment)
	return !live || owner.Instance == r.Cfg.Instance
}

// finalStep makes the request that ends a delivery.
func (r *processing) finalStep(d *message.Delivery, receipt storage.Receipt) error {
	s := d.Settlement
	switch s.Final {
	case message.StepReplace:
		err := d.Shard.Replace(r.Wire, receipt, s.Text, s.Delay)
		if !storage.Is(err, storage.TooLarge) {
			return err
		}
		s.Final, s.Text = message.StepRelease, nil // only the visibility changes (P4.1)
		return d.Shard.Release(r.Wire, receipt, s.Delay)
	case message.StepRelease:
		return d.Shard.Release(r.Wire, receipt, s.Delay)
	default:
		return d.Shard.Delete(r.Wire, receipt)
	}
}

// putCopy puts one message that must exist before the one in hand may go. A
// copy that was put twice because an answer was lost does no harm: its tasks
// have their identities.
func (r *processing) putCopy(d *message.Delivery, c *message.Copy) error {
	if c.Forward {
		return r.bringHome(d, c)
	}
	if !r.Assignment.Load().Uses(c.Shard.Account) {
		return errNotHome // which was found empty: the message in hand has been settled by another process
	}
	if c.Row != nil {
		if err := r.writeCause(c.Row); err != nil {
			return err
		}
		c.Row = nil
	}
	if err := c.Shard.Put(r.Wire, c.Text, c.Delay); err != nil {
		return err
	}
	if c.Delay > 0 {
		r.Tallies.AddMet(d.Header.Run, c.Delay)
		r.poller.NoteLater(time.Now().Add(c.Delay))
	}
	if c.Reason != "" {
		r.Counts.Quarantined.Add(int64(c.Tasks))
		queues.HookQuarantine(&r.Cfg.Hooks, c.Shard.Account.Name, c.Reason, c.Tasks)
	}
	return nil
}

// settleLater tries again after a back-off, while the keeper holds the lease.
func (r *processing) settleLater(d *message.Delivery, err error) {
	s := d.Settlement
	s.Tries++
	over := time.Since(r.keeper.Until(d))
	switch {
	case r.Wire.Err() != nil:
		r.settled(d)
		return
	case errors.Is(err, errNotHome): // it is judged anew when it comes back
		s.Copies, s.Final, s.Delay, s.Text = nil, message.StepRelease, ownership.PassMost, nil
		s.Retried = 0
		if r.recorder != nil {
			r.recorder.Unquarantine(d)
		}
	case over > settleAfterLease, over > 0 && (s.Final == message.StepRelease || len(s.Copies) > 0):
		// A release is over by itself, and copies without the lease would only be
		// copies more: whoever gets the message next makes them again.
		if len(s.Entries) > 0 { // what was done is recorded all the same
			r.recorder.Unquarantine(d)
			s.Copies, s.Final, s.Text = nil, message.StepForget, nil
			settlerFor(d).resume(d)
			return
		}
		r.Log.Warn("message could not be settled while it was leased; it will be delivered again", append(d.Attrs(-1), "error", err)...)
		r.settled(d)
		return
	case len(s.Copies) > 0 && s.Copies[0].Reason != "" && s.Tries >= poisonTries:
		r.AlarmOnce("poison", "cannot quarantine; messages go back for a while", append(d.Attrs(-1), "error", err)...)
		s.Copies, s.Final, s.Delay, s.Text = nil, message.StepRelease, poisonDelay, nil
		s.Retried = 0
		if r.recorder != nil {
			r.recorder.Unquarantine(d)
		}
	case len(s.Copies) > 0 && s.Copies[0].Forward && s.Tries >= forwardTries:
		r.AlarmOnce("forward", "messages cannot be brought to the queues that are their homes; they stay for a while", append(d.Attrs(-1), "home", s.Copies[0].Shard.String(), "error", err)...)
		s.Copies, s.Final, s.Delay = nil, message.StepRelease, poisonDelay
	}
	wait := r.Jitter.Full(settleBase, settleLimit, "settle again", d.ID, s.Tries)
	if e, ok := queues.AsError(err); ok {
		wait += e.RetryAfter        // and the jitter, or all who were told the same come back together
		if e.Code == storage.Auth { // a new credential takes a while (window 38)
			wait = max(wait, settleLimit/2)
		}
	}
	time.AfterFunc(wait, func() { settlerFor(d).resume(d) })
}

// letGo frees the contents of a message: what is needed of them stands in the settlement.
func (r *processing) letGo(d *message.Delivery) {
	d.Mu.Lock()
	hung := d.Hung
	d.Mu.Unlock()
	d.Text = nil
	if d.Env != nil && !hung {
		d.Env.Release()
	}
	d.Env = nil
	if !hung {
		message.ReuseTasks(d.Tasks)
		d.Tasks, d.Fresh, d.Verdicts, d.Troubles, d.Contributions = nil, nil, nil, nil, nil
	}
	kept := d.Settlement.Size()
	settlerFor(d).holds(d, kept)
	r.backlog.Free(d, kept)
}

// leave ends a delivery whose message nobody here can settle: it comes back when
// its lease ends.
func (r *processing) leave(d *message.Delivery) {
	r.poller.NoteHidden(d.Shard, r.keeper.Hidden(d))
	r.settled(d)
}

// settled ends a delivery.
func (r *processing) settled(d *message.Delivery) {
	if d.Worked.Load() {
		r.terms.Settled(time.Since(d.Lease.Since))
	}
	r.keeper.Drop(d)
	r.backlog.Free(d, 0)
	d.End(nil)
	r.disown(d)
	wasFull := settlerFor(d).full()
	settlerFor(d).done(d)
	if calm := r.Messages.Done(1, !d.Passes()); calm || wasFull {
		r.poller.Wake()
	}
}

func settlerFor(d *message.Delivery) *settler { return d.Settler.(*settler) }

// Park takes a message that waits for a commit out of the count of those that wait
// for a request; unpark goes on with it.
func (s *settler) Park(d *message.Delivery) {
	d.Recording.Store(true)
	s.account.messages.Add(-1)
	s.waiting.Add(-1)
}

func (s *settler) Unpark(d *message.Delivery) {
	d.Recording.Store(false)
	s.account.messages.Add(1)
	s.waiting.Add(1)
	s.resume(d)
}

// tally counts the verdicts on a message's tasks, once for each delivery.
func (r *processing) tally(d *message.Delivery) {
	var t workload.Tally
	d.Mu.Lock()
	for _, v := range d.Verdicts {
		switch v {
		case message.Finished:
			t.Handled++
		case message.Failed, message.Rejected:
			t.Failed++
		}
	}
	d.Mu.Unlock()
	r.Tallies.Add(d.Header.Run, t)
}
