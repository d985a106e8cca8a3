package pump

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// An outbox bounds the envelopes that are sealed and not yet acknowledged: each
// is under way, waits for the budget of its queue or account, or waits to be sent again. All
// outboxes together hold allOutboxes, at most 64 MiB of text; with four accounts
// of eight queues that is 32 a queue, which at 10 to 15 ms a put is the 2,000 a second
// that a queue takes. Fewer would leave a queue idle, more only cost memory.
const (
	allOutboxes = 1024
	maxOutbox   = 64
	minOutbox   = 2
	poisonBox   = 16 // bad lines under way to one account's poison queue
)

func outboxSize(shards int) int {
	return min(max(allOutboxes/shards, minOutbox), maxOutbox)
}

// outbox is the way to one queue. Whoever fills it waits while it is full; that
// holds up the source until the queue takes messages again.
type outbox struct {
	shard *shard
	slots chan struct{}
	// accepted: the queue has acknowledged a message of this process. Before, a
	// missing queue or a refused credential is a mistake in the configuration;
	// after, somebody rotates keys or tidies up, and the tasks wait for him to finish.
	accepted atomic.Bool

	mu      sync.Mutex // guards alarmed
	alarmed time.Time  // when the log last said that the queue is in trouble
}

func newOutbox(s *shard, size int) *outbox {
	return &outbox{shard: s, slots: make(chan struct{}, size)}
}

// parcel is one sealed envelope on its way.
type parcel struct {
	text     []byte
	segment  uint32
	first    uint64 // n of its first task
	tasks    int
	interval int  // of its first task, for the tracker
	bad      bool // it is a bad line on its way to quarantine
}

// texts are buffers for message text, reused from envelope to envelope.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// putter sends parcels for one distribution.
type putter struct {
	ctx    context.Context // its end is the end of all puts (P5.2)
	fail   func(error)     // ends the distribution
	log    *slog.Logger
	hooks  *Hooks
	jitter jitter
	count  *tally
	acked  func(interval int)
	wg     sync.WaitGroup // the parcels under way
}

// send hands a parcel to the outbox, waiting for room.
func (p *putter) send(o *outbox, c *parcel) error {
	select {
	case o.slots <- struct{}{}:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	p.wg.Go(func() {
		defer func() { <-o.slots }()
		p.put(o, c)
	})
	return nil
}

// put sends a parcel until it is acknowledged or the distribution ends. The
// bytes are the same each time, so that copies are recognised by their tasks'
// identities (P1.2).
func (p *putter) put(o *outbox, c *parcel) {
	for attempt := uint64(0); ; attempt++ {
		err := o.shard.put(p.ctx, c.text, 0)
		if err == nil {
			p.acknowledged(o, c)
			return
		}
		if p.ctx.Err() != nil {
			return
		}
		delay, err := p.judge(o, c, err, attempt)
		if err != nil {
			p.fail(err)
			return
		}
		if !waitFor(p.ctx, delay) {
			return
		}
	}
}

func (p *putter) acknowledged(o *outbox, c *parcel) {
	if !o.accepted.Swap(true) {
		p.log.Debug("the queue takes messages", "queue", o.shard.String())
	}
	o.recovered(p.log)
	p.count.sent.Add(int64(len(c.text)))
	p.count.envelopes.Add(1)
	if !c.bad {
		p.count.acked.Add(int64(c.tasks))
	} else {
		p.count.quarantined.Add(1)
		p.hooks.quarantine(o.shard.account.name, ReasonBadLine, 1)
	}
	texts.Put(&c.text)
	p.acked(c.interval)
}

// Back-off of puts: full jitter, so that what failed together does not come back
// together. A throttle also lowers the budget, which does most of the slowing down.
const (
	putThrottledBase = 100 * time.Millisecond
	putBase          = 250 * time.Millisecond
	putLimit         = 15 * time.Second
	putStoppedBase   = 5 * time.Second
	putStoppedLimit  = time.Minute
	alarmEvery       = time.Minute
)

// judge decides what follows from a failed put: wait and send the same bytes
// again, or, with an error, give the distribution up.
func (p *putter) judge(o *outbox, c *parcel, err error, attempt uint64) (time.Duration, error) {
	j, object := p.jitter, fmt.Sprintf("%s %d/%d", o.shard, c.segment, c.first)
	switch storage.CodeOf(err) {
	case storage.Throttled:
		// A 503 was refused before it was looked at. A 500 OperationTimedOut,
		// which an overloaded partition answers too, may have been done.
		var asked time.Duration
		if e, ok := errors.AsType[*storage.Error](err); ok {
			asked = min(e.RetryAfter, putLimit)
			if e.Status != 503 {
				p.count.resent.Add(1)
			}
		}
		return asked + j.full(putThrottledBase, putLimit, "put", object, attempt), nil
	case storage.MaybeDone:
		// A timeout, a 5xx, a broken connection: it may be in the queue. A second
		// copy is harmless, a missing one is a lost task.
		p.count.resent.Add(1)
		o.alarm(p.log, err)
		return j.full(putBase, putLimit, "put", object, attempt), nil
	case storage.Missing, storage.Auth:
		if !o.accepted.Load() {
			return 0, fmt.Errorf("queue %s takes no messages: %w", o.shard, err)
		}
		o.alarm(p.log, err)
		return j.full(putStoppedBase, putStoppedLimit, "put", object, attempt), nil
	case storage.Canceled:
		// Not by our own context, or put would not have asked. Nothing was sent.
		return j.full(putBase, putLimit, "put", object, attempt), nil
	default:
		// Invalid, TooLarge, or an answer that a put cannot have: the same bytes
		// would fail every time.
		return 0, fmt.Errorf("an envelope of %d characters was refused: %w", len(c.text), err)
	}
}

// alarm tells an operator of a queue in trouble, not more often than he can read.
func (o *outbox) alarm(log *slog.Logger, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); o.alarmed.IsZero() || now.Sub(o.alarmed) >= alarmEvery {
		o.alarmed = now
		log.Warn("a queue does not take messages; its tasks wait", "queue", o.shard.String(), "error", err)
	}
}

func (o *outbox) recovered(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.alarmed.IsZero() {
		o.alarmed = time.Time{}
		log.Info("the queue takes messages again", "queue", o.shard.String())
	}
}

// ReasonBadLine is the cause of a bad line in quarantine.
const ReasonBadLine = "bad-line"

// poisonParcel packs a bad line for quarantine. It has no identity in the run:
// it has no key and so no segment of its own, and a number would make the
// run's sealed count wrong. So its envelope has a zero run, like a foreign message, and
// the cause says where it comes from.
func poisonParcel(workload, instance string, run RunID, bad *BadInput, segment uint32, interval int) (*parcel, error) {
	now := time.Now()
	cause := codec.Cause{Reason: ReasonBadLine, Instance: instance, Attempts: 1, First: now, Last: now}
	raw := bad.Raw
	for {
		b := codec.NewBuilder(0)
		b.Reset(codec.Header{Workload: workload, Segment: segment})
		_, err := b.Add(codec.Task{ID: []byte(bad.Where), Body: raw})
		if errors.Is(err, codec.ErrTaskTooLarge) && len(raw) > 0 {
			raw = raw[:len(raw)/2] // what does not compress: half of it still shows what it is
			continue
		}
		if err != nil {
			return nil, err
		}
		text, _, err := b.Seal(nil)
		if err != nil {
			return nil, err
		}
		cause.Detail = fmt.Sprintf("run %s: %v", run, bad)
		if len(raw) < len(bad.Raw) {
			cause.Detail = fmt.Sprintf("the first %d bytes of it; %s", len(raw), cause.Detail)
		}
		if text, err = codec.Quarantined(text, cause); err != nil {
			return nil, err
		}
		return &parcel{text: text, segment: segment, tasks: 1, interval: interval, bad: true}, nil
	}
}
