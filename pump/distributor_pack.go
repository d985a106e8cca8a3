package pump

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
)

// packer fills the open envelopes of its segments, one each. It has no goroutine,
// and no clock but for the stamp of what it seals; a lane drives it.
type packer struct {
	head    codec.Header // what all envelopes share
	most    int          // tasks in an envelope, 0 for as many as fit
	maxHeld int          // bytes of all open envelopes together
	// mapVersion is the shard map's, of this moment.
	mapVersion func() uint64
	// limit is how many tasks a new envelope of a segment may hold besides, 0 for as many as fit.
	limit func(segment uint32) int
	// writes is the version of the format that everybody reads at this moment; nil: the newest.
	writes func() uint8
	// opened is called when an envelope gets its first task, before that can
	// be part of a barrier; emit when it is sealed.
	opened func(interval int)
	emit   func(*parcel) error

	open        []*openEnvelope // by segment / stride
	stride      int
	first, last *openEnvelope // open ones, the oldest first
	held        int
	interval    int      // the tasks being added were read in (P2.1)
	receipt     *receipt // of the task being added; nil: nobody waits for it
	spare       *openEnvelope
	touched     byte // so that warm is not for nothing
}

// openEnvelope is one envelope being filled.
type openEnvelope struct {
	// What adding a task touches comes first: there are many, and in no cache.
	builder  *codec.Builder
	held     int
	most     int // tasks in it; 0: as many as fit
	receipts []receiptPart

	segment    uint32
	firstN     uint64
	interval   int // in which its first task was read
	since      time.Time
	prev, next *openEnvelope // next also links spare ones
}

// add puts a task into its segment's envelope. If it does not fit, that envelope
// is sealed and another begun.
func (p *packer) add(segment uint32, task codec.Task, now time.Time) error {
	e := p.open[int(segment)/p.stride]
	for fresh := false; ; fresh = true {
		if e == nil {
			e = p.begin(segment, task.N, now)
		}
		fits, err := e.builder.Add(task)
		if err != nil {
			return fmt.Errorf("task %d of segment %d: %w", task.N, segment, err)
		}
		if fits {
			break
		}
		if fresh {
			return fmt.Errorf("task %d of segment %d does not fit an empty envelope", task.N, segment)
		}
		if err := p.seal(e); err != nil {
			return err
		}
		e = nil
	}
	if p.receipt != nil {
		e.receipts = addReceipt(e.receipts, p.receipt)
	}
	if held := e.builder.Held(); held != e.held {
		p.held += held - e.held
		e.held = held
	}
	if e.builder.Len() == e.most {
		return p.seal(e)
	}
	for p.held > p.maxHeld && p.first != nil {
		if err := p.seal(p.first); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) begin(segment uint32, n uint64, now time.Time) *openEnvelope {
	e := p.spare
	if e != nil {
		p.spare = e.next
	} else {
		e = &openEnvelope{builder: codec.NewBuilder(0)}
	}
	b := e.builder
	*e = openEnvelope{builder: b, segment: segment, firstN: n, interval: p.interval, most: p.most, since: now, prev: p.last}
	if p.limit != nil {
		if n := p.limit(segment); n > 0 && (e.most == 0 || n < e.most) {
			e.most = n
		}
	}
	head := p.head
	head.Segment = segment
	if p.mapVersion != nil {
		head.MapVersion = p.mapVersion()
	}
	if p.writes != nil {
		head.Version = p.writes()
	}
	b.Reset(head)
	if p.last != nil {
		p.last.next = e
	} else {
		p.first = e
	}
	p.last = e
	p.open[int(segment)/p.stride] = e
	p.opened(p.interval)
	return e
}

func (p *packer) seal(e *openEnvelope) error {
	buffer := texts.Get().(*[]byte)
	c := &parcel{segment: e.segment, first: e.firstN, tasks: e.builder.Len(), interval: e.interval, receipts: e.receipts}
	e.builder.Stamp(time.Now())
	var err error
	if c.text, _, err = e.builder.Seal((*buffer)[:0]); err != nil {
		return fmt.Errorf("segment %d: %w", e.segment, err)
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		p.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		p.last = e.prev
	}
	p.held -= e.held
	p.open[int(e.segment)/p.stride] = nil
	e.prev, e.next, p.spare = nil, p.spare, e
	return p.emit(c)
}

// sealBefore seals what holds a task from before the barrier of that number.
// Envelopes are listed as they were opened, so those come first.
func (p *packer) sealBefore(barrier int) error {
	for p.first != nil && p.first.interval < barrier {
		if err := p.seal(p.first); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) sealAll() error {
	for p.first != nil {
		if err := p.seal(p.first); err != nil {
			return err
		}
	}
	return nil
}

// Packing is compression, which is most of a distributor's work, so it is done
// in lanes: each packs a part of the segments in a goroutine of its own. A
// segment's tasks stay in the order of the source, because the reader has
// numbered them before. More lanes than maxLanes would wait for the one reader.
const (
	maxLanes = 8
	// What waits in front of a lane: enough that neither side waits for the
	// other's every turn, little beside MaxOpen.
	laneBytes = 256 << 10
	laneTasks = 2048
)

// lane is a packer with a queue in front of it.
type lane struct {
	packer  *packer
	sealAge time.Duration // 0: none
	turn    turn
	name    string            // for its turn
	passed  func(barrier int) // the lane has packed all tasks from before that barrier
	force   atomic.Int64      // seal what holds tasks from before this barrier

	wake  chan struct{} // capacity 1: there is something to do
	space chan struct{} // capacity 1: the queue was emptied

	mu      sync.Mutex // guards what follows; never held while waiting or packing
	waiting laneQueue
	closed  bool
}

// laneQueue holds copied tasks and, in their order, the barriers between them.
type laneQueue struct {
	bytes []byte
	items []laneItem
}

// laneItem is a task, its key, id and body one after another in bytes, or a barrier.
type laneItem struct {
	n                      uint64 // of the task, or the barrier's number
	receipt                *receipt
	segment, key, id, body uint32
}

// barrierItem is the segment of a barrier: no task has it.
const barrierItem = math.MaxUint32

func newLane(p *packer) *lane {
	return &lane{packer: p, wake: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// offer copies a task into the queue, waiting for room.
func (l *lane) offer(ctx context.Context, segment uint32, n uint64, r *Record) error {
	l.mu.Lock()
	for len(l.waiting.bytes) >= laneBytes || len(l.waiting.items) >= laneTasks {
		l.mu.Unlock()
		select {
		case <-l.space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		l.mu.Lock()
	}
	q := &l.waiting
	asleep := len(q.items) == 0 // or about to look: the lane takes all that is there
	q.bytes = append(append(append(q.bytes, r.Key...), r.ID...), r.Body...)
	q.items = append(q.items, laneItem{n, r.receipt, segment, uint32(len(r.Key)), uint32(len(r.ID)), uint32(len(r.Body))})
	l.mu.Unlock()
	if asleep {
		signal(l.wake)
	}
	return nil
}

// mark puts a barrier behind what has been offered.
func (l *lane) mark(barrier int) {
	l.mu.Lock()
	l.waiting.items = append(l.waiting.items, laneItem{n: uint64(barrier), segment: barrierItem})
	l.mu.Unlock()
	signal(l.wake)
}

// close says that nothing more will be offered.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	signal(l.wake)
}

// forceBefore makes the lane seal what holds tasks from before a barrier.
func (l *lane) forceBefore(barrier int) {
	l.force.Store(int64(barrier)) // only the checkpointer calls it, and barriers grow
	signal(l.wake)
}

// run packs until the lane is closed and empty, then seals everything.
func (l *lane) run(ctx context.Context) error {
	var q laneQueue
	var age *time.Timer
	var due <-chan time.Time
	if l.sealAge > 0 {
		age = time.NewTimer(l.sealAge)
		defer age.Stop()
		due = age.C
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.turn.wait("pack", l.name)
		select { // what has woken it until now is taken now
		case <-l.wake:
		default:
		}
		closed := l.swap(&q)
		if err := l.pack(&q); err != nil {
			return err
		}
		if closed {
			if err := l.packer.sealAll(); err != nil {
				return err
			}
			l.passed(l.packer.interval + 1)
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
			if l.packer.first == nil { // nothing can come of age; a task wakes the lane
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

// busyAges is how many times longer a task may wait for its envelope to fill
// while more tasks are waiting than the lane packs: then the queues are the
// bottleneck, and sending them small envelopes because large ones take long
// would make it narrower still.
const busyAges = 10

// sealAged seals what has been open for sealAge, and says when to look again.
func (l *lane) sealAged() (next time.Duration, err error) {
	for l.packer.first != nil {
		limit := l.sealAge
		if l.busy() {
			limit *= busyAges
		}
		if open := time.Since(l.packer.first.since); open < limit {
			return min(limit-open, l.sealAge), nil
		}
		if err := l.packer.seal(l.packer.first); err != nil {
			return 0, err
		}
	}
	return l.sealAge, nil
}

func (l *lane) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting.items) > 0
}

// swap exchanges the queue, which is then to be packed, for an empty one.
func (l *lane) swap(q *laneQueue) (closed bool) {
	q.bytes, q.items = q.bytes[:0], q.items[:0]
	if cap(q.bytes) > 4*laneBytes { // after a very long line
		q.bytes = nil
	}
	l.mu.Lock()
	*q, l.waiting = l.waiting, *q
	closed = l.closed
	l.mu.Unlock()
	signal(l.space)
	return closed
}

func (l *lane) pack(q *laneQueue) error {
	now := time.Now()
	rest := q.bytes
	for at, i := range q.items {
		if at%warmed == 0 {
			l.packer.warm(q.items[at:min(at+warmed, len(q.items))])
		}
		if i.segment == barrierItem {
			l.packer.interval = int(i.n)
			l.passed(int(i.n))
			continue
		}
		id := i.key + i.id
		t := codec.Task{N: i.n, Key: rest[:i.key], ID: rest[i.key:id], Body: rest[id : id+i.body]}
		rest = rest[id+i.body:]
		l.packer.receipt = i.receipt
		if err := l.packer.add(i.segment, t, now); err != nil {
			return err
		}
	}
	return nil
}

// warmed is how many tasks' envelopes are fetched into the processor's caches together.
const warmed = 16

// warm touches the envelopes that tasks are about to be added to. Each is in other memory than the
// last, where nothing has been for a thousand tasks, and to wait for that once for all of them
// takes a third of the time of waiting for one after the other.
func (p *packer) warm(items []laneItem) {
	for _, i := range items {
		if i.segment == barrierItem {
			continue
		}
		if e := p.open[int(i.segment)/p.stride]; e != nil {
			p.touched += e.builder.Warm()
		}
	}
}
