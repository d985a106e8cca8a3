package pump

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// The schedule of gets. An empty queue is asked again after pollBase, then
// after twice that, and so on up to a bound that keeps all idle queues together
// at pollIdleRate gets a second, but not below pollIdleLeast: with up to 50
// queues a first task waits at most 6 s, with 1,000 at most 100 s.
const (
	pollBase      = 100 * time.Millisecond
	pollIdleLeast = 5 * time.Second
	pollIdleRate  = 10

	// A get answers in about 20 ms, so one after the other brings 1,600 messages a
	// second. Four at once reach a queue's published 2,000, and 16 an account's
	// 20,000; more would only wait for the budget.
	getsPerQueue   = 4
	getsPerAccount = 16

	// A get that is not answered within a quarter of a second is on its way into
	// a throttled or dark queue: it gives back the room that was kept for its
	// messages, so that others can use it, and until its answer the queue is asked
	// nothing else. The other queues of the account are: where all of them hang,
	// each has its turn and then waits as well.
	getSlow = 250 * time.Millisecond

	// probe is how many messages a queue that has just failed is asked for. No
	// room is kept for them.
	probe = 8
)

// poller asks all queues of all accounts under one schedule: queues that are
// due, one get for each account in turn and within an account one for each
// queue in turn. Every get runs in a goroutine of its own, so a slow account
// costs the others nothing but its turn.
type poller struct {
	r    *processing
	wake chan struct{}

	mu       sync.Mutex // guards what follows and what it points to
	accounts []*polledAccount
	queues   map[*shard]*polled
	turn     int // the account that is asked next
	idleMost time.Duration
	later    time.Time // when the last of what was put back with a delay is visible
}

type polledAccount struct {
	queues []*polled
	turn   int // the queue that is asked next
	flying int // gets under way, but for those that take longer than getSlow
}

// polled is one queue in the schedule.
type polled struct {
	shard    *shard
	settler  *settler
	due      time.Time
	flying   int    // gets under way
	slow     int    // of them, those that take longer than getSlow
	width    int    // gets that may be under way at once
	asked    uint64 // gets so far
	empties  uint64 // empty gets since the last message
	failures uint64 // failed gets since the last answer
	// emptyAt is when the last get was sent, if it found nothing.
	emptyAt time.Time
	// hidden is until when messages may be invisible that this process took and
	// cannot settle: a get or a renewal was not answered.
	hidden time.Time
	// trouble is the failure of the last get, since when, and when it was logged.
	trouble           error
	troubled, alarmed time.Time
}

func newPoller(r *processing, shards []*shard) *poller {
	p := &poller{
		r: r, wake: make(chan struct{}, 1), queues: map[*shard]*polled{},
		idleMost: max(pollIdleLeast, time.Duration(len(shards))*time.Second/pollIdleRate),
	}
	index := map[*account]*polledAccount{}
	now := time.Now()
	for _, s := range shards {
		a := index[s.account]
		if a == nil {
			a = &polledAccount{}
			index[s.account] = a
			p.accounts = append(p.accounts, a)
		}
		q := &polled{shard: s, settler: r.settlers[s], due: now, width: 1}
		a.queues, p.queues[s] = append(a.queues, q), q
	}
	return p
}

// run polls until the context ends or the queues are idle for good
// (ProcessorOptions.UntilIdle); the error names what could not be read then.
// Gets may still be under way when it returns; those that wait for their budget
// are given up.
func (p *poller) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := p.round(ctx)
		if d := p.r.o.UntilIdle; d > 0 {
			over, again, err := p.idle(d)
			if over {
				p.farewell()
				return err
			}
			wait = min(wait, again)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.wake:
		}
	}
	return nil
}

// round starts every get that is due and has room, and says how long nothing
// more will be.
func (p *poller) round(ctx context.Context) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for p.startOne(ctx, now) {
	}
	wait := time.Hour
	for _, a := range p.accounts {
		for _, q := range a.queues {
			// What is due already waits for room or for an answer, which wakes the poller.
			if d := q.due.Sub(now); d > 0 && q.flying < q.width {
				wait = min(wait, d)
			}
		}
	}
	return wait
}

// startOne starts the next get in turn, if there is one.
func (p *poller) startOne(ctx context.Context, now time.Time) bool {
	for i := range p.accounts {
		at := (p.turn + i) % len(p.accounts)
		a := p.accounts[at]
		if a.flying >= getsPerAccount {
			continue
		}
		next := a.next(now)
		if next < 0 {
			continue
		}
		q := a.queues[next]
		limit, room := probe, reservation{}
		if q.failures == 0 {
			if room = p.r.backlog.reserve(); room.messages == 0 {
				return false // the backlog wakes the poller when there is room again
			}
			limit = room.messages
		} else if p.r.backlog.full() {
			return false
		}
		// Turns pass only with a get: were they to pass with every look, the same
		// few queues could be next each time there is room.
		p.turn, a.turn = (at+1)%len(p.accounts), (next+1)%len(a.queues)
		q.asked++
		q.flying++
		a.flying++
		p.r.gets.add(1)
		go p.get(ctx, a, q, limit, room)
		return true
	}
	return false
}

// next gives the account's next queue in turn that is due, -1 if none is.
func (a *polledAccount) next(now time.Time) int {
	for i := range a.queues {
		at := (a.turn + i) % len(a.queues)
		if q := a.queues[at]; q.flying < q.width && q.slow == 0 && !q.due.After(now) && !q.settler.full() {
			return at
		}
	}
	return -1
}

// get makes one get. When the processor stops, one that waits for its budget is
// given up; one that was sent is waited for, because it may have hidden 32
// messages that only its answer can release.
func (p *poller) get(ctx context.Context, a *polledAccount, q *polled, limit int, room reservation) {
	slow := time.AfterFunc(getSlow, func() { p.tooSlow(a, q, room) })
	msgs, sent, err := q.shard.get(ctx, p.r.wire, limit, p.r.o.Visibility)
	wasSlow := !slow.Stop()
	held := room
	if wasSlow {
		held = reservation{} // given back already
	}
	p.r.receive(q.shard, msgs, sent, held)

	p.mu.Lock()
	q.flying--
	if wasSlow {
		q.slow--
	} else {
		a.flying--
	}
	switch now := time.Now(); {
	case err != nil:
		if mayHaveHidden(err) {
			q.hide(now.Add(p.r.o.Visibility + hiddenLonger))
		}
		p.failed(q, err, now)
	case len(msgs) == 0:
		p.answered(q)
		q.width = 1
		q.emptyAt = sent
		q.due = now.Add(p.r.jitter.around(doubled(pollBase, p.idleMost, q.empties), "poll", q.shard.String(), q.asked))
		q.empties++
	default:
		p.answered(q)
		q.emptyAt = time.Time{}
		q.empties = 0
		q.due = now
		q.width = 1
		if len(msgs) == limit { // there is more where that came from
			q.width = min(q.flying+2, getsPerQueue)
		}
	}
	p.mu.Unlock()
	p.r.gets.done(1)
	signal(p.wake)
}

func (p *poller) tooSlow(a *polledAccount, q *polled, room reservation) {
	p.mu.Lock()
	q.slow++
	a.flying--
	p.mu.Unlock()
	p.r.backlog.giveBack(room)
	signal(p.wake) // another queue of the account may have its turn
}

func (p *poller) answered(q *polled) {
	if q.trouble != nil {
		p.r.log.Info("queue answers again", "queue", q.shard.String(), "after", time.Since(q.troubled).Round(time.Millisecond))
	}
	q.failures, q.trouble, q.alarmed = 0, nil, time.Time{}
}

// hiddenLonger is how much later than one visibility after its failure a
// request that may have acted may have hidden a message: it may act a little
// after it was given up, and the service counts whole seconds.
const hiddenLonger = time.Second

// mayHaveHidden reports whether a get that failed with err may have taken
// messages. A 503 refuses a request before it is looked at.
func mayHaveHidden(err error) bool {
	e, ok := asStorageError(err)
	return storage.Ambiguous(err) && !(ok && e.Status == http.StatusServiceUnavailable)
}

func (q *polled) hide(until time.Time) {
	if until.After(q.hidden) {
		q.hidden = until
	}
}

// hides notes that a message of a queue, which nobody here can settle, may be
// invisible until then.
func (p *poller) hides(s *shard, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[s].hide(until)
}

// comesBack notes when something that was put back will be visible.
func (p *poller) comesBack(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.later) {
		p.later = at
	}
}

// failed decides when a queue is asked again after a failed get. Such a get
// proves nothing about what is in the queue (window 4).
func (p *poller) failed(q *polled, err error, now time.Time) {
	q.width = 1
	full := func(base, limit time.Duration) time.Duration {
		// At least half of it, so that nothing comes back at once by chance.
		d := doubled(base, limit, q.failures)
		return d/2 + time.Duration(p.r.jitter.share("poll", q.shard.String(), q.asked)*float64(d/2))
	}
	var wait time.Duration
	switch storage.CodeOf(err) {
	case storage.Canceled:
		return // it was never sent: the processor stops
	case storage.Throttled:
		wait = full(200*time.Millisecond, 5*time.Second)
	case storage.MaybeDone:
		wait = full(time.Second, 30*time.Second)
	case storage.Auth:
		// The driver fetches a new token by itself; nothing is lost by asking
		// again, and nothing is blamed on a task (window 38).
		wait = full(5*time.Second, time.Minute)
	default:
		// Missing: the queue is never made here, that would hide the loss (window 33).
		wait = full(30*time.Second, time.Minute)
	}
	if e, ok := asStorageError(err); ok {
		wait += e.RetryAfter
	}
	q.failures++
	q.due = now.Add(wait)
	if q.trouble == nil {
		q.troubled = now
	}
	q.trouble = err
	p.alarm(q, now)
}

// alarm logs trouble when it begins and every ten minutes while it lasts. A
// throttle is no news until it has lasted: the budget handles it.
func (p *poller) alarm(q *polled, now time.Time) {
	level, what := slog.LevelWarn, "queue does not answer"
	switch storage.CodeOf(q.trouble) {
	case storage.Throttled:
		if q.failures < 8 {
			return
		}
		what = "queue is throttled"
	case storage.MaybeDone:
	case storage.Auth:
		level, what = slog.LevelError, "queue refuses the credential; it is left alone for a while"
	case storage.Missing:
		level, what = slog.LevelError, "queue is missing; only a distributor creates queues"
	default:
		level, what = slog.LevelError, "queue cannot be read"
	}
	if !q.alarmed.IsZero() && now.Sub(q.alarmed) < 10*time.Minute {
		return
	}
	q.alarmed = now
	p.r.log.Log(context.Background(), level, what, "queue", q.shard.String(), "error", q.trouble)
}

// unreachable is how long, at least, a queue must have failed before a
// processor that waits to be idle leaves without an answer from it.
const unreachable = 30 * time.Second

// farewell says what is left in the queues because it was put back for later
// than UntilIdle waits.
func (p *poller) farewell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := time.Until(p.later); left > 0 {
		p.r.log.Info("idle; tasks that were put back come back later, for whoever runs then", "last in", left.Round(time.Second))
	}
}

// idle reports whether nothing has been in hand for d and every queue has then
// answered "empty" once more, or when to look again: an answer from before may be
// older than a retry that was put back for less than d. What this process may
// have hidden by a request without an answer is waited for as well. A queue that keeps
// failing is waited for no longer than d or half a minute, and named in the error.
func (p *poller) idle(d time.Duration) (over bool, again time.Duration, err error) {
	// Under this lock no get is between bringing messages and saying so.
	p.mu.Lock()
	defer p.mu.Unlock()
	since, calm := p.r.hand.idleSince()
	if !calm {
		return false, time.Hour, nil // settling the last one wakes the poller
	}
	now := time.Now()
	if left := d - now.Sub(since); left > 0 {
		return false, left, nil
	}
	var silent []string
	again = time.Hour
	for _, a := range p.accounts {
		for _, q := range a.queues {
			switch {
			case q.trouble != nil:
				from := q.troubled
				if since.After(from) {
					from = since
				}
				if left := max(d, unreachable) - now.Sub(from); left > 0 {
					again = min(again, left)
				} else {
					silent = append(silent, fmt.Sprintf("%v (%v)", q.shard, q.trouble))
				}
			case q.flying > 0:
				again = min(again, requestTimeout) // its answer wakes the poller
			case q.hidden.After(now):
				again = min(again, q.hidden.Sub(now))
			case !q.emptyAt.Before(since.Add(d)) && !q.emptyAt.Before(q.hidden): // empty
			case q.due.After(now):
				q.due = now
				again = 0
			default: // waits for its turn
				again = min(again, pollBase)
			}
		}
	}
	if again != time.Hour {
		return false, again, nil
	}
	if len(silent) > 0 {
		slices.Sort(silent)
		return true, 0, fmt.Errorf("idle, but not every queue could be read: %s", strings.Join(silent, "; "))
	}
	return true, 0, nil
}
