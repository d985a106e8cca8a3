package worlds

import (
	"context"
	"fmt"
	"time"
)

// simSleep is a time that the process's monotonic clock has missed.
type simSleep struct {
	woke time.Time
	span time.Duration
}

// ahead is how much the process's monotonic clock has missed at a time.
func (p *simProcess) ahead(at time.Time) (missed time.Duration) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, s := range p.slept {
		if !at.Before(s.woke) {
			missed += s.span
		}
	}
	return missed
}

// hears notes that a request of a table was answered, which was sent then.
func (p *simProcess) hears(sent time.Time) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if sent.After(p.heard) {
		p.heard = sent
	}
}

// judgeTrust looks right after machines woke, in mode once, at what their processes take for their
// own: others may own it after a sleep that was longer than a lease, until they have beaten again
// (A20).
func (w *simWorld) judgeTrust(slept []*simProcess, span time.Duration) {
	woke := time.Now()
	time.Sleep(time.Millisecond)
	for _, p := range slept {
		hands := p.inHand.Load()
		w.mu.Lock()
		beaten := p.heard.After(woke)
		w.mu.Unlock()
		if hands == nil || beaten || p.over() {
			continue
		}
		for segment := range uint32(w.plan.segments) {
			if _, held := hands.hold(segment); held {
				w.wrongf("%s trusts that segment %d is its own when its machine wakes from %v of sleep (A20)",
					p, segment, span)
				break
			}
		}
	}
}

// simLate is within which time a process notices that its machine has slept.
const simLate = 5 * time.Second

// judgeLease says what is wrong with a handler that comes to its end: if the lease of its message
// ended while the machine slept, it was to be told soon after that.
func (p *simProcess) judgeLease(ctx context.Context, began time.Time, task *simTask) {
	if ctx.Err() != nil || p.over() {
		return
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, s := range p.slept {
		if s.span > p.world.plan.visibility && began.Before(s.woke) && time.Since(s.woke) > simLate {
			const still = "%s is still at %v %v after its machine woke, and the lease of its message ended" +
				" while that slept for %v (A20)"
			p.world.wrong = append(p.world.wrong, fmt.Sprintf(still, p, task, time.Since(s.woke), s.span))
		}
	}
}
