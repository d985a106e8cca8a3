package pack

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/source"
)

// DefaultMaxOpen bounds the memory of all open envelopes together, in bytes; over it the oldest is
// sent half full. It is 24 KiB for each of 4,096 segments, and 6 KiB for each of 16,384; a full
// envelope holds about 60 KiB. Half of the bound packs less, twice the bound does not fit into 512
// MiB with the garbage collector's share.
const DefaultMaxOpen = 96 << 20

// Packer fills the open envelopes of its segments, one each. It has no goroutine, and no clock but
// for the stamp of what it seals; a lane drives the packer.
type Packer struct {
	Head    codec.Header // what all envelopes share
	Most    int          // tasks in an envelope, 0 for as many as fit
	MaxHeld int          // bytes of all open envelopes together
	// MapVersion is the shard map's, of this moment.
	MapVersion func() uint64
	// Limit is how many tasks a new envelope of a segment may hold besides, 0 for as many as fit.
	Limit func(segment uint32) int
	// Writes is the version of the format that everybody reads at this moment.
	Writes func() uint8
	// Opened is called when an envelope gets its first task, before that can be part of a barrier;
	// Emit is called when the envelope is sealed.
	Opened func(interval int)
	Emit   func(*Message) error

	Open     []*OpenEnvelope // by segment / stride
	Stride   int
	order    []*OpenEnvelope // open ones, the oldest first
	held     int
	interval int            // the tasks being added were read in (P2.1)
	receipt  source.Receipt // of the task being added; nil: no caller waits for it
}

// OpenEnvelope is one envelope being filled.
type OpenEnvelope struct {
	// The fields that adding a task touches come first: there are many openings, in no cache.
	builder  *codec.Builder
	held     int
	most     int // tasks in it; 0: as many as fit
	receipts []receiptPart

	segment  uint32
	firstN   uint64
	next     uint64 // the least number that the next task may have
	interval int    // in which its first task was read
	since    time.Time
}

// add puts a task into its segment's envelope. If it does not fit, that envelope
// is sealed and another begun.
func (p *Packer) add(segment uint32, task codec.Task, now time.Time) error {
	e := p.Open[int(segment)/p.Stride]
	if e != nil && task.N < e.next { // an envelope has its numbers in order
		if err := p.seal(e); err != nil {
			return err
		}
		e = nil
	}
	for fresh := false; ; fresh = true {
		if e == nil {
			e = p.begin(segment, task.N, now)
		}
		fits, err := e.builder.Add(task)
		if err != nil && task.Trace != nil { // a task goes before its context
			task.Trace = nil
			fits, err = e.builder.Add(task)
		}
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
	e.next = task.N + 1
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
	for p.held > p.MaxHeld && len(p.order) > 0 {
		if err := p.seal(p.order[0]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Packer) begin(segment uint32, n uint64, now time.Time) *OpenEnvelope {
	e := &OpenEnvelope{
		builder: codec.NewBuilder(0), segment: segment, firstN: n, interval: p.interval, most: p.Most,
		since: now,
	}
	if n := p.Limit(segment); n > 0 && (e.most == 0 || n < e.most) {
		e.most = n
	}
	head := p.Head
	head.Segment = segment
	head.MapVersion, head.Version = p.MapVersion(), p.Writes()
	e.builder.Reset(head)
	p.order = append(p.order, e)
	p.Open[int(segment)/p.Stride] = e
	p.Opened(p.interval)
	return e
}

func (p *Packer) seal(e *OpenEnvelope) error {
	buffer := Texts.Get().(*[]byte)
	c := &Message{
		Segment: e.segment, First: e.firstN, Tasks: e.builder.Len(), Interval: e.interval,
		Receipts: e.receipts,
	}
	e.builder.Stamp(time.Now())
	var err error
	if c.Text, _, err = e.builder.Seal((*buffer)[:0]); err != nil {
		return fmt.Errorf("segment %d: %w", e.segment, err)
	}
	at := slices.Index(p.order, e)
	p.order = slices.Delete(p.order, at, at+1)
	p.held -= e.held
	p.Open[int(e.segment)/p.Stride] = nil
	return p.Emit(c)
}

// sealBefore seals the envelopes with a task from before the barrier of that number. Envelopes are
// listed as they were opened, so these come first.
func (p *Packer) sealBefore(barrier int) error {
	for len(p.order) > 0 && p.order[0].interval < barrier {
		if err := p.seal(p.order[0]); err != nil {
			return err
		}
	}
	return nil
}
