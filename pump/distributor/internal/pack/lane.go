package pack

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/source"
)

// Packing is compression, which is most of a distributor's work, so it is done
// in lanes: each packs a part of the segments in a goroutine of its own. A
// segment's tasks stay in the order of the source, because the reader has
// numbered them before. More lanes than MaxLanes would wait for the one reader.
const (
	MaxLanes = 8
	// What the reader collects for a lane before it waits for the lane to take it: enough that neither
	// side waits for the other in every turn and that a segment has several tasks in it (see grouped);
	// little beside DefaultMaxOpen.
	laneBytes = 256 << 10
	laneTasks = 2048
)

// Lane is a packer with a queue in front of it.
type Lane struct {
	packer  *Packer
	SealAge time.Duration // 0: none
	Turn    sim.Step
	Name    string            // for its turn
	Passed  func(barrier int) // the lane has packed all tasks from before that barrier
	force   atomic.Int64      // seal what holds tasks from before this barrier

	wake  chan struct{} // capacity 1: there is something to do
	space chan struct{} // capacity 1: the queue was emptied

	filling laneQueue // the reader's own, until it hands it over

	mu      sync.Mutex // guards what follows; never held while waiting or packing
	waiting laneQueue
	closed  bool
}

// laneQueue holds copied tasks and, in their order, the barriers between them.
type laneQueue struct {
	bytes []byte
	items []laneItem
}

func (q *laneQueue) full() bool { return len(q.bytes) >= laneBytes || len(q.items) >= laneTasks }

// reset empties the queue for the next tasks.
func (q *laneQueue) reset() {
	q.bytes, q.items = q.bytes[:0], q.items[:0]
	if cap(q.bytes) > 4*laneBytes { // after a very long line
		q.bytes = nil
	}
}

// laneItem is a task, its key, id, body and trace context one after another in bytes, or a barrier.
type laneItem struct {
	n                                 uint64 // of the task, or the barrier's number
	receipt                           source.Receipt
	segment, at, key, id, body, trace uint32
}

// barrierItem is the segment of a barrier: no task has it.
const barrierItem = math.MaxUint32

// NewLane makes the lane of a packer. Run packs what the reader offers.
func NewLane(p *Packer) *Lane {
	return &Lane{packer: p, wake: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// append copies a task into what is handed over next, waiting for room. Only the reader calls
// append, mark, flush and close.
func (l *Lane) append(ctx context.Context, segment uint32, n uint64, r *source.Record) error {
	q := &l.filling
	if q.full() {
		if err := l.swapIn(ctx); err != nil {
			return err
		}
	}
	at := len(q.bytes)
	q.bytes = append(append(append(append(q.bytes, r.Key...), r.ID...), r.Body...), r.Trace...)
	q.items = append(q.items, laneItem{
		n, r.Receipt, segment, uint32(at), uint32(len(r.Key)), uint32(len(r.ID)), uint32(len(r.Body)),
		uint32(len(r.Trace)),
	})
	return nil
}

// mark puts a barrier behind what has been offered.
func (l *Lane) mark(barrier int) {
	l.filling.items = append(l.filling.items, laneItem{n: uint64(barrier), segment: barrierItem})
}

// swapIn hands over what was collected once the lane has taken what was handed over before.
func (l *Lane) swapIn(ctx context.Context) error {
	l.mu.Lock()
	for len(l.waiting.items) > 0 {
		l.mu.Unlock()
		select {
		case <-l.space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		l.mu.Lock()
	}
	l.filling, l.waiting = l.waiting, l.filling
	l.mu.Unlock()
	waits.Signal(l.wake)
	return nil
}

// flush hands over what was collected: it must not stay behind while the reader waits for something
// else.
func (l *Lane) flush(ctx context.Context) error {
	if l.tryFlush() {
		return nil
	}
	return l.swapIn(ctx)
}

// tryFlush hands over what was collected, behind what waits already, if there is room.
func (l *Lane) tryFlush() bool {
	if len(l.filling.items) == 0 {
		return true
	}
	l.mu.Lock()
	w, f := &l.waiting, &l.filling
	room := len(w.items) == 0 || len(w.bytes)+len(f.bytes) <= laneBytes &&
		len(w.items)+len(f.items) <= laneTasks
	if room {
		l.appendFilling()
	}
	l.mu.Unlock()
	if room {
		waits.Signal(l.wake)
	}
	return room
}

// appendFilling puts what was collected behind what waits. The lane's lock is held.
func (l *Lane) appendFilling() {
	if len(l.waiting.items) == 0 {
		l.filling, l.waiting = l.waiting, l.filling
		return
	}
	base := uint32(len(l.waiting.bytes))
	l.waiting.bytes = append(l.waiting.bytes, l.filling.bytes...)
	for _, i := range l.filling.items {
		i.at += base
		l.waiting.items = append(l.waiting.items, i)
	}
	l.filling.reset()
}

// Close says that nothing more will be offered.
func (l *Lane) Close() {
	l.mu.Lock()
	l.appendFilling()
	l.closed = true
	l.mu.Unlock()
	waits.Signal(l.wake)
}

// forceBefore makes the lane seal what holds tasks from before a barrier.
func (l *Lane) forceBefore(barrier int) {
	l.force.Store(int64(barrier)) // only the checkpointer calls it, and barriers grow
	waits.Signal(l.wake)
}

// Run packs until the lane is closed and empty, then seals everything.
func (l *Lane) Run(ctx context.Context) error {
	var q laneQueue
	var age *time.Timer
	var due <-chan time.Time
	if l.SealAge > 0 {
		age = time.NewTimer(l.SealAge)
		defer age.Stop()
		due = age.C
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.Turn.Wait("pack", l.Name)
		select { // what has woken it until now is taken now
		case <-l.wake:
		default:
		}
		closed := l.swap(&q)
		if err := l.pack(&q); err != nil {
			return err
		}
		if closed {
			if err := l.packer.sealBefore(math.MaxInt); err != nil {
				return err
			}
			l.Passed(l.packer.interval + 1)
			return nil
		}
		if err := l.packer.sealBefore(int(l.force.Load())); err != nil {
			return err
		}
		if age != nil {
			next, err := l.sealAged()
			if err != nil {
				return err
			}
			age.Reset(next)
			due = age.C
			if len(l.packer.order) == 0 { // nothing can come of age; a task wakes the lane
				due = nil
			}
		}
		select {
		case <-l.wake:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// busyAges is how many times longer a task may wait for its envelope to fill while more tasks wait
// than the lane packs: then the queues are the bottleneck, and small envelopes would make it
// narrower.
const busyAges = 10

// sealAged seals what has been open for SealAge, and says when to look again.
func (l *Lane) sealAged() (next time.Duration, err error) {
	for len(l.packer.order) > 0 {
		oldest := l.packer.order[0]
		limit := l.SealAge
		if l.busy() {
			limit *= busyAges
		}
		if open := time.Since(oldest.since); open < limit {
			return min(limit-open, l.SealAge), nil
		}
		if err := l.packer.seal(oldest); err != nil {
			return 0, err
		}
	}
	return l.SealAge, nil
}

func (l *Lane) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting.items) > 0
}

// swap exchanges the queue, which is then to be packed, for an empty one.
func (l *Lane) swap(q *laneQueue) (closed bool) {
	q.reset()
	l.mu.Lock()
	*q, l.waiting = l.waiting, *q
	closed = l.closed
	l.mu.Unlock()
	waits.Signal(l.space)
	return closed
}

// pack packs what lies between the barriers, and passes those.
func (l *Lane) pack(q *laneQueue) error {
	now := time.Now()
	for at := range q.items {
		i := &q.items[at]
		if i.segment == barrierItem {
			l.packer.interval = int(i.n)
			l.Passed(int(i.n))
			continue
		}
		record := q.bytes[i.at:]
		id := i.key + i.id
		t := codec.Task{N: i.n, Key: record[:i.key], ID: record[i.key:id], Body: record[id : id+i.body]}
		if i.trace > 0 {
			t.Trace = record[id+i.body : id+i.body+i.trace]
		}
		l.packer.receipt = i.receipt
		if err := l.packer.add(i.segment, t, now); err != nil {
			return err
		}
	}
	return nil
}
