package azsim

import (
	"container/heap"
	"math"
)

// never is the expiry of a message that has none.
const never = math.MaxInt64

// message is one message of a queue. Times are Unix nanoseconds of the server's clock. The queue's
// mutex guards everything except text, whose bytes never change (an update puts another slice).
type message struct {
	id       guid
	text     string // decoded, as the client meant it; not a part of the body, which is longer
	plain    bool   // text needs no escaping and no checking: rendering is a copy
	inserted int64
	expires  int64
	visible  int64 // from when it may be taken
	seq      uint64
	receipt  popReceipt
	dequeued int64

	// Where the message is: in the fifo at absolute position place if
	// leaseAt < 0, else in the lease heap at leaseAt.
	place   uint64
	leaseAt int
	ttlAt   int // in the expiry heap; < 0: never expires
}

// before is the order in which messages are handed out: by the time at which they became visible,
// then by insertion. So new messages are strictly first in, first out, and a released message goes
// behind those that were put before its release, on Azure as on Azurite (AZURE.md Q66, window 37).
func (m *message) before(o *message) bool {
	return m.visible < o.visible || m.visible == o.visible && m.seq < o.seq
}

// messageSet holds the messages of one queue. The obvious structure, one heap ordered by
// visibility, costs log n cache misses for each message that is taken from a deep queue. Here
// messages that were never taken wait in an array in the order of their arrival, which is the order
// of the method before, and only those that are leased or delayed are in a heap: taking is a step
// in the array, and the heap is as small as what is in flight. With millions of messages, put is
// O(1), take O(log leased), update and delete O(log leased), and the expiry heap adds O(log n) for
// messages that have a time to live.
type messageSet struct {
	byID  map[guid]*message
	fifo  fifo
	lease messageHeap // by the method before
	ttl   messageHeap // by expiry
	seq   uint64      // of the last message put
}

func newMessageSet() messageSet {
	return messageSet{
		byID:  make(map[guid]*message),
		lease: messageHeap{before: (*message).before, at: func(m *message) *int { return &m.leaseAt }},
		ttl: messageHeap{
			before: func(a, b *message) bool { return a.expires < b.expires },
			at:     func(m *message) *int { return &m.ttlAt },
		},
	}
}

func (s *messageSet) len() int { return len(s.byID) }

// add puts a new message and sets its seq.
func (s *messageSet) add(m *message, now int64) {
	s.seq++
	m.seq = s.seq
	s.byID[m.id] = m
	m.ttlAt = -1
	if m.expires != never {
		heap.Push(&s.ttl, m)
	}
	s.insert(m, now)
}

// insert files m under m.visible. The fifo takes it only if that keeps the order: not if the
// message is delayed or the server's clock was set back.
func (s *messageSet) insert(m *message, now int64) {
	if m.visible <= now && m.dequeued == 0 && s.fifo.sortsLast(m) {
		m.leaseAt = -1
		s.fifo.push(m)
		return
	}
	heap.Push(&s.lease, m)
}

// lift takes m out of the order of visibility, to be inserted again or dropped.
func (s *messageSet) lift(m *message) {
	if m.leaseAt >= 0 {
		heap.Remove(&s.lease, m.leaseAt)
		return
	}
	s.fifo.remove(m)
}

// show moves m to another time of visibility.
func (s *messageSet) show(m *message, visible, now int64) {
	s.lift(m)
	m.visible = visible
	s.insert(m, now)
}

// remove deletes m.
func (s *messageSet) remove(m *message) {
	s.lift(m)
	if m.ttlAt >= 0 {
		heap.Remove(&s.ttl, m.ttlAt)
	}
	delete(s.byID, m.id)
}

// expire deletes messages whose time to live is over. Every operation calls it first, instead of a
// timer: no goroutine keeps a synctest bubble busy, and an idle queue costs nothing.
func (s *messageSet) expire(now int64) {
	for len(s.ttl.list) > 0 && s.ttl.list[0].expires <= now {
		s.remove(s.ttl.list[0])
	}
}

// first is the message that is handed out next; nil if none is visible.
func (s *messageSet) first(now int64) *message {
	m := s.fifo.first()
	if m != nil && m.visible > now { // the clock was set back
		m = nil
	}
	if len(s.lease.list) > 0 {
		if l := s.lease.list[0]; l.visible <= now && (m == nil || l.before(m)) {
			return l
		}
	}
	return m
}

// visible lists up to n messages that may be taken now, in order, without touching them.
func (s *messageSet) visible(now int64, n int) []*message {
	out := make([]*message, 0, min(n, len(s.byID)))
	// The smallest elements of a heap are a connected part of its tree, from the root: a frontier of
	// candidates, smallest first, finds them in O(n log n), independent of the size of the heap.
	frontier := frontier{lease: s.lease.list}
	frontier.reach(0)
	place := s.fifo.head
	for len(out) < n {
		f := s.fifo.at(&place)
		if f != nil && f.visible > now {
			f = nil
		}
		l := frontier.first()
		if l != nil && l.visible > now {
			l = nil
		}
		switch {
		case l == nil && f == nil:
			return out
		case f == nil || l != nil && l.before(f):
			out = append(out, l)
			i := heap.Pop(&frontier).(int)
			frontier.reach(2*i + 1)
			frontier.reach(2*i + 2)
		default:
			out = append(out, f)
			place++
		}
	}
	return out
}

// frontier is a heap of positions in the lease heap.
type frontier struct {
	lease []*message
	pos   []int
}

func (f *frontier) reach(i int) {
	if i < len(f.lease) {
		heap.Push(f, i)
	}
}

func (f *frontier) first() *message {
	if len(f.pos) == 0 {
		return nil
	}
	return f.lease[f.pos[0]]
}

func (f *frontier) Len() int           { return len(f.pos) }
func (f *frontier) Less(i, j int) bool { return f.lease[f.pos[i]].before(f.lease[f.pos[j]]) }
func (f *frontier) Swap(i, j int)      { f.pos[i], f.pos[j] = f.pos[j], f.pos[i] }
func (f *frontier) Push(x any)         { f.pos = append(f.pos, x.(int)) }
func (f *frontier) Pop() any {
	last := len(f.pos) - 1
	i := f.pos[last]
	f.pos = f.pos[:last]
	return i
}

// clear deletes everything.
func (s *messageSet) clear() {
	seq := s.seq
	*s = newMessageSet()
	s.seq = seq
}

// fifo is a queue of messages in an array. Removing from the middle leaves a
// hole; the front is given back when it is more than half of the array.
type fifo struct {
	items []*message // nil: a hole
	head  int        // items before it are gone
	base  uint64     // absolute position of items[0]
}

func (f *fifo) sortsLast(m *message) bool {
	for i := len(f.items) - 1; i >= f.head; i-- {
		if last := f.items[i]; last != nil {
			return last.before(m)
		}
		f.items = f.items[:i] // trailing holes are of no use
	}
	return true
}

func (f *fifo) push(m *message) {
	m.place = f.base + uint64(len(f.items))
	f.items = append(f.items, m)
}

func (f *fifo) remove(m *message) {
	f.items[m.place-f.base] = nil
	for f.head < len(f.items) && f.items[f.head] == nil {
		f.head++
	}
	if f.head > 1024 && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items = f.items[:n]
		f.base += uint64(f.head)
		f.head = 0
	}
}

func (f *fifo) first() *message {
	if f.head < len(f.items) {
		return f.items[f.head] // remove keeps the head off holes
	}
	return nil
}

// at returns the first message at or after index *place, which it moves there; nil at the end.
func (f *fifo) at(place *int) *message {
	for ; *place < len(f.items); *place++ {
		if m := f.items[*place]; m != nil {
			return m
		}
	}
	return nil
}

// messageHeap has the message on top that comes before all others. Each message knows its place; of
// one that is not in the heap it is -1.
type messageHeap struct {
	list   []*message
	before func(a, b *message) bool
	at     func(*message) *int // where the message keeps its place
}

func (h *messageHeap) Len() int           { return len(h.list) }
func (h *messageHeap) Less(i, j int) bool { return h.before(h.list[i], h.list[j]) }
func (h *messageHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.at(h.list[i]), *h.at(h.list[j]) = i, j
}

func (h *messageHeap) Push(x any) {
	m := x.(*message)
	*h.at(m) = len(h.list)
	h.list = append(h.list, m)
}

func (h *messageHeap) Pop() any {
	last := len(h.list) - 1
	m := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	*h.at(m) = -1
	return m
}
