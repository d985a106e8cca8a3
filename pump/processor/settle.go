package processor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/internal/workload"
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
	queue   []*delivery
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

// newSettler makes the settler of a queue.
func (r *processing) newSettler(s *queues.Queue) *settler {
	a := r.unsettled[s.Account]
	if a == nil {
		a = &unsettled{mostBytes: max(r.o.MaxBytes/2/int64(len(r.fleet.Names)), leastUnsettledBytes)}
		r.unsettled[s.Account] = a
	}
	return &settler{r: r, shard: s, account: a}
}

// add takes a message whose tasks all have their verdicts.
func (s *settler) add(d *delivery) {
	s.waiting.Add(1)
	s.account.messages.Add(1)
	s.holds(d, len(d.text))
	s.resume(d)
}

// holds says how much text of a message is still in memory.
func (s *settler) holds(d *delivery, bytes int) {
	more := int64(bytes - d.held)
	d.held = bytes
	now, most := s.account.bytes.Add(more), s.account.mostBytes
	if now < most && now-more >= most {
		backoff.Signal(s.r.poller.wake)
	}
}

// done takes a settled message out of the count.
func (s *settler) done(d *delivery) {
	s.holds(d, 0)
	s.account.messages.Add(-1)
	s.waiting.Add(-1)
}

func (s *settler) resume(d *delivery) {
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
		s.r.cfg.Private.Seeding.Turn.Wait("settle", s.shard.Account.Name, d.id)
		s.r.settle(d)
		s.r.dock.over(d)
	}
}

// full reports whether so much waits to be settled that nothing should be fetched.
func (s *settler) full() bool {
	return s.tooMany(&s.waiting, s.shard.Budget) || s.tooMany(&s.account.messages, s.shard.Account.Budget) ||
		s.account.bytes.Load() >= s.account.mostBytes
}

func (s *settler) tooMany(waiting *atomic.Int64, b *quota.Budget) bool {
	n := waiting.Load()
	return n >= unsettledLeast && n >= min(int64(b.Rate()*s.r.terms.lease().Seconds()/4), unsettledMost)
}

// step is the request that ends a delivery.
type step uint8

const (
	stepDelete  step = iota
	stepReplace      // put back, rewritten
	stepRelease      // put back as it is
	stepForget       // nothing: it comes back by itself
)

// settlement is what is left to do for one message, in this order. What is
// done is not done again when a later part has to be retried.
type settlement struct {
	copies []poisonOrRest // each acknowledged before the next
	// entries are what the ledger is to record; recorded: it did, or there was nothing.
	entries  []*ledger.Entry
	recorded bool
	final    step
	text     []byte        // of stepReplace
	unmarked []byte        // of a message on trial: what it is put back with if its result is not recorded
	delay    time.Duration // of stepReplace and stepRelease
	tries    uint64
	// doubt: the final request was made and not answered, so "gone" may be its own effect.
	doubt             bool
	retried, released int // tasks, counted when it is done
}

// poisonOrRest is a message to put before the one in hand is ended: tasks for
// quarantine, or tasks that want another delay than the rest.
type poisonOrRest struct {
	shard  *queues.Queue
	text   []byte
	delay  time.Duration
	reason string    // of a quarantine
	tasks  int       // in it
	row    *causeRow // the cause, if it did not fit into the text
	// forward: it is the message itself, on the way to its segment's home.
	forward bool
	segment uint32 // of a forward
}

// settle goes on with the settling of one message. The order is: effect (the
// handlers have returned), copies put and acknowledged, then the one request
// that ends the delivery. A crash between any two of these delivers tasks again
// and loses none (windows 7, 17).
func (r *processing) settle(d *delivery) {
	if d.settlement == nil {
		d.settlement = r.plan(d)
		r.tally(d)
		r.letGo(d)
	}
	s := d.settlement
	for len(s.copies) > 0 {
		if err := r.putCopy(d, &s.copies[0]); err != nil {
			r.settleLater(d, err)
			return
		}
		if s.copies[0].reason != "" {
			r.tallies.add(d.header.Run, workload.Tally{Quarantined: uint64(s.copies[0].tasks)})
		}
		s.copies = s.copies[1:]
	}
	// After every effect, before the message can be gone (P3.3).
	if len(s.entries) > 0 {
		r.recorder.add(d)
		return
	}
	if s.final == stepForget {
		r.leave(d)
		return
	}
	receipt, err := r.keeper.take(r.wire, d)
	if err == nil {
		err = r.finalStep(d, receipt)
	} else if errors.Is(err, ErrLeaseEnded) {
		// Renewing found out that the receipt is dead.
		err = &storage.Error{Code: storage.Gone, Op: "settle", Account: d.shard.Account.Name, Object: d.shard.Name, Index: -1, Err: err}
	} else {
		r.settled(d) // the processor's last moment is over
		return
	}
	switch {
	case err == nil:
		r.counts.retried.Add(int64(s.retried))
		r.counts.released.Add(int64(s.released))
		r.tallies.add(d.header.Run, workload.Tally{Retried: uint64(s.retried)})
		if r.recorder != nil {
			r.recorder.deleted(d)
		}
		if d.passes() {
			r.counts.passed.Add(1)
			r.hints.later(d, s.delay)
		} else if s.delay > 0 {
			r.meets(d, s.delay)
			r.poller.comesBack(time.Now().Add(s.delay))
		}
		if r.isSoonHere(d, s.delay) {
			r.poller.hides(d.shard, time.Now().Add(inWholeSeconds(s.delay)))
		}
	case storage.Is(err, storage.Gone):
		// After a delete of what was done, or after a request of ours that was
		// not answered, that is what success looks like (window 9). Otherwise
		// somebody else got the message and will settle it, or a renewal of ours
		// acted whose answer was lost (window 14).
		if s.final != stepDelete && !s.doubt {
			r.log.Debug("message went to somebody else before it was settled", d.attrs(-1)...)
		}
		if !s.doubt && !(s.recorded && s.final == stepDelete) {
			r.leave(d)
			return
		}
	case storage.Is(err, storage.Missing), storage.Is(err, storage.Invalid), storage.Is(err, storage.TooLarge), storage.Is(err, storage.Precondition), storage.Is(err, storage.Exists):
		r.log.Error("message cannot be settled; it is left to its lease", append(d.attrs(-1), "error", err)...)
		r.leave(d)
		return
	default:
		s.doubt = s.doubt || storage.Ambiguous(err)
		r.keeper.giveBack(d, s.doubt)
		r.settleLater(d, err)
		return
	}
	r.endAttempts(d)
	r.settled(d)
}

// finalStep makes the request that ends a delivery.
func (r *processing) finalStep(d *delivery, receipt storage.Receipt) error {
	s := d.settlement
	switch s.final {
	case stepReplace:
		err := d.shard.Replace(r.wire, receipt, s.text, s.delay)
		if !storage.Is(err, storage.TooLarge) {
			return err
		}
		s.final, s.text = stepRelease, nil // only the visibility changes (P4.1)
		return d.shard.Release(r.wire, receipt, s.delay)
	case stepRelease:
		return d.shard.Release(r.wire, receipt, s.delay)
	default:
		return d.shard.Delete(r.wire, receipt)
	}
}

// putCopy puts one message that must exist before the one in hand may go. A
// copy that was put twice because an answer was lost does no harm: its tasks
// have their identities.
func (r *processing) putCopy(d *delivery, c *poisonOrRest) error {
	if c.forward {
		return r.bringHome(d, c)
	}
	if !r.share.Load().uses(c.shard.Account) {
		return errNotHome // which was found empty: the message in hand has been settled by another process
	}
	if c.row != nil {
		if err := r.writeCause(c.row); err != nil {
			return err
		}
		c.row = nil
	}
	if err := c.shard.Put(r.wire, c.text, c.delay); err != nil {
		return err
	}
	if c.delay > 0 {
		r.meets(d, c.delay)
		r.poller.comesBack(time.Now().Add(c.delay))
	}
	if c.reason != "" {
		r.counts.quarantined.Add(int64(c.tasks))
		queues.HookQuarantine(&r.cfg.Hooks, c.shard.Account.Name, c.reason, c.tasks)
	}
	return nil
}

// settleLater tries again after a back-off, while the keeper holds the lease.
func (r *processing) settleLater(d *delivery, err error) {
	s := d.settlement
	s.tries++
	over := time.Since(r.keeper.until(d))
	switch {
	case r.wire.Err() != nil:
		r.settled(d)
		return
	case errors.Is(err, errNotHome): // it is judged anew when it comes back
		s.copies, s.final, s.delay, s.text = nil, stepRelease, passMost, nil
		s.retried = 0
		if r.recorder != nil {
			r.recorder.unquarantine(d)
		}
	case over > settleAfterLease, over > 0 && (s.final == stepRelease || len(s.copies) > 0):
		// A release is over by itself, and copies without the lease would only be
		// copies more: whoever gets the message next makes them again.
		if len(s.entries) > 0 { // what was done is recorded all the same
			r.recorder.unquarantine(d)
			s.copies, s.final, s.text = nil, stepForget, nil
			d.settler.resume(d)
			return
		}
		r.log.Warn("message could not be settled while it was leased; it will be delivered again", append(d.attrs(-1), "error", err)...)
		r.settled(d)
		return
	case len(s.copies) > 0 && s.copies[0].reason != "" && s.tries >= poisonTries:
		r.alarmOnce("poison", "cannot quarantine; messages go back for a while", append(d.attrs(-1), "error", err)...)
		s.copies, s.final, s.delay, s.text = nil, stepRelease, poisonDelay, nil
		s.retried = 0
		if r.recorder != nil {
			r.recorder.unquarantine(d)
		}
	case len(s.copies) > 0 && s.copies[0].forward && s.tries >= forwardTries:
		r.alarmOnce("forward", "messages cannot be brought to the queues that are their homes; they stay for a while", append(d.attrs(-1), "home", s.copies[0].shard.String(), "error", err)...)
		s.copies, s.final, s.delay = nil, stepRelease, poisonDelay
	}
	wait := r.jitter.Full(settleBase, settleLimit, "settle again", d.id, s.tries)
	if e, ok := queues.AsError(err); ok {
		wait += e.RetryAfter        // and the jitter, or all who were told the same come back together
		if e.Code == storage.Auth { // a new credential takes a while (window 38)
			wait = max(wait, settleLimit/2)
		}
	}
	time.AfterFunc(wait, func() { d.settler.resume(d) })
}

// size is how much memory the texts take that are still to be put.
func (s *settlement) size() int {
	n := len(s.text)
	for _, c := range s.copies {
		n += len(c.text)
	}
	return n
}

// letGo frees the contents of a message: what is needed of them stands in the settlement.
func (r *processing) letGo(d *delivery) {
	d.mu.Lock()
	hung := d.hung
	d.mu.Unlock()
	d.text = nil
	if d.env != nil && !hung {
		d.env.Release()
	}
	d.env = nil
	if !hung {
		reuseTasks(d.tasks)
		d.tasks, d.fresh, d.verdicts, d.troubles, d.contributions = nil, nil, nil, nil, nil
	}
	kept := d.settlement.size()
	d.settler.holds(d, kept)
	r.backlog.free(d, kept)
}

// leave ends a delivery whose message nobody here can settle: it comes back when
// its lease ends.
func (r *processing) leave(d *delivery) {
	r.poller.hides(d.shard, r.keeper.hidden(d))
	r.settled(d)
}

// settled ends a delivery.
func (r *processing) settled(d *delivery) {
	if d.worked.Load() {
		r.terms.settled(time.Since(d.lease.since))
	}
	r.keeper.drop(d)
	r.backlog.free(d, 0)
	d.end(nil)
	r.disown(d)
	wasFull := d.settler.full()
	d.settler.done(d)
	if calm := r.hand.done(1, !d.passes()); calm || wasFull {
		backoff.Signal(r.poller.wake)
	}
}

// hand counts what is under way.
type hand struct {
	mu    sync.Mutex // guards what follows
	n     int
	since time.Time     // when the last of what was work was done
	empty chan struct{} // gets a token when n becomes 0
}

func newHand() *hand { return &hand{since: time.Now(), empty: make(chan struct{}, 1)} }

func (h *hand) add(n int) {
	h.mu.Lock()
	h.n += n
	h.mu.Unlock()
}

// done reports whether nothing is left. What was not work does not count for
// since when there is none.
func (h *hand) done(n int, work bool) (calm bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n -= n
	if work {
		h.since = time.Now()
	}
	if h.n > 0 {
		return false
	}
	backoff.Signal(h.empty)
	return true
}

// idleSince is since when nothing is under way, if nothing is.
func (h *hand) idleSince() (since time.Time, calm bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.n == 0
}

// wait waits until nothing is under way and reports whether that came before
// the context's end.
func (h *hand) wait(ctx context.Context) bool {
	for {
		if _, calm := h.idleSince(); calm {
			return true
		}
		select {
		case <-h.empty:
		case <-ctx.Done():
			_, calm := h.idleSince()
			return calm
		}
	}
}
