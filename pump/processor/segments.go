package processor

import (
	"context"
	"errors"
	"sync"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// ErrSegmentGone ends the handlers of a segment that this process does not hold any more.
var ErrSegmentGone = errors.New(
	"the task's segment went to another processor; the task will be delivered again",
)

// owned lists what is in hand of each held segment: a message from when it is known to be this
// process's own until it is settled, and so, in mode once, recorded. A segment is handed over when
// none of its messages is in hand.
type owned struct {
	mu       sync.Mutex // guards the map and the lists, and delivery.listed
	segments map[uint32][]*message.Delivery
}

func newOwned() *owned { return &owned{segments: map[uint32][]*message.Delivery{}} }

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
func (r *run) own(d *message.Delivery) bool {
	if r.Workload.Shared {
		return true
	}
	if _, ok := r.hold(d.Header.Segment); !ok {
		return false
	}
	// The delivery is listed first, and the hold asked again then: a hand-over that begins in between
	// finds the delivery in the list or is seen here.
	r.owned.add(d)
	h, ok := r.hold(d.Header.Segment)
	if !ok {
		r.disown(d)
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
func (r *run) disown(d *message.Delivery) {
	if d.Unhold != nil {
		d.Unhold()
	}
	if !r.owned.remove(d) {
		return
	}
	m := r.Member.Load()
	if _, ok := m.Hold(d.Header.Segment); !ok {
		m.Settle(d.Header.Segment)
	}
}

// handOver begins to give up segments, or notes that they are lost: their tasks are not started any
// more, and what was not started goes back without an attempt.
func (r *run) handOver(segments []uint32) {
	r.follow() // or it would get again what it puts back
	for _, d := range r.owned.of(segments) {
		r.withdraw(d)
	}
	if r.recorder != nil {
		r.recorder.Hurry(segments)
	}
}

// hold gives the hold of a segment if this process may take its tasks: the process holds the
// segment, and if there is a ledger, it is the ledger's writer (P3.2). From then on this processor
// knows all that a former owner recorded, and the ledger refuses what the former owner finishes
// later.
func (r *run) hold(segment uint32) (cluster.Hold, bool) {
	h, ok := r.Member.Load().Hold(segment)
	if ok && r.recorder != nil && !r.recorder.Ready(h) {
		return cluster.Hold{}, false
	}
	return h, ok
}

// notMine says what becomes of a message whose segment this process does not hold: it is put into
// its home queue if that is this process's task (P6.4), else put back for its owner (P7). Neither
// is unpacked, and neither counts as an attempt.
func (r *run) notMine(d *message.Delivery) *message.Disposition {
	d.Started.Store(true)
	if r.Stopping.Load() { // it will not be here again, so others may have it now
		return &message.Disposition{PassOn: true}
	}
	if r.mine(d.Header.Segment) { // and its ledger will not be so soon
		return r.notNow(d, lobbyStuck)
	}
	s := r.Assignment.Load()
	if home := s.Stray(d.Queue, d.Header.Segment); home != nil {
		return &message.Disposition{Forward: home}
	}
	return &message.Disposition{
		PassOn: true, Delay: s.PassOn(r.Jitter, d.Queue, d.Header.Segment, d.ID, d.Dequeued, r.lease()),
	}
}
