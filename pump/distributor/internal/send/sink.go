package send

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// A sink has some messages in flight: each is being put, waits for the budget of its queue or
// account, or waits to be put again. How many follows from how long a put takes
// (queues.Queue.Puts.Ahead), so that a queue, near or far, is never idle for want of requests, and
// a queue that hangs holds no more connections. Before the first measurement the number is for 10
// ms a put at a queue's published limit.
const (
	inFlightFirst  = 32
	inFlightLeast  = 16
	inFlightMost   = 256
	poisonInFlight = 16 // bad lines, to one account's poison queue
)

// A sink is full when what waits there takes lineFor. That is longer than it takes to see that a
// queue is dark, which would otherwise hold up all others, and shorter than a distributor goes on
// sending when it is told to stop. Slow queues may have fullLeast waiting.
const (
	lineFor   = 8 * time.Second
	fullLeast = 64
)

// Sink is the way into one queue, for as long as the queue is in the map: messages wait there in
// the order in which they came, for workers that put them one by one (Putter.deliver). A worker is
// there while messages wait and fewer than inFlight are at work, so a sink at rest costs no
// goroutine. The messages wait in a list and not in a channel because both bounds change: inFlight
// with the time that puts take, full with the budget of the queue.
type Sink struct {
	name  string        // account/queue
	share *share        // of its account
	shard *queues.Queue // nil: see refused
	// refused: this process has no credentials for the account.
	refused error
	most    int           // in flight
	room    chan struct{} // capacity 1: one less waits
	// accepted: the queue has acknowledged a message of this process, so an operator will mend what
	// refuses now, and the sink waits for that.
	accepted atomic.Bool

	// made: this process knows that the queue was there: it made it, or put into it, or may not make
	// queues. A queue that was not made and is found missing (absent) is made before a put; a queue
	// that was made and is missing is gone.
	made, absent atomic.Bool
	making       singleflight.Group
	trouble      logs.Limited

	mu       sync.Mutex // guards what follows
	waiting  []*message
	workers  int
	inFlight int // workers that there may be
	health   health
	heard    map[string]time.Time // of each owner of its segments: when it last got a message here
	refusal  refusal              // the last answer, if it was one
}

// newSink makes a sink that may have up to most messages in flight. Without a queue refused says
// why this process cannot reach the account.
func newSink(name string, q *queues.Queue, refused error, most int, of *share) *Sink {
	return &Sink{
		share: of, name: name, shard: q, refused: refused, most: most, inFlight: min(most, inFlightFirst),
		room: make(chan struct{}, 1), heard: map[string]time.Time{},
	}
}

// push adds a message, and a worker if another may be in flight.
func (s *Sink) push(m *message, work func(*Sink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.sink = s; m.share != s.share {
		if m.share != nil {
			m.share.take(-m.weight)
		}
		m.share = s.share
		m.share.take(m.weight)
	}
	s.waiting = append(s.waiting, m)
	s.hire(work)
}

// hire adds a worker if a message waits for one; s.mu is held.
func (s *Sink) hire(work func(*Sink)) {
	if len(s.waiting) > 0 && s.workers < s.inFlight {
		s.workers++
		work(s)
	}
}

// next gives a worker its next message; nil ends it.
func (s *Sink) next() *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.workers > s.inFlight {
		s.workers--
		return nil
	}
	m := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	waits.Signal(s.room)
	return m
}

// leave ends a worker in the midst of its work.
func (s *Sink) leave(work func(*Sink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers--
	s.hire(work) // or the waiting messages would have no worker
}

// drain gives up all that waits.
func (s *Sink) drain() (list []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.waiting = s.waiting, nil
	waits.Signal(s.room)
	return list
}

// fit lets one more or one fewer message be in flight, if that fits the time of puts better. It is
// called after each acknowledged put.
func (s *Sink) fit(work func(*Sink)) {
	if s.most < inFlightMost { // for poison: they are few
		return
	}
	want := s.shard.Puts.Ahead(s.shard.Budget.Rate(), inFlightLeast, inFlightMost)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case want > s.inFlight:
		s.inFlight++
		s.hire(work)
	case want < s.inFlight:
		s.inFlight--
	}
}

// queued is how many messages wait, and whether the sink is busy: as many are in flight as may be.
func (s *Sink) queued() (waiting int, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting), s.workers >= s.inFlight
}

// pressed reports whether messages wait for others to be acknowledged.
func (s *Sink) pressed() bool {
	n, busy := s.queued()
	return n > 0 && busy
}

// full reports whether nothing more should wait.
func (s *Sink) full() bool {
	n, _ := s.queued()
	return n >= fullLeast &&
		(s.refused != nil || float64(n) >= s.shard.Budget.Rate()*lineFor.Seconds())
}

// missing says that the queue seems not to exist: it is new, or a put did not find it.
func (s *Sink) missing() { s.absent.Store(true) }

// unmade reports whether the queue has to be made before it is put into.
func (s *Sink) unmade() bool { return s.absent.Load() && !s.made.Load() }

// make makes the queue with one request for all that ask at the same time. When changed is closed
// it stops waiting, and the request goes on.
func (s *Sink) make(ctx context.Context, changed <-chan struct{}, log *slog.Logger) error {
	if s.made.Load() {
		return nil
	}
	done := s.making.DoChan("", func() (any, error) {
		if s.made.Load() {
			return nil, nil
		}
		s.observe(func(h *health, now time.Time) { h.sent(now) })
		err := s.shard.Create(ctx, log)
		if err == nil {
			s.made.Store(true)
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
var errMoved = errors.New("there is another route")

// refusal is that a queue refuses the credential.
type refusal struct {
	since time.Time
	err   error
	kind  failure.Kind
}

// refuses notes what a queue that has taken nothing yet has answered.
func (s *Sink) refuses(err error, kind failure.Kind, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.refusal
	if s.refusal = (refusal{}); kind == failure.Refuses || kind == failure.NoRight {
		s.refusal = refusal{cmp.Or(was.since, now), err, kind}
	}
}

func (s *Sink) refusing() refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
}

// observe changes what is known of the queue's health. It reports whether that
// makes other destinations the better ones.
func (s *Sink) observe(f func(h *health, now time.Time)) (turned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.health.state()
	f(&s.health, time.Now())
	return before != s.health.state()
}

func (s *Sink) state() state {
	if s.refused != nil {
		return dark
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.state()
}

// why says why the queue is dark.
func (s *Sink) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refused != nil:
		return "no credentials"
	case s.health.turned:
		return "refuses"
	}
	return "silent"
}

// String is account/queue.
func (s *Sink) String() string { return s.name }

// probe gives one caller at a time leave to try whether a dark queue takes messages again.
func (s *Sink) probe(j waits.Jitter) (leave bool) {
	s.observe(func(h *health, now time.Time) { leave = h.probe(now, j, s.name) })
	return leave
}

// Quiet notes that an owner has a message in this queue now. It reports whether the owner should be
// told: it had none from this process for long enough (P8.2).
func (s *Sink) Quiet(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	last, known := s.heard[owner]
	if !known && len(s.heard) >= maxHeard {
		clear(s.heard) // owners come and go; a nudge too many is harmless
	}
	s.heard[owner] = now
	return !known || now.Sub(last) > quietAfter
}

// quietAfter is after how long without a put a put is worth a nudge. A processor that finds a queue
// empty asks again after 100 ms, then after twice that and so on: in the first second its next look
// is at most half a second off, and a nudge would hardly be quicker.
const quietAfter = time.Second

// maxHeard bounds the owners remembered for one queue.
const maxHeard = 1024

// alarm tells an operator of a queue in trouble, more and more seldom.
func (s *Sink) alarm(log func(string, ...any), err error, d failure.Decision) {
	said, fix := "a queue does not take messages; its tasks wait", []any{}
	if d.Kind == failure.Refuses || d.Kind == failure.NoRight {
		said = "a queue refuses the credential; its tasks wait"
	}
	if d.Fix != "" {
		fix = []any{"fix", d.Fix}
	}
	s.trouble.GoesOn(log, said, append(fix, "queue", s.name, "error", err)...)
}
