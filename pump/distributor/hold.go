package distributor

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
)

// What is sealed and not acknowledged takes holdBytes at most, of which each parcel has
// its text and what sending it may take, which is parcelBytes: a goroutine with its stack and
// timers. That is a thousand full envelopes or fifteen thousand small ones. Queues do not
// share it out: with keys as they come, one queue or another always has more waiting
// than the rest, and what waits keeps none of them idle as long as it is many times
// as much as there are queues. It also is what comes for a dark queue until that shows:
// at 2,000 a second in darkAfter.
const (
	holdBytes   = 64 << 20
	parcelBytes = 4 << 10
)

// lineFor is how long the last in line at a queue that is well should wait: longer than it
// takes until a dark queue shows, or that would hold up all others; shorter than a
// distributor that is told to stop goes on sending.
const (
	lineFor   = 8 * time.Second
	lineLeast = 64
)

// send takes a parcel over, waiting while too many are under way.
func (p *putter) send(c *parcel) error {
	p.turn.Wait("hold", c.name(p.turn))
	if err := p.awaitLine(c); err != nil {
		return err
	}
	c.weight = int64(cap(c.Text)) + parcelBytes
	if p.hold.Acquire(p.ctx, c.weight) != nil {
		return context.Cause(p.ctx)
	}
	p.wg.Add(1)
	if !p.line(c) {
		p.carry(c)
	}
	return nil
}

// awaitLine waits while the line at the parcel's home is as long as it may be.
func (p *putter) awaitLine(c *parcel) error {
	for {
		t := p.router.now()
		var buffer [3]*outbox
		home, _, err := p.ways(t, c, &buffer)
		if err != nil || !home.long() {
			return nil // an error is carry's to find
		}
		select {
		case <-home.shorter:
		case <-t.changed:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
}

// long reports whether nobody else should stand in line.
func (o *outbox) long() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.waiting)
	return n >= lineLeast && float64(n) >= o.shard.Budget.Rate()*lineFor.Seconds()
}

// carry sends a parcel, in a goroutine of its own.
func (p *putter) carry(c *parcel) {
	p.stages.Go(func() error {
		defer p.wg.Done()
		defer p.hold.Release(c.weight)
		defer p.leave(c)
		return p.deliver(c)
	})
}

// line lets a parcel wait in line at its home, if it can go nowhere else and that has no
// room: nearly all parcels that wait do so for a queue that is well, and a goroutine for
// each took as much time as sending them. False: it is for carry.
func (p *putter) line(c *parcel) bool {
	t := p.router.now()
	var buffer [3]*outbox
	home, ways, err := p.ways(t, c, &buffer)
	if err != nil || c.Bad || len(ways) > 1 || ways[0] != home {
		return false
	}
	home.mu.Lock()
	full := len(home.waiting) > 0 || !home.take()
	if full {
		home.waiting = append(home.waiting, c)
	} else {
		c.box = home
	}
	home.mu.Unlock()
	p.observe(home, func(h *health, now time.Time) { h.room(now, !full) })
	if full && (p.router.now() != t || p.ctx.Err() != nil) {
		p.disperse(home) // keepLines may have been here just before
	}
	return full
}

// goOn lets those who are next in line have the slots that are free.
func (p *putter) goOn(o *outbox) {
	for {
		o.mu.Lock()
		if len(o.waiting) == 0 || !o.take() {
			o.mu.Unlock()
			return
		}
		c := o.waiting[0]
		o.waiting[0] = nil
		o.waiting = o.waiting[1:]
		o.mu.Unlock()
		backoff.Signal(o.shorter)
		c.box = o
		p.carry(c)
	}
}

// pressed reports whether the queue has a line of its own.
func (o *outbox) pressed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) > 0
}

// disperse ends a line: each parcel goes its own way.
func (p *putter) disperse(o *outbox) {
	o.mu.Lock()
	list := o.waiting
	o.waiting = nil
	o.mu.Unlock()
	backoff.Signal(o.shorter)
	for _, c := range list {
		p.carry(c)
	}
}

// keepLines ends the lines at queues that are not well or no homes any more, and all
// when the distribution ends. It returns then.
func (p *putter) keepLines() {
	look := time.NewTicker(crowdLook)
	defer look.Stop()
	for t := p.router.now(); ; {
		select {
		case <-look.C:
		case <-t.changed:
		case <-p.ctx.Done():
		}
		p.turn.Wait("lines")
		old := t
		t = p.router.now()
		over := p.ctx.Err() != nil
		troubled := false
		all := over || t.fatal != nil || t.choices != old.choices
		for _, o := range old.boxes {
			well := p.well(o)
			troubled = troubled || !well
			if all || !well {
				p.disperse(o)
			}
		}
		if troubled {
			backoff.Signal(p.router.wake) // those who help may be pressed by now
		}
		if over {
			return
		}
	}
}

// well reports whether those in line at a queue need not look for another way.
func (p *putter) well(o *outbox) bool {
	if o.pressed() { // that nobody is new in line is no sign of room
		p.observe(o, func(h *health, now time.Time) { h.room(now, false) })
	}
	dark, crowded := o.state()
	return !dark && !crowded && o.refused == nil
}
