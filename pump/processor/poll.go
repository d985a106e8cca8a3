package processor

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/backlog"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/ownership"
	"github.com/queuepump/queuepump/pump/storage"
)

// The schedule of gets. An empty queue is asked again after pollBase, then
// after twice that, and so on up to a bound that keeps all idle queues together,
// by whomever they are polled, at pollIdleRate gets a second, but not below
// pollIdleLeast: with up to 50 queues a first task waits at most 6 s, with 1,000 at
// most 100 s. A nudge shortens that (P8.2).
const (
	pollBase      = 100 * time.Millisecond
	pollIdleLeast = 5 * time.Second
	pollIdleRate  = 10

	// pollBehind is the longest back-off of a queue that gives as much as it is asked
	// for, all of it others'. Their messages are out of the way for up to passMost
	// after some deliveries (P7), but only if all are delivered that often: at 160 a
	// second and processor, three of them get past 500 of an owner who does not take his
	// in a minute. What many processors may do is bounded by their shares of the budget.
	pollBehind = 200 * time.Millisecond

	// A get answers in about 20 ms, so one after the other brings 1,600 messages a
	// second. Four at once reach a queue's published 2,000, and 16 an account's
	// 20,000; more would only wait for the budget, unless the account is far away (quickest.ahead).
	getsPerQueue   = 4
	getsPerAccount = 16
	getsMost       = 4 // times as many

	// A get that is not answered within a quarter of a second is on its way into
	// a throttled or dark queue: it gives back the room that was kept for its
	// messages, so that others can use it, and until its answer the queue is asked
	// nothing else. The other queues of the account are: where all of them hang,
	// each has its turn and then waits as well.
	getSlow = 250 * time.Millisecond

	// probe is how many messages a queue that has just failed is asked for, and one that
	// goes on failing is asked for a single one: requests that are never answered may
	// have hidden what they asked for. No room is kept for them.
	probe      = 8
	probeAgain = 3 // failures

	// pollTroubled is the longest back-off of a queue that does not answer, where few are
	// polled; where many are, troubledPart of an idle one's: it and queues.TroubledTimeout are
	// for how long a queue that answers again may stand idle.
	pollTroubled = 3 * time.Second
	troubledPart = 0.6
	troubledMost = 30 * time.Second

	// hintEvery is how often nudges make one queue due, however many arrive: four
	// gets a second are what a false hint may cost.
	hintEvery = 250 * time.Millisecond
)

// idleBound is how long an idle queue is left alone at most, where so many pairs
// of a queue and a processor that polls it are idle.
func idleBound(pairs int) time.Duration {
	return max(pollIdleLeast, time.Duration(pairs)*time.Second/pollIdleRate)
}

// poller asks this process's queues of all accounts under one schedule: queues
// that are due, one get for each account in turn and within an account one for
// each queue in turn. Every get runs in a goroutine of its own, so a slow account
// costs the others nothing but its turn. Which queues these are changes while
// it runs (follow).
type poller struct {
	r    *processing
	wake chan struct{}

	mu       sync.Mutex // guards what follows and what it points to
	accounts []*polledAccount
	queues   map[*queues.Queue]*polled // every queue that was ever in the schedule
	turn     int                       // the account that is asked next
	idleMost time.Duration
	dark     time.Time // when a queue was last found not to have answered for a while
	later    time.Time // when the last of what was put back with a delay is visible
	lacks    bool      // segments are on their way to this process, when that was last asked
	lively   lively
}

type polledAccount struct {
	account *queues.Account
	queues  []*polled
	turn    int // the queue that is asked next
	flying  int // gets under way, but for those that take longer than getSlow
	width   int // gets that may be under way at once
}

// polled is one queue in the schedule.
type polled struct {
	shard    *queues.Queue
	settler  *settler
	account  *polledAccount
	polls    bool // it is in the schedule
	unready  bool // it is the home of segments that are this process's and not ready
	due      time.Time
	flying   int    // gets under way
	slow     int    // of them, those that take longer than getSlow
	width    int    // gets that may be under way at once
	asked    uint64 // gets so far
	empties  uint64 // empty gets since the last message
	failures uint64 // failed gets since the last answer
	// emptyAt is when the last get was sent, if it found nothing for this process.
	emptyAt time.Time
	// heard is when the last get was sent that was answered.
	heard time.Time
	// read: what was visible before then has been delivered since; zero: not known.
	read time.Time
	// hinted is when a nudge last said that there is something, granted when one
	// last made the queue due.
	hinted, granted time.Time
	// hidden is until when messages may be invisible that this process took and
	// cannot settle: a get or a renewal was not answered.
	hidden time.Time
	// trouble is the failure of the last get, since when, and when it was logged.
	trouble           error
	troubled, alarmed time.Time
}

func newPoller(r *processing) *poller {
	return &poller{r: r, wake: make(chan struct{}, 1), queues: map[*queues.Queue]*polled{}, idleMost: pollIdleLeast}
}

// follow makes the given queues the ones that are polled, in this order. One that
// leaves the schedule keeps its entry, because what was taken from it is still to
// be settled; one that comes into it is due at once.
func (p *poller) follow(shards []*queues.Queue, idleMost time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleMost = idleMost
	now := time.Now()
	in := make(map[*queues.Queue]bool, len(shards))
	index := map[*queues.Account]*polledAccount{}
	for _, a := range p.accounts {
		a.queues = a.queues[:0:0]
		index[a.account] = a
	}
	for _, s := range shards {
		in[s] = true
		a := index[s.Account]
		if a == nil {
			a = &polledAccount{account: s.Account, width: getsPerAccount}
			index[s.Account] = a
			p.accounts = append(p.accounts, a)
		}
		q := p.queues[s]
		if q == nil {
			q = &polled{shard: s, account: a, settler: p.r.newSettler(s)}
			p.queues[s] = q
		}
		if !q.polls {
			q.polls, q.due, q.width, q.empties, q.emptyAt, q.read = true, now, 1, 0, time.Time{}, time.Time{}
		}
		a.queues = append(a.queues, q)
	}
	for s, q := range p.queues {
		q.polls = in[s]
	}
	for _, a := range p.accounts {
		a.turn %= max(len(a.queues), 1)
	}
	backoff.Signal(p.wake)
}

// leave notes which queues, by shard, are the homes of segments that are not ready: while the lobby
// is full they are not asked.
func (p *poller) leave(s *ownership.Assignment, unready []bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, q := range s.Shards {
		if polled := p.queues[q]; polled != nil {
			polled.unready = unready[i]
		}
	}
	backoff.Signal(p.wake)
}

// nudge makes a queue due, if it is one that this process polls (P8.2). A queue in trouble
// keeps to its back-off: a hint is no reason to believe that it answers again.
func (p *poller) nudge(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.shard.String() == queue && q.failures == 0 {
				q.hinted = now
				q.hint(now)
				backoff.Signal(p.wake)
				return
			}
		}
	}
}

// hint makes a queue due because of a nudge, as often as hintEvery allows.
func (q *polled) hint(now time.Time) {
	at := now
	if next := q.granted.Add(hintEvery); next.After(now) {
		at = next
	}
	if q.due.After(at) {
		q.due, q.granted = at, at
	}
}

// run polls until the context ends or the queues are idle for good
// (Options.UntilIdle); the error names what could not be read then.
// Gets may still be under way when it returns; those that wait for their budget
// are given up.
func (p *poller) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		p.r.Cfg.Private.Seeding.Turn.Wait("poll")
		select { // what has woken it until now is looked at now
		case <-p.wake:
		default:
		}
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
	if c := p.r.recorder; c != nil && c.Full() {
		return false // a commit wakes the poller
	}
	full := p.r.lobby.full()
	for i := range p.accounts {
		at := (p.turn + i) % len(p.accounts)
		a := p.accounts[at]
		if a.flying >= a.width {
			continue
		}
		next := a.next(now, full)
		if next < 0 {
			continue
		}
		q := a.queues[next]
		limit, room := probe, backlog.Reservation{}
		if q.failures == 0 {
			if room = p.r.backlog.Reserve(); room.Messages == 0 {
				return false // the backlog wakes the poller when there is room again
			}
			limit = room.Messages
		} else if p.r.backlog.Full() {
			return false
		} else if q.failures >= probeAgain {
			limit = 1
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

// next gives the account's next queue in turn that is due, -1 if none is. While the lobby is full
// nothing is got that may have to wait there.
func (a *polledAccount) next(now time.Time, full bool) int {
	for i := range a.queues {
		at := (a.turn + i) % len(a.queues)
		if q := a.queues[at]; q.flying < q.width && q.slow == 0 && !q.due.After(now) && !q.settler.full() && !(full && q.unready) {
			return at
		}
	}
	return -1
}

// get makes one get. When the processor stops, one that waits for its budget is
// given up; one that was sent is waited for, because it may have hidden 32
// messages that only its answer can release.
func (p *poller) get(ctx context.Context, a *polledAccount, q *polled, limit int, room backlog.Reservation) {
	slow := time.AfterFunc(getSlow, func() { p.tooSlow(a, q, room) })
	lease := p.r.terms.Lease()
	msgs, sent, err := q.shard.Get(ctx, p.r.Wire, limit, lease)
	wasSlow := !slow.Stop()
	held := room
	if wasSlow {
		held = backlog.Reservation{} // given back already
	}
	own := p.r.receive(q, msgs, sent, lease, limit, held)
	tell := false // the others of messages that come without nudges

	p.mu.Lock()
	if err == nil {
		q.reads(msgs, sent, lease, limit)
	}
	q.flying--
	if wasSlow {
		q.slow--
	} else {
		a.flying--
	}
	switch now := time.Now(); {
	case err != nil:
		if mayHaveHidden(err) {
			q.hide(now.Add(lease + leases.HiddenLonger))
		}
		p.failed(q, err, now)
	case own == 0: // others' messages are nothing for the back-off (P7)
		p.answered(q, sent)
		q.width = 1
		q.emptyAt = time.Time{}
		if len(msgs) < limit { // and none of our own was behind them
			q.emptyAt = sent
		}
		most := p.longest(now)
		if len(msgs) == limit { // our own may be behind them
			most = pollBehind
		}
		q.due = now.Add(p.r.Jitter.Around(backoff.Doubled(pollBase, most, q.empties), "poll", q.shard.String(), q.asked))
		q.empties++
		if q.hinted.After(sent) { // the message may have come after this get looked
			q.hint(now)
		}
	default:
		tell = q.unannounced(msgs) && p.enliven(now)
		p.answered(q, sent)
		q.emptyAt = time.Time{}
		q.empties = 0
		q.due = now
		q.width = 1
		// There is more where that came from. Where most of it is others', more gets
		// would only take it out of their reach.
		if len(msgs) == limit && 2*own >= limit {
			q.width = min(q.flying+2, q.shard.Gets.Ahead(q.shard.Budget.Rate()/storage.MaxGet, getsPerQueue, getsMost*getsPerQueue))
			a.width = q.shard.Gets.Ahead(a.account.Budget.Rate()/storage.MaxGet, getsPerAccount, getsMost*getsPerAccount)
		}
	}
	p.mu.Unlock()
	if m := p.r.Member.Load(); tell && m != nil {
		m.NudgeTraffic()
	}
	p.r.gets.done(1, true)
	backoff.Signal(p.wake)
}

func (p *poller) tooSlow(a *polledAccount, q *polled, room backlog.Reservation) {
	p.mu.Lock()
	q.slow++
	a.flying--
	p.mu.Unlock()
	p.r.backlog.GiveBack(room)
	backoff.Signal(p.wake) // another queue of the account may have its turn
}

func (p *poller) answered(q *polled, sent time.Time) {
	q.heard = sent
	if q.trouble != nil {
		p.r.Log.Info("queue answers again", "queue", q.shard.String(), "after", time.Since(q.troubled).Round(time.Millisecond))
	}
	if storage.Is(q.trouble, storage.MaybeDone) {
		q.account.answers(time.Now())
	}
	q.failures, q.trouble, q.alarmed = 0, nil, time.Time{}
}

// answers makes the queues of an account due that did not answer: one of them has.
func (a *polledAccount) answers(now time.Time) {
	for _, q := range a.queues {
		if storage.Is(q.trouble, storage.MaybeDone) && q.due.After(now) {
			q.due = now
		}
	}
}

// mayHaveHidden reports whether a get that failed with err may have taken
// messages. A 503 refuses a request before it is looked at.
func mayHaveHidden(err error) bool {
	e, ok := queues.AsError(err)
	return storage.Ambiguous(err) && !(ok && e.Status == http.StatusServiceUnavailable)
}

func (q *polled) hide(until time.Time) {
	if until.After(q.hidden) {
		q.hidden = until
	}
}

// hides notes that a message of a queue, which nobody here can settle, may be
// invisible until then.
func (p *poller) hides(s *queues.Queue, until time.Time) {
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
