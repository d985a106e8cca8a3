package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
)

// How a Hold ends; the causes of its context.
var (
	// ErrSegmentLost: the segment belongs, or may belong, to another member (this member's trust
	// ended, or it was evicted).
	ErrSegmentLost = errors.New("the segment is not this instance's any more")
	// ErrHandedOver: the segment was given up in good order.
	ErrHandedOver = errors.New("the segment was handed over")

	errTakenOver  = fmt.Errorf("%w: its entry names another", ErrSegmentLost)
	errExpired    = fmt.Errorf("%w: no beat was acknowledged in time", ErrSegmentLost)
	errEvicted    = fmt.Errorf("%w: this member was evicted", ErrSegmentLost)
	errHandedOver = ErrHandedOver
)

// Hold is a segment that this member owns.
type Hold struct {
	Segment uint32
	// Epoch is the fencing number: greater than that of every owner before.
	Epoch uint64

	ctx context.Context
}

// Context ends when the segment is lost or given up, and (unless [Options] BestEffort) at the
// latest when trust does (P5.2). Its cause is an [ErrSegmentLost] or [ErrHandedOver]. The context
// of a Hold without a Presence, as of a segment in a shared workload, never ends.
func (h Hold) Context() context.Context { return cmp.Or(h.ctx, context.Background()) }

// holding is a segment whose claim was acknowledged while trust lasted.
type holding struct {
	epoch uint64
	// void: trust ended since. It is to be claimed again with another epoch and
	// is not trusted; its context lives on as a best effort (P5.6).
	void     bool
	draining time.Time // since when it is being handed over; zero: it is not
	ctx      context.Context
	end      context.CancelCauseFunc
}

// Hold gives the segment if this member holds it and is not handing it over. It is quick. Without
// BestEffort the hold is trusted.
func (p *Presence) Hold(segment uint32) (Hold, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if int(segment) >= len(p.holds) {
		return Hold{}, false
	}
	h := p.holds[segment]
	if h == nil || !h.draining.IsZero() || !p.options.BestEffort && (h.void || !p.trustedLocked()) {
		return Hold{}, false
	}
	return Hold{Segment: segment, Epoch: h.epoch, ctx: h.ctx}, true
}

// Trusted reports whether this member may act as the segment's only owner: its claim was
// acknowledged, and trust is not over (P5.2). It is never true for two members at once. A segment
// that is being handed over is trusted until it is given up.
func (p *Presence) Trusted(segment uint32) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return int(segment) < len(p.holds) && p.trustsLocked(p.holds[segment])
}

func (p *Presence) trustsLocked(h *holding) bool { return h != nil && !h.void && p.trustedLocked() }

// trustedLocked looks at the time rather than at the alarm: when a stopped process goes on, either
// may be first. On a suspended machine the monotonic clock may have stood still, so the wall clock
// counts as well.
func (p *Presence) trustedLocked() bool {
	return time.Now().Before(p.trustEnds) && p.clock.Since(p.beaten) < p.trustFor
}

// renew moves the end of trust after a beat was acknowledged. If trust had ended before the answer
// came, every holding is void (P5.2): an observer may have seen no beat for long enough, and only a
// claim can tell. The beat is still good for claims from now on: it landed on the row, so no member
// has evicted this member.
func (p *Presence) renew(beat row.Version[memberRow]) (late bool) {
	p.mu.Lock()
	late = !p.trustedLocked()
	var ended []uint32
	if late {
		ended = p.voidLocked(errExpired)
	}
	p.beaten, p.trustFor = beat.Sent, p.times.Trust()
	p.trustEnds = beat.Sent.Add(p.trustFor)
	p.alarm.Reset(time.Until(p.trustEnds))
	p.mu.Unlock()
	p.drained(ended)
	return late
}

// expire is the alarm. It may be late, or an old alarm that fired while trust was renewed.
func (p *Presence) expire() {
	p.mu.Lock()
	var ended []uint32
	if !p.trustedLocked() {
		ended = p.voidLocked(errExpired)
	}
	p.mu.Unlock()
	p.drained(ended)
}

// voidAll ends the trust in every holding, and trust itself.
func (p *Presence) voidAll(cause error) {
	p.mu.Lock()
	p.trustEnds = time.Time{}
	ended := p.voidLocked(cause)
	p.mu.Unlock()
	p.drained(ended)
}

// voidLocked gives the segments that ended.
func (p *Presence) voidLocked(cause error) (ended []uint32) {
	for s, h := range p.holds {
		if h == nil || h.void {
			continue
		}
		h.void = true
		if !p.options.BestEffort {
			p.endLocked(s, cause)
			ended = append(ended, uint32(s))
		}
	}
	return ended
}

func (p *Presence) endLocked(segment int, cause error) {
	p.holds[segment].end(cause)
	p.holds[segment] = nil
}

// endAll ends every holding; the rows are as they are.
func (p *Presence) endAll(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, h := range p.holds {
		if h != nil {
			p.endLocked(s, cause)
		}
	}
}

// end ends some holdings, before their entries are written unowned: this member must never trust a
// segment that another can claim.
func (p *Presence) end(segments []uint32, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range segments {
		if p.holds[s] != nil {
			p.endLocked(int(s), cause)
		}
	}
}

// drainAll begins the hand-over of everything.
func (p *Presence) drainAll() {
	p.mu.Lock()
	var begun []uint32
	for s, h := range p.holds {
		if h != nil && h.draining.IsZero() {
			h.draining = time.Now()
			begun = append(begun, uint32(s))
		}
	}
	p.mu.Unlock()
	p.drained(begun)
}

// drained tells that a hand-over or a loss has begun.
func (p *Presence) drained(segments []uint32) {
	if len(segments) == 0 || p.options.Drain == nil {
		return
	}
	p.drains.Lock()
	defer p.drains.Unlock()
	p.options.Drain(segments)
}

// take makes holdings of acknowledged claims. It is false if trust ended before the answer, or this
// member leaves: then the segments are without an owner, and adopted or released when the entries
// are seen to name this member.
func (p *Presence) take(claims []change) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving || !p.trustedLocked() {
		return false
	}
	for _, c := range claims {
		h := p.holds[c.segment]
		if h == nil {
			h = &holding{}
			h.ctx, h.end = context.WithCancelCause(context.Background())
			p.holds[c.segment] = h
		}
		h.epoch, h.void, h.draining = c.to.Epoch, false, time.Time{}
	}
	return true
}

// listed is what a beat lists as held: only trusted segments.
func (p *Presence) listed() SegmentSet {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var set SegmentSet
	for s, h := range p.holds {
		if p.trustsLocked(h) {
			set = set.with(uint32(s))
		}
	}
	return set
}
