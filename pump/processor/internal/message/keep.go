package message

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/storage"
)

// Keeper holds every message in hand: it renews leases without sending the body, and ends the
// handlers' contexts where it cannot. One goroutine decides, over a heap. Each renewal under way
// has a goroutine of its own, at most one for each message in hand, so a dark account does not
// delay another account's renewals.
//
// A renewal whose answer is lost (window 14) is tried again with the receipt that is known: if the
// lost one never acted, that succeeds and nothing is lost; if it acted, the service says "gone",
// and then this process cannot know the receipt. The lease counts as lost from then on: no further
// task of the message is started, and running handlers may go on until the old deadline less the
// margin, because the message is certainly hidden until then.
type Keeper struct {
	terms  *leases.Timing
	jitter waits.Jitter
	parts  KeeperParts
	Rounds waits.Counter

	mu      sync.Mutex // guards what follows, and the leases of deliveries
	heap    leaseHeap
	checked time.Time // when the last round began
	wake    chan struct{}
}

// KeeperParts are what a keeper tells the other parts of a processor, and its clock.
type KeeperParts struct {
	// OnLost is called, without the lock, when no further task of the delivery
	// should be started; ends says that handlers that run must end, too.
	OnLost func(d *Delivery, ends bool)
	// OnStale is called, without the lock, for a message if no task of it was started within the first
	// whole lease: another process should have it.
	OnStale func(d *Delivery)
	// OnRenewed is called, without the lock, for a message whose lease was renewed for so long.
	OnRenewed func(d *Delivery, length time.Duration)
	Step      sim.Step
	Clock     waits.Clock
}

// longestRound is how long the keeper waits at most while it holds messages: by then it sees that
// the machine was suspended while the service's clock went on.
const longestRound = 2 * time.Second

// NewKeeper makes a keeper that holds nothing.
func NewKeeper(t *leases.Timing, j waits.Jitter, parts KeeperParts) *Keeper {
	return &Keeper{
		terms: t, jitter: j, parts: parts, checked: time.Now(), wake: make(chan struct{}, 1),
	}
}

// interval is the time from the start of a lease to its renewal, jittered so
// that the messages of one get are not renewed in one burst.
func (k *Keeper) interval(l *lease) time.Duration {
	third := l.length / RenewPart
	return third - third/5 + time.Duration(
		k.jitter.Float("renew", l.receipt.ID, l.tries)*float64(third)/5,
	)
}

// backoff is the time from a failed renewal to the next try.
func (k *Keeper) backoff(l *lease) time.Duration {
	limit := waits.Doubled(l.length/60, l.patience(), l.failed)
	return time.Duration(k.jitter.Float("renew again", l.receipt.ID, l.tries) * float64(limit))
}

// Keep begins to hold a message whose get was sent at the given time (windows 11, 12) and asked for
// a lease of this length.
func (k *Keeper) Keep(
	d *Delivery, receipt storage.Receipt, sent time.Time, length time.Duration,
) {
	l := &d.lease
	l.own = make(chan struct{}, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	l.receipt, l.since, l.length, l.index = receipt, sent, length, -1
	l.until = k.end(sent, length)
	l.retry = sent.Add(k.interval(l))
	k.push(d)
}

// Take gives the receipt to the goroutine that settles the message, once no renewal is under way;
// nothing is renewed until GiveBack. The error is leases.ErrEnded if the receipt is known to be
// dead, or the context's. Then the receipt was not taken: a message that could not be marked is
// settled next, and the settler asks again.
func (k *Keeper) Take(ctx context.Context, d *Delivery) (storage.Receipt, error) {
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
		return storage.Receipt{}, leases.ErrEnded
	}
	k.remove(d)
	return l.receipt, nil
}

// GiveBack goes on keeping a message that could not be settled yet; doubt says that the failed
// request may have settled it.
func (k *Keeper) GiveBack(d *Delivery, doubt bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d.lease.doubt = d.lease.doubt || doubt
	<-d.lease.own // before it can be looked at: check leaves out what is being settled
	k.push(d)
}

// Drop ends keeping. It is called for every message, settled or not.
func (k *Keeper) Drop(d *Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(d)
	d.lease.ended = true // a renewal under way must not put it back
}

// Trusted reports whether no other process can have got the message yet, as far as
// this process can know.
func (k *Keeper) Trusted(d *Delivery) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !d.lease.ended && !d.lease.gone
}

// Hidden is until when the message may be invisible although this process
// cannot settle it.
func (k *Keeper) Hidden(d *Delivery) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.lease.hidden.After(d.lease.until) {
		return d.lease.hidden
	}
	return d.lease.until
}

// Until is when the message becomes visible to others.
func (k *Keeper) Until(d *Delivery) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return d.lease.until
}

// Length is how long a lease the message has.
func (k *Keeper) Length(d *Delivery) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return d.lease.length
}

// All gives the messages in hand that are not being settled, by their ids.
func (k *Keeper) All() []*Delivery {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.Clone([]*Delivery(k.heap))
	slices.SortFunc(all, func(a, b *Delivery) int { return strings.Compare(a.ID, b.ID) }) // P9
	return all
}

// Run keeps until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	defer k.Rounds.Begin()()
	waits.Loop(ctx, k.wake, func() time.Duration {
		k.Rounds.Add()
		k.parts.Step.Wait("keep")
		return k.round(ctx)
	})
}

// round does what is due and says how long nothing will be.
func (k *Keeper) round(ctx context.Context) time.Duration {
	var over, stale []*Delivery
	k.mu.Lock()
	now := time.Now()
	k.noteSleep(now)
	for len(k.heap) > 0 && !k.heap[0].lease.next.After(now) {
		d := k.heap[0]
		k.remove(d)
		if k.check(ctx, d, now) {
			over = append(over, d)
		} else if d.lease.tries == RenewPart-1 && d.lease.renews && !d.Started.Load() {
			stale = append(stale, d)
		}
	}
	wait := waits.Rest
	if len(k.heap) > 0 {
		wait = min(k.heap[0].lease.next.Sub(now), longestRound)
	}
	k.mu.Unlock()
	for _, d := range over {
		k.parts.OnLost(d, true)
	}
	for _, d := range stale {
		k.parts.OnStale(d)
	}
	return wait
}

// noteSleep brings the leases forward by the time in which the monotonic clock stood still: the
// service did not hide the messages for longer. A wall clock that was set forward has the same
// cost: renewals or another delivery. The lock is held.
func (k *Keeper) noteSleep(now time.Time) {
	slept := k.parts.Clock.Slept(k.checked)
	k.checked = now
	if slept < longestRound { // the margins bear that, and clocks that are adjusted
		return
	}
	for _, d := range k.heap {
		l := &d.lease
		l.until, l.retry = l.until.Add(-slept), l.retry.Add(-slept)
		l.next = l.next.Add(-slept) // all alike: their order stays
	}
}

// end is when a lease that was asked for at `sent` is over by the monotonic clock,
// which may have stood still since.
func (k *Keeper) end(sent time.Time, length time.Duration) time.Time {
	if slept := k.parts.Clock.Slept(sent); slept >= longestRound {
		length -= slept
	}
	return sent.Add(length)
}

// check does what is due for one message and reports whether trust in its lease
// has just ended.
func (k *Keeper) check(ctx context.Context, d *Delivery, now time.Time) (over bool) {
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
		default: // being settled: GiveBack or Drop follows
			return false
		}
	}
	k.push(d)
	return false
}

// renew makes one renewal. It holds the right of ownership.
func (k *Keeper) renew(ctx context.Context, d *Delivery, receipt storage.Receipt) {
	l := &d.lease
	// A renewal never takes longer than what is left, or an answer after the handlers were stopped
	// would restart trust (P5.2's shape).
	end, length := k.nextLease(d)
	try, cancel := context.WithDeadline(ctx, end)
	next, sent, err := d.Queue.Renew(try, receipt, length)
	cancel()

	k.mu.Lock()
	l.renews = false
	l.tries++
	wasGone := l.gone
	ends := false
	switch {
	case err == nil:
		l.receipt, l.doubt, l.hidden = next, false, time.Time{}
		l.failed = 0
		l.length, l.until = length, k.end(sent, length)
		l.retry = sent.Add(k.interval(l))
	case failure.Decide(failure.Queue, err, failure.Hold).Do == failure.GiveBack:
		l.gone = true
		if !l.doubt { // another process has it, now
			l.ended = true
			ends = true
		}
	default:
		// Throttled, no answer, never sent, or refused while a credential is
		// renewed: the receipt may still be good (window 13).
		if storage.Ambiguous(err) {
			l.doubt, l.hidden = true, time.Now().Add(length+HiddenLonger)
		}
		l.retry = time.Now().Add(k.backoff(l))
		l.failed++
	}
	lost := l.gone && !wasGone
	<-l.own // as in GiveBack
	k.remove(d)
	k.push(d)
	k.mu.Unlock()
	if err == nil {
		k.parts.OnRenewed(d, length)
	}
	if lost {
		k.parts.OnLost(d, ends)
	}
}

// nextLease says until when a renewal may go on, and how long a lease it asks for. The lease is
// longer than the last only if tasks of the message are worked on: a message that merely waits is
// soon to be given back.
func (k *Keeper) nextLease(d *Delivery) (end time.Time, length time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, now := &d.lease, time.Now()
	length = l.length
	if d.Started.Load() {
		length = k.terms.Longer(length, now.Sub(l.since))
	}
	end = l.until.Add(-l.margin())
	if patient := now.Add(l.patience()); patient.Before(end) {
		end = patient
	}
	return end, length
}

// push puts a message where it will be looked at when its renewal is due, or
// when trust in its lease ends.
func (k *Keeper) push(d *Delivery) {
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
		waits.Signal(k.wake)
	}
}

func (k *Keeper) remove(d *Delivery) {
	if d.lease.index >= 0 {
		heap.Remove(&k.heap, d.lease.index)
	}
}

// leaseHeap orders deliveries by when the keeper must look at them.
type leaseHeap []*Delivery

func (h leaseHeap) Len() int { return len(h) }

// Less orders the messages of one get, which are due together, too (P9).
func (h leaseHeap) Less(i, j int) bool {
	c := h[i].lease.next.Compare(h[j].lease.next)
	return c < 0 || c == 0 && h[i].ID < h[j].ID
}

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lease.index, h[j].lease.index = i, j
}

func (h *leaseHeap) Push(x any) {
	d := x.(*Delivery)
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

// HiddenLonger bounds for how long beyond one lease a failed request may have hidden a message: it
// may act a little after it was given up, and the service counts whole seconds.
const HiddenLonger = time.Second

// Renewed goes on keeping a message whose text was replaced, which renewed its lease.
func (k *Keeper) Renewed(d *Delivery, receipt storage.Receipt, sent time.Time) {
	l := &d.lease
	k.mu.Lock()
	l.receipt, l.doubt, l.hidden, l.failed = receipt, false, time.Time{}, 0
	l.tries++
	l.until = sent.Add(l.length)
	l.retry = sent.Add(k.interval(l))
	k.push(d)
	k.mu.Unlock()
	<-l.own
}

// lease is this process's hold on one message.
type lease struct {
	// own is the right to speak about the message to the service, held by the goroutine that
	// has put a token in: a renewal makes every other receipt stale, so a renewal
	// and a delete under way together would lose the delete (D3, window 15).
	own chan struct{}

	since time.Time // when the get was sent that brought the message

	// The keeper's lock guards the fields below.
	receipt storage.Receipt
	length  time.Duration // of the lease: what the get, or the last renewal, asked for
	until   time.Time     // on the local clock: before then no other process gets the message
	retry   time.Time     // the next renewal
	tries   uint64        // renewals so far, of any outcome
	failed  uint64        // those since the last success
	renews  bool          // a renewal is under way
	// doubt: a request of this process was not answered, so the receipt may be dead although no other
	// process has the message (windows 9, 14).
	doubt bool
	// hidden is until when the message is invisible if an unanswered renewal acted. This process
	// cannot settle it then.
	hidden time.Time
	ended  bool // trust is over: the handlers were told, nothing is renewed any more
	gone   bool // the service said that the receipt is no longer the newest
	index  int  // in the keeper's heap, -1 if not there
	next   time.Time
}

// margin is the last part of a lease, which belongs to settling.
func (l *lease) margin() time.Duration { return l.length / marginPart }

// patience is for how long a renewal is waited for.
func (l *lease) patience() time.Duration { return l.length / patiencePart }

// A lease in numbers, as parts of the visibility that was asked for (the user's, or one that
// follows the work). The lease is renewed after a third, a renewal that is not answered within a
// sixth is tried again, and the last sixth belongs to settling: handlers are stopped before it. At
// 60 s there is time for three failed renewals; a smaller first part would only cost requests, a
// larger one would leave one try.
const (
	RenewPart    = 3
	patiencePart = 6
	marginPart   = 6
)
