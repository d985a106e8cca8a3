package distributor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/storage"
)

// The slots of an outbox bound the envelopes that are on their way into one queue: each is
// under way, waits for the budget of its queue or account, or waits to be sent again.
// How many there are follows from how long a put takes (quickest.ahead), so that a queue is
// never idle for want of requests, near or far, and one that hangs holds no more
// connections than that.
// Before anything was measured they are for 10 ms a put at a queue's published limit.
const (
	outboxFirst = 32
	outboxLeast = 16
	outboxMost  = 256
	poisonBox   = 16 // bad lines under way to one account's poison queue
)

// outbox is the way to one queue, for as long as the queue is in the map. Whoever finds
// it full waits until the queue takes messages again, or others take them in its place (P6.3).
type outbox struct {
	name  string        // account/queue
	shard *queues.Queue // nil: see refused
	// refused: this process has no credentials for the account.
	refused error
	slots   chan struct{} // a token for each that is taken, or closed
	width   atomic.Int64  // slots that are not closed
	shorter chan struct{} // capacity 1: the line became shorter
	// accepted: the queue has acknowledged a message of this process. Before, a
	// missing queue is a mistake in the configuration, and so may a refused credential be
	// (authPatience); after, somebody rotates keys or tidies up, and the tasks wait for him to finish.
	accepted atomic.Bool

	// made: this process knows that the queue was there: it made it, or put
	// into it, or may not make queues. A queue that was not made and is found missing
	// (absent) is made before it is put into; one that was made and is missing is gone.
	made, absent atomic.Bool
	making       singleflight.Group
	creation     queues.Creation

	mu       sync.Mutex // guards what follows
	waiting  []*parcel  // for a slot of this queue, which is their home; see putter.line
	health   health
	heard    map[string]time.Time // of each owner of its segments: when it last got a message here
	alarmed  time.Time            // when the log last said that the queue is in trouble
	refusing time.Time            // since when it refuses the credential, never having taken anything
}

// newOutbox makes an outbox that may grow to most slots.
func newOutbox(s *queues.Queue, most int) *outbox {
	o := &outbox{name: s.String(), shard: s, slots: make(chan struct{}, most), shorter: make(chan struct{}, 1), heard: map[string]time.Time{}}
	for range most - outboxFirst {
		o.slots <- struct{}{}
	}
	o.width.Store(int64(min(most, outboxFirst)))
	return o
}

// refusedOutbox leads to an account that this process cannot reach.
func refusedOutbox(name string, why error) *outbox {
	return &outbox{name: name, refused: why, slots: make(chan struct{}, 1), shorter: make(chan struct{}, 1), heard: map[string]time.Time{}}
}

// take takes a slot if there is one.
func (o *outbox) take() bool {
	select {
	case o.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (o *outbox) free() { <-o.slots }

// fit opens or closes one slot, if there should be more or fewer, and reports whether it
// opened one. It is called after each acknowledged put, so that the outbox fits after as many.
func (o *outbox) fit() (opened bool) {
	if cap(o.slots) < outboxMost { // for poison: they are few
		return false
	}
	want := int64(o.shard.Puts.Ahead(o.shard.Budget.Rate(), outboxLeast, outboxMost))
	switch now := o.width.Load(); {
	case want > now && o.width.CompareAndSwap(now, now+1):
		<-o.slots // a closed one: closed and taken are the same to the others
		return true
	case want < now && o.width.CompareAndSwap(now, now-1):
		if !o.take() { // all are in use
			o.width.Add(1)
		}
	}
	return false
}

// must says that the queue is new and has to be made before the first put.
func (o *outbox) must() { o.absent.Store(true) }

// unmade reports whether the queue has to be made before it is put into.
func (o *outbox) unmade() bool { return o.absent.Load() && !o.made.Load() }

// missing is a put that was sent while nobody here knew whether the queue was there, and it was not.
func (o *outbox) missing() { o.absent.Store(true) }

// make makes the queue with one request, whoever asks for it at the same time.
// It gives up waiting, not the request, when changed is closed.
func (o *outbox) make(ctx context.Context, changed <-chan struct{}, log *slog.Logger) error {
	if o.made.Load() {
		return nil
	}
	done := o.making.DoChan("", func() (any, error) {
		if o.made.Load() {
			return nil, nil
		}
		o.observe(func(h *health, now time.Time) { h.sent(now) })
		err := o.shard.Create(ctx, log)
		if err == nil {
			o.made.Store(true)
		}
		return nil, err
	})
	select {
	case r := <-done:
		return r.Err
	case <-changed:
		return errMoved
	}
}

// errMoved: there may be a better way now.
var errMoved = errors.New("the ways have changed")

// authPatience is for how long a queue that has taken nothing yet may refuse the credential
// before a distribution that nobody continues ends: a new role assignment takes up to ten
// minutes to be known everywhere. With an election it is waited for without end.
const authPatience = 15 * time.Minute

// refuses notes that the queue, which has taken nothing yet, refuses the credential, and
// gives an error when that has gone on for too long.
func (o *outbox) refuses(err error, now time.Time, patience time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusing.IsZero() {
		o.refusing = now
	}
	if patience > 0 && now.Sub(o.refusing) >= patience {
		return fmt.Errorf("queue %s takes no messages: it has refused the credential for %v; %s: %w", o.name, patience, authFix, err)
	}
	return nil
}

// authFix is what to do about a refused credential.
const authFix = `give the identity the role "Storage Queue Data Contributor" on the account (a new assignment takes minutes), or use a SAS or key that may add messages`

// observe changes what is known of the queue's health. It reports whether that
// makes other ways the better ones.
func (o *outbox) observe(f func(h *health, now time.Time)) (turned bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.health
	f(&o.health, time.Now())
	return before.dark != o.health.dark || before.crowded != o.health.crowded
}

// state is whether the queue is dark, and whether it is at its limit.
func (o *outbox) state() (dark, crowded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.health.dark, o.health.crowded
}

func (o *outbox) dark() bool {
	dark, _ := o.state()
	return dark
}

// probe gives one caller at a time leave to try whether a dark queue takes messages again.
func (o *outbox) probe(j backoff.Jitter) (leave bool) {
	o.observe(func(h *health, now time.Time) { leave = h.probe(now, j, o.name) })
	return leave
}

// quiet notes that an owner has a message in this queue now, and reports
// whether it had none from this process for long enough to be told of it (P8.2).
func (o *outbox) quiet(owner string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	last, known := o.heard[owner]
	if !known && len(o.heard) >= maxHeard {
		clear(o.heard) // owners come and go; a nudge too many is harmless
	}
	o.heard[owner] = now
	return !known || now.Sub(last) > quietAfter
}

// quietAfter is for how long this process must have put nothing before a put is
// worth a nudge. A processor that finds a queue empty asks again after 100 ms, then
// after twice that and so on: in the first second its next look is at most
// half a second off, and a nudge would hardly be quicker.
const quietAfter = time.Second

// maxHeard bounds the owners remembered for one queue.
const maxHeard = 1024

// alarm tells an operator of a queue in trouble, not more often than he can read.
func (o *outbox) alarm(log *slog.Logger, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); o.alarmed.IsZero() || now.Sub(o.alarmed) >= queues.AlarmEvery {
		o.alarmed = now
		if storage.Is(err, storage.Auth) {
			log.Warn("a queue refuses the credential; its tasks wait", "queue", o.name, "fix", authFix, "error", err)
			return
		}
		log.Warn("a queue does not take messages; its tasks wait", "queue", o.name, "error", err)
	}
}

func (o *outbox) recovered(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.alarmed.IsZero() {
		o.alarmed = time.Time{}
		log.Info("the queue takes messages again", "queue", o.name)
	}
}
