package processor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/record"
)

// ErrSegmentGone ends the handlers of a segment that this process does not hold any more.
var ErrSegmentGone = errors.New(
	"the task's segment went to another processor; the task will be delivered again",
)

// segments are those that this process may take tasks of.
type segments struct {
	*base.Env
	*owned
	recorder *record.Recorder // nil: nothing is recorded
}

// owned lists what is in hand of each held segment: a message from when it is known to be this
// process's own until it is settled, and so, in mode once, recorded. A segment is handed over when
// none of its messages is in hand.
type owned struct {
	mu       sync.Mutex // guards the map and the lists, and Delivery.Listed
	segments map[uint32][]*message.Delivery
}

// add lists a delivery.
func (o *owned) add(d *message.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := append(o.segments[d.Header.Segment], d)
	o.segments[d.Header.Segment] = list
	d.Listed = len(list)
}

// remove takes a delivery off its segment's list and reports whether it was the last.
func (o *owned) remove(d *message.Delivery) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.Listed == 0 {
		return false
	}
	list := o.segments[d.Header.Segment]
	end := len(list) - 1
	list[d.Listed-1], list[end].Listed = list[end], d.Listed
	list[end], d.Listed = nil, 0
	o.segments[d.Header.Segment] = list[:end]
	return end == 0
}

// has reports whether anything of a segment is in hand.
func (o *owned) has(segment uint32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.segments[segment]) > 0
}

// of gives what is in hand of some segments.
func (o *owned) of(segments []uint32) (ds []*message.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range segments {
		ds = append(ds, o.segments[s]...)
	}
	return ds
}

// own makes a delivery this process's if it holds the segment, and reports
// whether it does.
func (o *segments) own(d *message.Delivery) bool {
	if o.Workload.Shared {
		return true
	}
	if _, ok := o.hold(d.Header.Segment); !ok {
		return false
	}
	// The delivery is listed first, and the hold asked again then: a hand-over that begins in between
	// finds the delivery in the list or is seen here.
	o.add(d)
	h, ok := o.hold(d.Header.Segment)
	if !ok {
		o.disown(d)
		return false
	}
	d.Epoch = h.Epoch
	// Handlers end with the hold, as they do with the message's lease.
	d.Unhold = context.AfterFunc(h.Context(), func() { d.End(ErrSegmentGone) })
	return true
}

// disown takes a delivery off its segment's list. The last delivery of a segment that is being
// handed over lets the segment go. (It is off the list before that is asked: a hand-over that
// begins in between finds the list empty.)
func (o *segments) disown(d *message.Delivery) {
	if d.Unhold != nil {
		d.Unhold()
	}
	if !o.remove(d) {
		return
	}
	m := o.Member.Load()
	if _, ok := m.Hold(d.Header.Segment); !ok {
		m.Settle(d.Header.Segment)
	}
}

// hold gives the hold of a segment if this process may take its tasks: the process holds the
// segment, and if there is a ledger, it is the ledger's writer (P3.2). From then on this processor
// knows all that a former owner recorded, and the ledger refuses what the former owner finishes
// later.
func (o *segments) hold(segment uint32) (cluster.Hold, bool) {
	h, ok := o.Member.Load().Hold(segment)
	if ok && o.recorder != nil && !o.recorder.Ready(h) {
		return cluster.Hold{}, false
	}
	return h, ok
}

// notMine says what becomes of a message whose segment this process does not hold: it is put into
// its home queue if that is this process's task (P6.4), else put back for its owner (P7). Neither
// is unpacked, and neither counts as an attempt.
func (o *segments) notMine(d *message.Delivery) *message.Disposition {
	d.Started.Store(true)
	if o.Stopping.Load() { // it will not be here again, so others may have it now
		return &message.Disposition{PassOn: true}
	}
	if o.mine(d.Header.Segment) { // and its ledger will not be so soon
		return notNow(o.Jitter, d, lobbyStuck)
	}
	s := o.Assignment.Load()
	if home := s.Stray(d.Queue, d.Header.Segment); home != nil {
		return &message.Disposition{Forward: home}
	}
	return &message.Disposition{
		PassOn: true, Delay: s.PassOn(o.Jitter, d.Queue, d.Header.Segment, d.ID, d.Dequeued,
			o.Queues.Values().Lease),
	}
}

// waits reports whether messages of a segment that is not to be worked on here wait in hand:
// it is this process's, or is about to be.
func (o *segments) waits(segment uint32) bool {
	if o.Stopping.Load() || o.recorder != nil && o.recorder.IsStuck(segment) {
		return false
	}
	return o.mine(segment)
}

// mine reports whether a segment is this process's, ready to be worked on or not, or will be
// next: it is planned for this process, and no live member has it.
func (o *segments) mine(segment uint32) bool {
	m := o.Member.Load()
	if m.Keeps(segment) {
		return true
	}
	v := m.View()
	if v == nil || v.Workload.Shared {
		return false
	}
	owner, live := v.OwnerOf(segment)
	if live {
		return owner.Instance == o.Cfg.Instance
	}
	rank := v.Rank(o.Cfg.Instance)
	return rank >= 0 && v.Plan()[segment] == rank
}

// unready marks, by shard, the home queues of segments whose messages would wait in the lobby.
func (o *segments) unready(s *base.Assignment) []bool {
	marks := make([]bool, len(s.Of.Shards))
	if s.View.Workload.Shared {
		return marks
	}
	for n := range uint32(s.Of.Segments) {
		if home := s.Of.Home(n); !marks[home] {
			_, ready := o.hold(n)
			marks[home] = !ready && o.waits(n)
		}
	}
	return marks
}

// notNow puts a message of this process's own back for a while, without suspecting it.
func notNow(j waits.Jitter, d *message.Delivery, delay time.Duration) *message.Disposition {
	return &message.Disposition{
		Ours: true, Delay: j.Around(delay, "not now", d.ID, uint64(max(d.Dequeued, 1))),
	}
}
