package distributor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/storage"
)

// parcel is one sealed envelope on its way.
type parcel struct {
	*pack.Message
	weight int64 // of it in the hold

	box     *outbox // whose slot it holds; nil: none
	probe   bool    // its next put finds out whether a dark home takes messages again
	refused int     // throttles of its puts to the box
}

// putter sends parcels for one distribution.
type putter struct {
	ctx    context.Context // its end is the end of all puts (P5.2)
	stages *errgroup.Group // of the distribution, which ends with the first that fails
	log    *slog.Logger
	hooks  *pump.Hooks
	jitter backoff.Jitter
	turn   backoff.Step
	router *router
	count  *pack.Tally
	acked  func(interval int)
	hold   *semaphore.Weighted // the memory of the parcels under way
	// landed is told of each acknowledged envelope of tasks; it must not wait.
	landed func(c *parcel)
	// patience is for how long a queue may refuse the credential that has taken nothing yet; 0: for ever.
	patience time.Duration
	wg       sync.WaitGroup // the parcels under way, and those in line, which have no goroutine
}

// crowdLook is how often who waits for room looks whether the queue has become
// crowded by it.
const crowdLook = time.Second

// place sees to it that the parcel holds a slot of a queue that its segment's
// messages go to at this moment, waiting for room if need be. A parcel that has
// to move gives its slot up before it gets another: two full queues whose
// parcels want to change places would wait for each other for ever.
func (p *putter) place(c *parcel) error {
	for {
		p.turn.Wait("place", c.name(p.turn))
		var buffer [3]*outbox
		t := p.router.now()
		home, ways, err := p.ways(t, c, &buffer)
		if err != nil {
			return err
		}
		if c.box != nil && (c.probe || slices.Contains(ways, c.box)) {
			p.takeHelp(c, ways)
			return nil
		}
		p.leave(c)
		if ways[0] != home && home.take() {
			if home.probe(p.jitter) {
				c.box, c.probe = home, true
				return nil
			}
			home.free()
			p.goOn(home)
		}
		c.box = firstWithRoom(ways)
		if ways[0] == home {
			p.observe(home, func(h *health, now time.Time) { h.room(now, c.box == home) })
		}
		if c.box != nil {
			return nil
		}
		if err := p.await(t, c, ways); err != nil {
			return err
		}
		if c.box != nil {
			return nil
		}
	}
}

// ways is where the parcel may go now, and where it would go if all were well.
func (p *putter) ways(t *route, c *parcel, buffer *[3]*outbox) (home *outbox, ways []*outbox, err error) {
	if t.fatal != nil {
		return nil, nil, t.fatal
	}
	if c.Bad {
		return t.poisonWays(c.Segment, buffer)
	}
	ways, err = t.ways(c.Segment, buffer)
	return t.home(c.Segment), ways, err
}

// helpAfter is how many throttles a parcel waits out at its home: they have cost
// it a second or two, and at the end of a source nothing else would empty a
// queue that refuses nine of ten.
const helpAfter = 4

// takeHelp moves a parcel that its crowded home keeps refusing to a queue that
// helps, if that has room.
func (p *putter) takeHelp(c *parcel, ways []*outbox) {
	if len(ways) < 2 || c.box != ways[0] || c.refused < helpAfter {
		return
	}
	if o := firstWithRoom(ways[1:]); o != nil {
		p.leave(c)
		c.box = o
	}
}

func firstWithRoom(ways []*outbox) *outbox {
	for _, o := range ways {
		if o.take() {
			return o
		}
	}
	return nil
}

// await waits for room in one of the ways, for other ways, or to look again.
func (p *putter) await(t *route, c *parcel, ways []*outbox) error {
	var slots [3]chan struct{}
	for i, o := range ways {
		slots[i] = o.slots
	}
	look := time.NewTimer(crowdLook)
	defer look.Stop()
	select {
	case slots[0] <- struct{}{}:
		c.box = ways[0]
	case slots[1] <- struct{}{}:
		c.box = ways[1]
	case slots[2] <- struct{}{}:
		c.box = ways[2]
	case <-t.changed:
	case <-look.C:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	return nil
}

// name tells a parcel from others of its distribution, for its turn.
func (c *parcel) name(t backoff.Step) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d %v", c.Segment, c.First, c.Bad)
}

// leave gives the parcel's slot up, and its leave to probe.
func (p *putter) leave(c *parcel) {
	if c.box == nil {
		return
	}
	p.endProbe(c)
	o := c.box
	c.box, c.refused = nil, 0
	o.free()
	p.goOn(o)
}

// endProbe lets another parcel probe; what this one found out has been counted.
func (p *putter) endProbe(c *parcel) {
	if c.probe {
		c.probe = false
		c.box.observe((*health).endProbe)
	}
}

// observe lets something that happened count for a queue's health, and wakes
// who should go another way because of it.
func (p *putter) observe(o *outbox, what func(h *health, now time.Time)) {
	if !o.observe(what) {
		return
	}
	dark, crowded := o.state()
	switch {
	case dark:
		p.log.Warn("a queue is dark; its tasks go to others once that is marked", "queue", o.name)
	case crowded:
		p.log.Warn("a queue is at its limit; what it has no room for goes to others once that is marked", "queue", o.name)
	default:
		p.log.Info("a queue is as it should be again; its tasks come home", "queue", o.name)
	}
	p.router.turned()
}

// deliver sends a parcel until it is acknowledged or the distribution ends; an error ends
// that. The bytes are the same each time, so that copies are recognised by their tasks'
// identities (P1.2), and acknowledged by any queue is acknowledged: each attempt
// asks anew where the segment's messages go.
func (p *putter) deliver(c *parcel) error {
	for attempt := uint64(0); ; attempt++ {
		made, err := p.attempt(c)
		if err == nil {
			p.acknowledged(c)
			return nil
		}
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		delay, err := p.judge(c, err, made, attempt)
		if err != nil {
			return err
		}
		p.endProbe(c)
		if !p.pause(c, delay) {
			return context.Cause(p.ctx)
		}
	}
}

// stopError ends the distribution whatever judge would say.
type stopError struct{ error }

func (e stopError) Unwrap() error { return e.error }

// attempt makes one request for the parcel, when it stands in the right place
// and is paid for, and the map is young enough (P6.5). It reports whether the
// queue was known to be there when the put was sent.
func (p *putter) attempt(c *parcel) (made bool, err error) {
	for {
		if err := p.place(c); err != nil {
			return false, stopError{err}
		}
		o := c.box
		if t := p.router.now(); o.unmade() {
			err := o.make(p.ctx, t.changed, p.log)
			switch {
			case errors.Is(err, errMoved):
				continue
			case err != nil:
				return false, &makeError{err}
			}
		}
		about := o.shard.Digest(c.Text)
		if err := o.shard.Pay(p.ctx, quota.ClassPut, 1, queues.OpPut, about); err != nil {
			return false, err
		}
		// The budget may have kept it waiting for long.
		t := p.router.now()
		if !t.fresh() {
			if !p.stale(t) {
				return false, context.Cause(p.ctx)
			}
			continue
		}
		var buffer [3]*outbox
		if _, ways, err := p.ways(t, c, &buffer); !c.probe && (err != nil || !slices.Contains(ways, o)) {
			continue
		}
		made = o.made.Load()
		o.observe(func(h *health, now time.Time) { h.sent(now) })
		return made, o.shard.PutBy(p.ctx, t.read, c.Text, 0, about)
	}
}

// stale waits for a newer map; false: the distribution ended first.
func (p *putter) stale(t *route) bool {
	select {
	case <-t.changed:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// pause waits before the next attempt, or until there is a better way.
func (p *putter) pause(c *parcel, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		var buffer [3]*outbox
		t := p.router.now()
		if _, ways, err := p.ways(t, c, &buffer); err != nil || !slices.Contains(ways, c.box) {
			return true
		}
		select {
		case <-over.C:
			return true
		case <-t.changed:
		case <-p.ctx.Done():
			return false
		}
	}
}

func (p *putter) acknowledged(c *parcel) {
	o := c.box
	if !o.accepted.Swap(true) {
		o.made.Store(true)
		p.log.Debug("the queue takes messages", "queue", o.name)
	}
	p.observe(o, (*health).acknowledged)
	p.endProbe(c)
	if o.fit() {
		p.goOn(o)
	}
	o.recovered(p.log)
	p.count.Sent.Add(int64(len(c.Text)))
	p.count.Envelopes.Add(1)
	if !c.Bad {
		p.count.Acked.Add(int64(c.Tasks))
		p.landed(c)
		for _, r := range c.Receipts {
			r.Acknowledge(r.Tasks)
		}
	} else {
		p.count.Quarantined.Add(1)
		queues.HookQuarantine(p.hooks, o.shard.Account.Name, pump.ReasonBadLine, 1)
	}
	pack.Texts.Put(&c.Text)
	p.acked(c.Interval)
}

// makeError is a queue that could not be made.
type makeError struct{ err error }

func (e *makeError) Error() string { return e.err.Error() }
func (e *makeError) Unwrap() error { return e.err }

// Back-off of puts: full jitter, so that what failed together does not come back
// together. A throttle also lowers the budget, which does most of the slowing down.
const (
	putThrottledBase = 100 * time.Millisecond
	putBase          = 250 * time.Millisecond
	putLimit         = 15 * time.Second
	putStoppedBase   = 5 * time.Second
	putStoppedLimit  = time.Minute
)

// judge decides what follows from a failed request: wait and try again, or, with
// an error, give the distribution up. Made: the queue was known to be there when
// the put was sent.
func (p *putter) judge(c *parcel, err error, made bool, attempt uint64) (time.Duration, error) {
	if stop, ok := errors.AsType[stopError](err); ok {
		return 0, stop.error
	}
	o := c.box
	j, object := p.jitter, fmt.Sprintf("%s %d/%d", o.name, c.Segment, c.First)
	_, making := errors.AsType[*makeError](err)
	if making && !storage.Is(err, storage.Auth) {
		if err := o.creation.Failed(o.name, err, time.Now()); err != nil {
			return 0, err
		}
	}
	switch storage.CodeOf(err) {
	case storage.Throttled:
		p.observe(o, (*health).refused)
		c.refused++
		// A 503 was refused before it was looked at. A 500 OperationTimedOut,
		// which an overloaded partition answers too, may have been done.
		var asked time.Duration
		if e, ok := errors.AsType[*storage.Error](err); ok {
			asked = min(e.RetryAfter, putLimit)
			if e.Status != 503 && !making {
				p.count.Resent.Add(1)
			}
		}
		return asked + j.Full(putThrottledBase, putLimit, "put", object, attempt), nil
	case storage.MaybeDone:
		// A timeout, a 5xx, a broken connection: it may be in the queue. A second
		// copy is harmless, a missing one is a lost task.
		p.observe(o, (*health).lost)
		if !making {
			p.count.Resent.Add(1)
		}
		o.alarm(p.log, err)
		return j.Full(putBase, putLimit, "put", object, attempt), nil
	case storage.Missing, storage.Auth:
		p.observe(o, (*health).answered)
		switch {
		case storage.Is(err, storage.Auth) && !o.accepted.Load():
			if err := o.refuses(err, time.Now(), p.patience); err != nil {
				return 0, err
			}
		case making: // an older queue of that name is being deleted
			o.alarm(p.log, err)
			return j.Full(putBase, putLimit/3, "put", object, attempt), nil
		case !made && storage.Is(err, storage.Missing):
			o.missing()
			return 0, nil
		case !o.accepted.Load():
			return 0, fmt.Errorf("queue %s takes no messages: %w", o.name, err)
		}
		o.alarm(p.log, err)
		return j.Full(putStoppedBase, putStoppedLimit, "put", object, attempt), nil
	case storage.Canceled:
		// Not by our own context, or deliver would not have asked. Nothing was sent.
		return j.Full(putBase, putLimit, "put", object, attempt), nil
	default:
		// Invalid, TooLarge, or an answer that a put cannot have: the same bytes
		// would fail every time.
		return 0, fmt.Errorf("an envelope of %d characters was refused: %w", len(c.Text), err)
	}
}
