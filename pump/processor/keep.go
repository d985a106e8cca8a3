package processor

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/awake"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/storage"
)

// A lease in numbers, as parts of the visibility that was asked for (which is the
// user's, or follows the work: terms). It is
// renewed after a third, a renewal that is not answered within a sixth is tried
// again, and the last sixth belongs to settling: handlers are stopped before it.
// At 60 s there is time for three renewals that go wrong; a smaller first part
// would only cost requests, a larger one would leave one try.
const (
	renewPart    = 3
	patiencePart = 6
	marginPart   = 6
)

// ErrLeaseEnded ends the handlers of a message that will be delivered again.
var ErrLeaseEnded = errors.New("pump: the message's lease has ended; it will be delivered again")

// lease is this process's hold on one message.
type lease struct {
	// own is the right to speak about the message to the service, held by whoever
	// has put a token in: a renewal makes every other receipt stale, so a renewal
	// and a delete under way together would lose the delete (D3, window 15).
	own chan struct{}

	since time.Time // when the get was sent that brought the message

	// What follows is guarded by keeper.mu.
	receipt storage.Receipt
	length  time.Duration // of the lease: what the get, or the last renewal, asked for
	until   time.Time     // on the local clock: before then nobody else gets the message
	retry   time.Time     // the next renewal
	tries   uint64        // renewals so far, of any outcome
	failed  uint64        // of them, those since the last that succeeded
	renews  bool          // a renewal is under way
	// doubt: a request of our own was not answered, so the receipt may be dead
	// although nobody else has the message (windows 9, 14).
	doubt bool
	// hidden is until when the message is invisible if a renewal acted that was
	// not answered. Nobody here can settle it then.
	hidden time.Time
	ended  bool // trust is over: the handlers were told, nothing is renewed any more
	gone   bool // the service said that the receipt is no longer the newest
	index  int  // in the keeper's heap, -1 if not there
	next   time.Time
}

// keeper holds every message in hand: it renews leases without sending the
// body, and ends the handlers' contexts where it cannot. One goroutine decides,
// over a heap; each renewal under way has a goroutine of its own, of which
// there are at most as many as messages in hand, so a dark account delays no
// other account's renewals.
//
// A renewal whose answer is lost (window 14) is tried again with the receipt
// that is known: if the lost one never acted, that succeeds and nothing is
// lost; if it acted, the service says "gone", and then nobody here can know the
// receipt. The lease counts as lost from then on: no task of the message is
// started any more, and handlers that run may run until the old deadline less
// the margin, because the message is certainly hidden until then.
type keeper struct {
	terms  *terms
	jitter backoff.Jitter
	// lost is called, without the lock, when no further task of the delivery
	// should be started; cause is set if handlers that run must end, too.
	lost func(d *delivery, cause error)
	// stale is called, without the lock, for a message none of whose tasks was
	// started within the first whole lease: somebody else should have it.
	stale func(d *delivery)
	// goesOn is called, without the lock, for a message whose lease was renewed for so long.
	goesOn func(d *delivery, length time.Duration)
	turn   backoff.Step
	clock  awake.Clock

	mu     sync.Mutex // guards what follows and what lease says
	heap   leaseHeap
	looked time.Time // when the last round began
	wake   chan struct{}
}

// longestRound is how long the keeper waits at most while it holds messages: so soon
// it sees that the machine was suspended, while the service's clock went on.
const longestRound = 2 * time.Second

func newKeeper(t *terms, j backoff.Jitter) *keeper {
	return &keeper{terms: t, jitter: j, looked: time.Now(), wake: make(chan struct{}, 1)}
}

func (l *lease) margin() time.Duration   { return l.length / marginPart }
func (l *lease) patience() time.Duration { return l.length / patiencePart }

// interval is the time from the start of a lease to its renewal, jittered so
// that the messages of one get are not renewed in one burst.
func (k *keeper) interval(l *lease) time.Duration {
	third := l.length / renewPart
	return third - third/5 + time.Duration(k.jitter.Float("renew", l.receipt.ID, l.tries)*float64(third)/5)
}

// backoff is the time from a failed renewal to the next try.
func (k *keeper) backoff(l *lease) time.Duration {
	limit := backoff.Doubled(l.length/60, l.patience(), l.failed)
	return time.Duration(k.jitter.Float("renew again", l.receipt.ID, l.tries) * float64(limit))
}

// keep begins to hold a message whose get was sent at the given time (windows 11, 12)
// and asked for so long a lease.
func (k *keeper) keep(d *delivery, receipt storage.Receipt, sent time.Time, length time.Duration) {
	l := &d.lease
	l.own = make(chan struct{}, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	l.receipt, l.since, l.length, l.index = receipt, sent, length, -1
	l.until = k.end(sent, length)
	l.retry = sent.Add(k.interval(l))
	k.push(d)
}

// take gives the receipt to whoever wants to settle the message, once no
// renewal is under way; nothing is renewed until giveBack. The error is
// ErrLeaseEnded if the receipt is known to be dead, or the context's, and then nothing
// was taken: a message that could not be marked is settled next, which asks again.
func (k *keeper) take(ctx context.Context, d *delivery) (storage.Receipt, error) {
	l := &d.lease
	select {
	case l.own <- struct{}{}:
	case <-ctx.Done():
		return storage.Receipt{}, context.Cause(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.gone {
		<-l.own
		return storage.Receipt{}, ErrLeaseEnded
	}
	k.remove(d)
	return l.receipt, nil
}

// giveBack goes on keeping a message that could not be settled yet; doubt says
// that the request that should have done it may have.
func (k *keeper) giveBack(d *delivery, doubt bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d.lease.doubt = d.lease.doubt || doubt
	<-d.lease.own // before it can be looked at: look leaves who is being settled out
	k.push(d)
}

// drop ends keeping. It is called for every message, settled or not.
func (k *keeper) drop(d *delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(d)
	d.lease.ended = true // a renewal under way must not put it back
}

// trusted reports whether nobody else can have got the message yet, as far as
// this process can know.
func (k *keeper) trusted(d *delivery) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !d.lease.ended && !d.lease.gone
}

// hidden is until when the message may be invisible although this process
// cannot settle it.
func (k *keeper) hidden(d *delivery) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.lease.hidden.After(d.lease.until) {
		return d.lease.hidden
	}
	return d.lease.until
}

// until is when the message becomes visible to others.
func (k *keeper) until(d *delivery) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return d.lease.until
}

// length is how long a lease the message has.
func (k *keeper) length(d *delivery) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return d.lease.length
}

// run keeps until the context ends.
func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		k.turn.Wait("keep")
		timer.Reset(k.round(ctx))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// round does what is due and says how long nothing will be.
func (k *keeper) round(ctx context.Context) time.Duration {
	var over, stale []*delivery
	k.mu.Lock()
	now := time.Now()
	k.woke(now)
	for len(k.heap) > 0 && !k.heap[0].lease.next.After(now) {
		d := k.heap[0]
		k.remove(d)
		if k.look(ctx, d, now) {
			over = append(over, d)
		} else if d.lease.tries == renewPart-1 && d.lease.renews && !d.started.Load() {
			stale = append(stale, d)
		}
	}
	wait := time.Hour
	if len(k.heap) > 0 {
		wait = min(k.heap[0].lease.next.Sub(now), longestRound)
	}
	k.mu.Unlock()
	for _, d := range over {
		k.lost(d, ErrLeaseEnded)
	}
	for _, d := range stale {
		k.stale(d)
	}
	return wait
}

// woke brings the leases forward by the time in which the monotonic clock stood
// still: the service hid the messages for no longer because of it. A wall clock that was
// set forward costs the same, renewals or another delivery. The lock is held.
func (k *keeper) woke(now time.Time) {
	slept := k.clock.Slept(k.looked)
	k.looked = now
	if slept < longestRound { // the margins bear that, and clocks that are adjusted
		return
	}
	for _, d := range k.heap {
		l := &d.lease
		l.until, l.retry = l.until.Add(-slept), l.retry.Add(-slept)
		l.next = l.next.Add(-slept) // of all alike: their order stays
	}
}

// end is when a lease that was asked for at `sent` is over by the monotonic clock,
// which may have stood still since.
func (k *keeper) end(sent time.Time, length time.Duration) time.Time {
	if slept := k.clock.Slept(sent); slept >= longestRound {
		length -= slept
	}
	return sent.Add(length)
}

// look does what is due for one message and reports whether trust in its lease
// has just ended.
func (k *keeper) look(ctx context.Context, d *delivery, now time.Time) (over bool) {
	l := &d.lease
	if !now.Before(l.until.Add(-l.margin())) {
		l.ended = true
		return true
	}
	if !l.gone && !l.renews && !l.retry.After(now) {
		select {
		case l.own <- struct{}{}:
			l.renews = true
			go k.renew(ctx, d, l.receipt)
		default: // being settled: giveBack or drop follows
			return false
		}
	}
	k.push(d)
	return false
}

// renew makes one renewal. It holds the right of ownership.
func (k *keeper) renew(ctx context.Context, d *delivery, receipt storage.Receipt) {
	l := &d.lease
	// It never takes longer than what is left, or an answer that came after the
	// handlers were stopped would start trusting again (P5.2's shape).
	end, length := k.nextLease(d)
	try, cancel := context.WithDeadline(ctx, end)
	next, sent, err := d.shard.Renew(try, receipt, length)
	cancel()

	k.mu.Lock()
	l.renews = false
	l.tries++
	wasGone := l.gone
	var cause error
	switch {
	case err == nil:
		l.receipt, l.doubt, l.hidden = next, false, time.Time{}
		l.failed = 0
		l.length, l.until = length, k.end(sent, length)
		l.retry = sent.Add(k.interval(l))
	case storage.Is(err, storage.Gone), storage.Is(err, storage.Missing), storage.Is(err, storage.Invalid):
		l.gone = true
		if !l.doubt { // somebody else has it, now
			l.ended = true
			cause = ErrLeaseEnded
		}
	default:
		// Throttled, no answer, never sent, or refused while a credential is
		// renewed: the receipt may still be good (window 13).
		if storage.Ambiguous(err) {
			l.doubt, l.hidden = true, time.Now().Add(length+hiddenLonger)
		}
		l.retry = time.Now().Add(k.backoff(l))
		l.failed++
	}
	lost := l.gone && !wasGone
	<-l.own // as in giveBack
	k.remove(d)
	k.push(d)
	k.mu.Unlock()
	if err == nil {
		k.goesOn(d, length)
	}
	if lost {
		k.lost(d, cause)
	}
}

// nextLease says until when a renewal may go on, and how long a lease it asks for.
// Longer than the last only if tasks of the message are worked on: what merely
// waits here is soon to be given back.
func (k *keeper) nextLease(d *delivery) (end time.Time, length time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, now := &d.lease, time.Now()
	length = l.length
	if d.started.Load() {
		length = k.terms.longer(length, now.Sub(l.since))
	}
	end = l.until.Add(-l.margin())
	if patient := now.Add(l.patience()); patient.Before(end) {
		end = patient
	}
	return end, length
}

// push puts a message where it will be looked at when its renewal is due, or
// when trust in its lease ends.
func (k *keeper) push(d *delivery) {
	l := &d.lease
	if l.ended || l.index >= 0 {
		return
	}
	l.next = l.until.Add(-l.margin())
	if !l.renews && !l.gone && l.retry.Before(l.next) {
		l.next = l.retry
	}
	heap.Push(&k.heap, d)
	if l.index == 0 {
		backoff.Signal(k.wake)
	}
}

func (k *keeper) remove(d *delivery) {
	if d.lease.index >= 0 {
		heap.Remove(&k.heap, d.lease.index)
	}
}

// leaseHeap orders deliveries by when the keeper must look at them.
type leaseHeap []*delivery

func (h leaseHeap) Len() int { return len(h) }

// Less has those of one get, which are due together, in an order of their own (P9).
func (h leaseHeap) Less(i, j int) bool {
	c := h[i].lease.next.Compare(h[j].lease.next)
	return c < 0 || c == 0 && h[i].id < h[j].id
}

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lease.index, h[j].lease.index = i, j
}

func (h *leaseHeap) Push(x any) {
	d := x.(*delivery)
	d.lease.index = len(*h)
	*h = append(*h, d)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	d.lease.index = -1
	return d
}
