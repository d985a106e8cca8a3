package pump

import (
	"slices"
	"sync/atomic"
	"time"
)

// While tasks are so quick that handing each out would be a good part of the work, a slot takes a handful of them at once:
// the locks, the clock and the notes of a start are paid once for all of it. Everything else
// is as if they had been taken one after the other. In particular what a slot has not
// begun can be taken back from it at any time, and it is as soon as one of them is slow, ends
// otherwise than well, or nothing more is to be started.
const (
	// handfulTask is what a task takes at most, on average, of which a slot takes several.
	// Handing one out and noting its end costs 0.3 us (BenchmarkHandOut).
	handfulTask = 20 * time.Microsecond
	// mostInHand times that is how long the last of a handful waits for the others.
	mostInHand = 32
	// Quick tasks of which one lasted slowTask are taken one by one for slowRest: those behind it were kept from
	// other slots until the watch took them back.
	slowTask = 100 * time.Millisecond
	slowRest = 10 * time.Second
)

// span is a part of the tasks of a delivery, in the order of starting.
type span struct{ from, to int }

// handful is what a slot has in hand: one task that is being handled, or a batch, those before it that are done,
// and those after it that were not begun. The slot begins them without a lock, and others take them
// back with b.mu held.
type handful struct {
	at      int // which of the slots it is
	d       *delivery
	first   int           // in the order of starting
	left    atomic.Uint64 // the span that was not begun: from in the upper half
	several bool          // it is in backlog.hands; guarded by backlog.mu

	// Of the last one, for the next call of next.
	starts int           // tasks, or batches, that were begun; 0: none was
	took   time.Duration // all of them
	ended  time.Time
}

// unbegun is what was not begun.
func (h *handful) unbegun() span {
	left := h.left.Load()
	return span{int(left >> 32), int(uint32(left))}
}

func (s span) packed() uint64 { return uint64(s.from)<<32 | uint64(uint32(s.to)) }

// another begins the next task, if there is one.
func (h *handful) another() bool {
	for {
		left := h.unbegun()
		if left.from >= left.to {
			return false
		}
		if h.left.CompareAndSwap(left.packed(), span{left.from + 1, left.to}.packed()) {
			return true
		}
	}
}

// begun is where those end that were begun: the one before it is at work, or was the last.
func (h *handful) begun() int { return h.unbegun().from }

// drop takes what was not begun out of the hand.
func (h *handful) drop() span {
	for {
		left := h.unbegun()
		if h.left.CompareAndSwap(left.packed(), span{left.from, left.from}.packed()) {
			return left
		}
	}
}

// share is how many tasks a slot should take now: no more than half of what each would get if
// all took the same.
func (b *backlog) share(now time.Time) int {
	if b.paced || b.took == 0 || b.took > handfulTask.Seconds() || now.Sub(b.slow) < slowRest {
		return 1
	}
	return min(max(b.readyTasks/(2*b.width), 1), mostInHand)
}

// give puts the first tasks that wait into a slot's hand, with the lock held: one, or several if
// they are quick, or all of an envelope in a batch.
func (b *backlog) give(h *handful, now time.Time) {
	d := b.ready[0]
	taken := span{d.next, d.starts()}
	if len(d.back) > 0 {
		taken = d.back[0]
	}
	begun := taken.to
	if !b.batch {
		taken.to = min(taken.to, taken.from+b.share(now))
		begun = taken.from + 1
	}
	switch {
	case len(d.back) == 0:
		d.next = taken.to
	case taken.to < d.back[0].to:
		d.back[0].from = taken.to
	default:
		d.back = slices.Delete(d.back, 0, 1)
	}
	h.d, h.first = d, taken.from
	h.left.Store(span{begun, taken.to}.packed())
	if begun < taken.to {
		h.several = true
		b.hands = append(b.hands, h)
	}
	n := taken.to - taken.from
	d.unstarted -= n
	if d.unstarted == 0 {
		d.place = nowhere
		b.ready[0] = nil
		b.ready = b.ready[1:]
	}
	b.readyTasks -= n
	b.unstarted -= n
	b.started += n
}

// regain takes back what a slot has not begun, to be started before what of its message was never given.
func (b *backlog) regain(h *handful) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takeBack(h)
}

// regainAll takes everything back that was not begun.
func (b *backlog) regainAll() {
	for len(b.hands) > 0 {
		b.takeBack(b.hands[len(b.hands)-1])
	}
}

// regainOf takes back what was not begun of one delivery.
func (b *backlog) regainOf(d *delivery) {
	for i := len(b.hands) - 1; i >= 0; i-- {
		if h := b.hands[i]; h.d == d {
			b.takeBack(h)
		}
	}
}

// takeBack is regain with the lock held.
func (b *backlog) takeBack(h *handful) {
	if !h.several {
		return
	}
	h.several = false
	i := slices.Index(b.hands, h)
	b.hands[i] = b.hands[len(b.hands)-1]
	b.hands = b.hands[:len(b.hands)-1]
	rest := h.drop()
	n := rest.to - rest.from
	if n <= 0 {
		return
	}
	d := h.d
	d.back = append(d.back, rest)
	slices.SortFunc(d.back, func(a, b span) int { return a.from - b.from })
	if d.place == nowhere { // else there is something to start, and nobody waits for more
		d.place = inReady
		b.ready = slices.Insert(b.ready, 0, d)
		b.some.Broadcast()
	}
	d.unstarted += n
	b.readyTasks += n
	b.unstarted += n
	b.started -= n // until they are given again
}
