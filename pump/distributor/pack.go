package distributor

import (
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/source"
)

// defaultMaxOpen bounds the memory of all open envelopes together, in bytes; over it
// the oldest is sent half full. It is 24 KiB for each of 4,096 segments, and 6 KiB for
// each of 16,384, where a full envelope holds about 60 KiB. Half of it packs less,
// twice of it does not fit into 512 MiB with what the garbage collector adds.
const defaultMaxOpen = 96 << 20

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
	emit   func(*message) error

	open        []*openEnvelope // by segment / stride
	stride      int
	first, last *openEnvelope // open ones, the oldest first
	held        int
	interval    int            // the tasks being added were read in (P2.1)
	receipt     source.Receipt // of the task being added; nil: nobody waits for it
	spare       *openEnvelope
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
	c := &message{segment: e.segment, first: e.firstN, tasks: e.builder.Len(), interval: e.interval, receipts: e.receipts}
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
