package processor

import (
	"context"
	"errors"
	"sync"
)

// ErrSegmentGone ends the handlers of a segment that this process does not hold any more.
var ErrSegmentGone = errors.New("pump: the task's segment went to another processor; the task will be delivered again")

// owned lists what is in hand of each segment that this process holds: from the
// moment a message is known to be its own until it is settled, in mode once therefore
// recorded before. A segment is handed
// over when nothing of it is in hand.
type owned struct {
	mu       sync.Mutex // guards the map and the lists, and delivery.listed
	segments map[uint32][]*delivery
}

func newOwned() *owned { return &owned{segments: map[uint32][]*delivery{}} }

// add lists a delivery.
func (o *owned) add(d *delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := append(o.segments[d.header.Segment], d)
	o.segments[d.header.Segment] = list
	d.listed = len(list)
}

// remove takes a delivery off its segment's list and reports whether it was the last.
func (o *owned) remove(d *delivery) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.listed == 0 {
		return false
	}
	list := o.segments[d.header.Segment]
	end := len(list) - 1
	list[d.listed-1], list[end].listed = list[end], d.listed
	list[end], d.listed = nil, 0
	o.segments[d.header.Segment] = list[:end]
	return end == 0
}

// has reports whether anything of a segment is in hand.
func (o *owned) has(segment uint32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.segments[segment]) > 0
}

// of gives what is in hand of some segments.
func (o *owned) of(segments []uint32) (ds []*delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range segments {
		ds = append(ds, o.segments[s]...)
	}
	return ds
}

// own makes a delivery this process's if it holds the segment, and reports
// whether it does.
func (r *processing) own(d *delivery) bool {
	if r.workload.Shared {
		return true
	}
	if _, ok := r.hold(d.header.Segment); !ok {
		return false
	}
	// Listed first and asked again then: a hand-over that begins in between either
	// finds the delivery in the list or is seen here.
	r.owned.add(d)
	h, ok := r.hold(d.header.Segment)
	if !ok {
		r.disown(d)
		return false
	}
	d.epoch = h.Epoch
	// Handlers end with the hold, as they do with the message's lease.
	d.unhold = context.AfterFunc(h.Context(), func() { d.end(ErrSegmentGone) })
	return true
}

// disown ends that a delivery is in hand of its segment. The last one of a segment
// that is being handed over lets it go. (Off the list before it is asked whether that
// is so: a hand-over that begins in between finds the list empty.)
func (r *processing) disown(d *delivery) {
	if d.unhold != nil {
		d.unhold()
	}
	if !r.owned.remove(d) {
		return
	}
	m := r.member.Load()
	if _, ok := m.Hold(d.header.Segment); !ok {
		m.Settle(d.header.Segment)
	}
}

// handOver begins to give up segments, or notes that they are lost: nothing of
// them is started any more, and what was not started goes back without an attempt.
func (r *processing) handOver(segments []uint32) {
	r.follow() // or it would get again what it puts back
	for _, d := range r.owned.of(segments) {
		r.withdraw(d)
	}
	if r.recorder != nil {
		r.recorder.hurry(segments)
	}
}
