package leases

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// ErrEnded ends the handlers of a message that will be delivered again.
var ErrEnded = errors.New("the message's lease has ended; it will be delivered again")

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
	terms  *Timing
	jitter waits.Jitter
	parts  Parts
	Rounds waits.Counter

	Mu      sync.Mutex // guards what follows and what lease says
	heap    leaseHeap
	checked time.Time // when the last round began
	wake    chan struct{}
}

// Parts are what a keeper tells the other parts of a processor, and its clock.
type Parts struct {
	// OnLost is called, without the lock, when no further task of the delivery
	// should be started; cause is set if handlers that run must end, too.
	OnLost func(d *message.Delivery, cause error)
	// OnStale is called, without the lock, for a message if no task of it was started within the first
	// whole lease: another process should have it.
	OnStale func(d *message.Delivery)
	// OnRenewed is called, without the lock, for a message whose lease was renewed for so long.
	OnRenewed func(d *message.Delivery, length time.Duration)
	Step      sim.Step
	Clock     waits.Clock
}

// longestRound is how long the keeper waits at most while it holds messages: by then it sees that
// the machine was suspended while the service's clock went on.
const longestRound = 2 * time.Second

// NewKeeper makes a keeper that holds nothing.
func NewKeeper(t *Timing, j waits.Jitter, parts Parts) *Keeper {
	return &Keeper{
		terms: t, jitter: j, parts: parts, checked: time.Now(), wake: make(chan struct{}, 1),
	}
}

// interval is the time from the start of a lease to its renewal, jittered so
// that the messages of one get are not renewed in one burst.
func (k *Keeper) interval(l *message.Lease) time.Duration {
	third := l.Length / message.RenewPart
	return third - third/5 + time.Duration(
		k.jitter.Float("renew", l.Receipt.ID, l.Tries)*float64(third)/5,
	)
}

// backoff is the time from a failed renewal to the next try.
func (k *Keeper) backoff(l *message.Lease) time.Duration {
	limit := waits.Doubled(l.Length/60, l.Patience(), l.Failed)
	return time.Duration(k.jitter.Float("renew again", l.Receipt.ID, l.Tries) * float64(limit))
}

// Keep begins to hold a message whose get was sent at the given time (windows 11, 12) and asked for
// a lease of this length.
func (k *Keeper) Keep(
	d *message.Delivery, receipt storage.Receipt, sent time.Time, length time.Duration,
) {
	l := &d.Lease
	l.Own = make(chan struct{}, 1)
	k.Mu.Lock()
	defer k.Mu.Unlock()
	l.Receipt, l.Since, l.Length, l.Index = receipt, sent, length, -1
	l.Until = k.end(sent, length)
	l.Retry = sent.Add(k.interval(l))
	k.push(d)
}

// Take gives the receipt to the goroutine that settles the message, once no renewal is under way;
// nothing is renewed until giveBack. The error is ErrLeaseEnded if the receipt is known to be dead,
// or the context's. Then the receipt was not taken: a message that could not be marked is settled
// next, and the settler asks again.
func (k *Keeper) Take(ctx context.Context, d *message.Delivery) (storage.Receipt, error) {
	l := &d.Lease
	select {
	case l.Own <- struct{}{}:
	case <-ctx.Done():
		return storage.Receipt{}, context.Cause(ctx)
	}
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if l.Gone {
		<-l.Own
		return storage.Receipt{}, ErrEnded
	}
	k.remove(d)
	return l.Receipt, nil
}

// GiveBack goes on keeping a message that could not be settled yet; doubt says that the failed
// request may have settled it.
func (k *Keeper) GiveBack(d *message.Delivery, doubt bool) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	d.Lease.Doubt = d.Lease.Doubt || doubt
	<-d.Lease.Own // before it can be looked at: check leaves out what is being settled
	k.push(d)
}

// Drop ends keeping. It is called for every message, settled or not.
func (k *Keeper) Drop(d *message.Delivery) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	k.remove(d)
	d.Lease.Ended = true // a renewal under way must not put it back
}

// Trusted reports whether no other process can have got the message yet, as far as
// this process can know.
func (k *Keeper) Trusted(d *message.Delivery) bool {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	return !d.Lease.Ended && !d.Lease.Gone
}

// Hidden is until when the message may be invisible although this process
// cannot settle it.
func (k *Keeper) Hidden(d *message.Delivery) time.Time {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if d.Lease.Hidden.After(d.Lease.Until) {
		return d.Lease.Hidden
	}
	return d.Lease.Until
}

// Until is when the message becomes visible to others.
func (k *Keeper) Until(d *message.Delivery) time.Time {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	return d.Lease.Until
}

// Length is how long a lease the message has.
func (k *Keeper) Length(d *message.Delivery) time.Duration {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	return d.Lease.Length
}

// All gives the messages in hand that are not being settled, by their ids.
func (k *Keeper) All() []*message.Delivery {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	all := slices.Clone([]*message.Delivery(k.heap))
	slices.SortFunc(all, func(a, b *message.Delivery) int { return strings.Compare(a.ID, b.ID) }) // P9
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
	var over, stale []*message.Delivery
	k.Mu.Lock()
	now := time.Now()
	k.noteSleep(now)
	for len(k.heap) > 0 && !k.heap[0].Lease.Next.After(now) {
		d := k.heap[0]
		k.remove(d)
		if k.check(ctx, d, now) {
			over = append(over, d)
		} else if d.Lease.Tries == message.RenewPart-1 && d.Lease.Renews && !d.Started.Load() {
			stale = append(stale, d)
		}
	}
	wait := waits.Rest
	if len(k.heap) > 0 {
		wait = min(k.heap[0].Lease.Next.Sub(now), longestRound)
	}
	k.Mu.Unlock()
	for _, d := range over {
		k.parts.OnLost(d, ErrEnded)
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
		l := &d.Lease
		l.Until, l.Retry = l.Until.Add(-slept), l.Retry.Add(-slept)
		l.Next = l.Next.Add(-slept) // all alike: their order stays
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
func (k *Keeper) check(ctx context.Context, d *message.Delivery, now time.Time) (over bool) {
	l := &d.Lease
	if !now.Before(l.Until.Add(-l.Margin())) {
		l.Ended = true
		return true
	}
	if !l.Gone && !l.Renews && !l.Retry.After(now) {
		select {
		case l.Own <- struct{}{}:
			l.Renews = true
			go k.renew(ctx, d, l.Receipt)
		default: // being settled: giveBack or drop follows
			return false
		}
	}
	k.push(d)
	return false
}

// renew makes one renewal. It holds the right of ownership.
func (k *Keeper) renew(ctx context.Context, d *message.Delivery, receipt storage.Receipt) {
	l := &d.Lease
	// A renewal never takes longer than what is left, or an answer after the handlers were stopped
	// would restart trust (P5.2's shape).
	end, length := k.nextLease(d)
	try, cancel := context.WithDeadline(ctx, end)
	next, sent, err := d.Queue.Renew(try, receipt, length)
	cancel()

	k.Mu.Lock()
	l.Renews = false
	l.Tries++
	wasGone := l.Gone
	var cause error
	switch {
	case err == nil:
		l.Receipt, l.Doubt, l.Hidden = next, false, time.Time{}
		l.Failed = 0
		l.Length, l.Until = length, k.end(sent, length)
		l.Retry = sent.Add(k.interval(l))
	case failure.Decide(failure.Queue, err, failure.Hold).Do == failure.GiveBack:
		l.Gone = true
		if !l.Doubt { // another process has it, now
			l.Ended = true
			cause = ErrEnded
		}
	default:
		// Throttled, no answer, never sent, or refused while a credential is
		// renewed: the receipt may still be good (window 13).
		if storage.Ambiguous(err) {
			l.Doubt, l.Hidden = true, time.Now().Add(length+HiddenLonger)
		}
		l.Retry = time.Now().Add(k.backoff(l))
		l.Failed++
	}
	lost := l.Gone && !wasGone
	<-l.Own // as in giveBack
	k.remove(d)
	k.push(d)
	k.Mu.Unlock()
	if err == nil {
		k.parts.OnRenewed(d, length)
	}
	if lost {
		k.parts.OnLost(d, cause)
	}
}

// nextLease says until when a renewal may go on, and how long a lease it asks for. The lease is
// longer than the last only if tasks of the message are worked on: a message that merely waits is
// soon to be given back.
func (k *Keeper) nextLease(d *message.Delivery) (end time.Time, length time.Duration) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	l, now := &d.Lease, time.Now()
	length = l.Length
	if d.Started.Load() {
		length = k.terms.Longer(length, now.Sub(l.Since))
	}
	end = l.Until.Add(-l.Margin())
	if patient := now.Add(l.Patience()); patient.Before(end) {
		end = patient
	}
	return end, length
}

// push puts a message where it will be looked at when its renewal is due, or
// when trust in its lease ends.
func (k *Keeper) push(d *message.Delivery) {
	l := &d.Lease
	if l.Ended || l.Index >= 0 {
		return
	}
	l.Next = l.Until.Add(-l.Margin())
	if !l.Renews && !l.Gone && l.Retry.Before(l.Next) {
		l.Next = l.Retry
	}
	heap.Push(&k.heap, d)
	if l.Index == 0 {
		waits.Signal(k.wake)
	}
}

func (k *Keeper) remove(d *message.Delivery) {
	if d.Lease.Index >= 0 {
		heap.Remove(&k.heap, d.Lease.Index)
	}
}

// leaseHeap orders deliveries by when the keeper must look at them.
type leaseHeap []*message.Delivery

func (h leaseHeap) Len() int { return len(h) }

// Less orders the messages of one get, which are due together, too (P9).
func (h leaseHeap) Less(i, j int) bool {
	c := h[i].Lease.Next.Compare(h[j].Lease.Next)
	return c < 0 || c == 0 && h[i].ID < h[j].ID
}

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Lease.Index, h[j].Lease.Index = i, j
}

func (h *leaseHeap) Push(x any) {
	d := x.(*message.Delivery)
	d.Lease.Index = len(*h)
	*h = append(*h, d)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	d.Lease.Index = -1
	return d
}

// HiddenLonger bounds for how long beyond one lease a failed request may have hidden a message: it
// may act a little after it was given up, and the service counts whole seconds.
const HiddenLonger = time.Second

// Renewed goes on keeping a message whose text was replaced, which renewed its lease.
func (k *Keeper) Renewed(d *message.Delivery, receipt storage.Receipt, sent time.Time) {
	l := &d.Lease
	k.Mu.Lock()
	l.Receipt, l.Doubt, l.Hidden, l.Failed = receipt, false, time.Time{}, 0
	l.Tries++
	l.Until = sent.Add(l.Length)
	l.Retry = sent.Add(k.interval(l))
	k.push(d)
	k.Mu.Unlock()
	<-l.Own
}
