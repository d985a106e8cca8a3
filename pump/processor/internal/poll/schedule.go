package poll

import (
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/internal/upkeep"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/record"
	"github.com/queuepump/queuepump/pump/storage"
)

// The schedule of gets. An empty queue is asked again after pollBase, then after twice that, and so
// on up to a bound that keeps all idle queues together, with any pollers, at upkeep.IdleRate gets a
// second, but not below upkeep.IdleLeast: with up to 50 queues a first task waits at most 6 s, with
// 1,000 at most 100 s. A nudge shortens that (P8.2).
const (
	pollBase = 100 * time.Millisecond

	// pollBehind is the longest back-off of a queue that gives as much as it is asked for, all of it
	// other owners' messages. After some deliveries those are out of the way for up to passMost (P7),
	// but only if all are delivered that often: at 160 a second and processor, three processors get
	// past 500 messages that their owner does not take within a minute. Shares of the budget bound
	// what many processors may do.
	pollBehind = 200 * time.Millisecond

	// pollTroubled is the longest back-off of a queue that does not answer, if few queues are polled;
	// if many are, it is troubledPart of an idle queue's. This back-off and queues.TroubledTimeout are
	// how long a queue that answers again may stand idle.
	pollTroubled = 3 * time.Second
	troubledPart = 0.6
	troubledMost = 30 * time.Second

	// hintEvery is how often nudges make one queue due at most: false hints may cost four gets a
	// second.
	hintEvery = 250 * time.Millisecond

	alarmEvery = 10 * time.Minute // while a queue does not answer
)

// Parts are the parts of a processor that the poller asks.
type Parts struct {
	Backlog  *message.Backlog
	Timing   *leases.Timing
	Recorder func() *record.Recorder // gives nil if nothing is recorded
	// Receive takes what a get brought, and says how many of the messages are this process's to
	// work on, and how many of these are of runs that are dropped.
	Receive func(g Get) (own, aside int)
	// Blocked gives a function for a queue: it reports that too many of the queue's messages wait to
	// be settled, so the queue is not to be asked.
	Blocked func(q *queues.Queue) func() bool
	// LobbyFull: messages that may have to wait until their segment is ready are not to be got, while
	// so many such messages are under way.
	LobbyFull func(coming int) bool
	UntilIdle time.Duration // Options.UntilIdle
}

// Get is what a get brought.
type Get struct {
	Queue    *queues.Queue
	Messages []storage.Message
	Sent     time.Time
	Lease    time.Duration // that it asked for
	Limit    int           // messages that it asked for
	Room     message.Reservation
}

// Poller asks this process's queues of all accounts under one schedule: due queues only, one get
// for each account in turn and within an account one for each queue in turn. Every get runs in a
// goroutine of its own, so a slow account costs the others nothing but its turn. The queues change
// while it runs (Follow).
type Poller struct {
	*base.Env
	Parts
	wake   chan struct{}
	Rounds waits.Counter // of the schedule, with a get or without
	said   logs.Kinds    // of queues

	mu       sync.Mutex // guards what follows and what it points to
	accounts []*account
	queues   map[*queues.Queue]*entry // every queue that was ever in the schedule
	turn     int                      // the account that is asked next
	idleMost time.Duration
	dark     time.Time // when a queue was last found not to have answered for a while
	later    time.Time // when the last message put back with a delay is visible
	// segments are on their way to this process, or it is paused, when that was last asked
	lacks  bool
	paused bool // nothing is got
	haste  haste
	swept  int // queues that are swept
	// maybeWaiting counts the messages that gets under way ask for, and that may have to wait until
	// their segments are ready.
	maybeWaiting int
}

type account struct {
	account *queues.Account
	queues  []*entry
	turn    int // the queue that is asked next
	flying  int // gets under way, without those that take longer than getSlow
	width   int // gets that may be under way at once
}

// entry is one queue in the schedule.
type entry struct {
	queue    *queues.Queue
	blocked  func() bool // too much of it waits to be settled: it is not asked for more
	account  *account
	polls    bool // it is in the schedule
	probes   bool // only to see when its account can be read again; see Cannot
	swept    bool // what the last get brought is mostly dropped or paused, or may be; see Sweep
	unready  bool // it is the home of segments that are this process's and not ready
	due      time.Time
	flying   int       // gets under way
	slow     int       // those that take longer than getSlow
	width    int       // gets that may be under way at once
	asked    uint64    // gets so far
	askedAt  time.Time // when the last of them was started
	empties  uint64    // empty gets since the last message
	failures uint64    // failed gets since the last answer
	// emptyAt is when the last get was sent, if it found nothing for this process.
	emptyAt time.Time
	// heard is when the last get was sent that was answered.
	heard time.Time
	// read: what was visible before then has been delivered since; zero: not known.
	read    time.Time
	foreign bool // other programs put into it
	// hinted is when the queue last got a nudge, granted when a nudge last made it due.
	hinted, granted time.Time
	// hidden is until when messages that this process took and cannot settle may be invisible: a get
	// or a renewal was not answered.
	hidden time.Time
	// trouble is the failure of the last get, and since when.
	trouble  error
	troubled time.Time
	alarm    logs.Limited
}

// New makes a poller that has nothing to poll.
func New(env *base.Env, parts Parts) *Poller {
	return &Poller{
		Env: env, Parts: parts, wake: make(chan struct{}, 1), queues: map[*queues.Queue]*entry{},
		idleMost: upkeep.IdleLeast, said: logs.Kinds{Every: logs.PerTask},
	}
}

// Wake has the poller look again at what it may get.
func (p *Poller) Wake() { waits.Signal(p.wake) }

// Follow makes the queues of an assignment the ones that are polled, in their order. A queue that
// leaves the schedule keeps its entry, because messages taken from it are still to be settled. A
// new queue is due at once.
func (p *Poller) Follow(assigned *base.Assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shards := assigned.Polled()
	shards, probes := append(shards, p.probes(assigned, shards)...), len(shards)
	p.idleMost = upkeep.IdlePause(assigned.Pairs)
	now := time.Now()
	in := make(map[*queues.Queue]bool, len(shards))
	index := map[*queues.Account]*account{}
	for _, a := range p.accounts {
		a.queues = a.queues[:0:0]
		index[a.account] = a
	}
	for i, s := range shards {
		in[s] = true
		a := index[s.Account]
		if a == nil {
			a = &account{account: s.Account, width: getsPerAccount}
			index[s.Account] = a
			p.accounts = append(p.accounts, a)
		}
		q := p.queues[s]
		if q == nil {
			q = &entry{queue: s, account: a, blocked: p.Blocked(s), alarm: logs.Limited{Every: alarmEvery}}
			p.queues[s] = q
		}
		if !q.polls || q.probes && i < probes {
			q.polls, q.due, q.width, q.empties, q.emptyAt, q.read = true, now, 1, 0, time.Time{}, time.Time{}
		}
		q.foreign, q.probes = assigned.Foreign(s), i >= probes
		a.queues = append(a.queues, q)
	}
	for s, q := range p.queues {
		if q.polls = in[s]; !q.polls {
			p.sweep(q, false)
		}
	}
	for _, a := range p.accounts {
		a.turn %= max(len(a.queues), 1)
	}
	waits.Signal(p.wake)
}

// Pause ends getting, or lets it go on with all queues due. Gets under way go on.
func (p *Poller) Pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = on
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if !on && q.failures == 0 {
				q.due, q.empties, q.emptyAt = time.Now(), 0, time.Time{}
			}
		}
	}
	waits.Signal(p.wake)
}

// Sweep has each queue asked once for as many messages as a get has, whether there is room for
// their tasks or not. A queue is asked again as long as most of its messages are dropped or paused:
// they take no room.
func (p *Poller) Sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			p.sweep(q, true)
			if q.failures == 0 {
				q.due = time.Now()
			}
		}
	}
	waits.Signal(p.wake)
}

func (p *Poller) sweep(q *entry, on bool) {
	if on != q.swept {
		q.swept = on
		p.swept += map[bool]int{true: 1, false: -1}[on]
	}
}

// MarkUnready notes which queues, by shard, are the homes of segments that are not ready: while
// Parts.LobbyFull they are not asked.
func (p *Poller) MarkUnready(s *base.Assignment, unready []bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, q := range s.Shards {
		if polled := p.queues[q]; polled != nil {
			polled.unready = unready[i]
		}
	}
	waits.Signal(p.wake)
}

// Nudge makes a queue due, if this process polls it (P8.2). A queue in trouble keeps to its
// back-off: a hint does not show that the queue answers again.
func (p *Poller) Nudge(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.queue.String() == queue && q.failures == 0 {
				q.hinted = now
				q.hint(now)
				waits.Signal(p.wake)
				return
			}
		}
	}
}

// hint makes a queue due because of a nudge, as often as hintEvery allows.
func (q *entry) hint(now time.Time) {
	at := now
	if next := q.granted.Add(hintEvery); next.After(now) {
		at = next
	}
	if q.due.After(at) {
		q.due, q.granted = at, at
	}
}

// wanted says which queues may be asked now.
type wanted struct {
	full  bool // none that brings what may have to wait in the lobby, because that is full
	swept bool // only those that are swept
	// before is when they must have been asked last; zero: at any time. It is not read while the
	// process has nothing to spend.
	before time.Time
}

// next gives the account's next due queue in turn, or -1.
func (a *account) next(now time.Time, w wanted) int {
	for i := range a.queues {
		at := (a.turn + i) % len(a.queues)
		q := a.queues[at]
		if q.flying < q.width && q.slow == 0 && !q.due.After(now) && !q.blocked() &&
			!(w.full && q.unready) &&
			(q.swept || !w.swept) && (w.before.IsZero() || q.askedAt.Before(w.before)) {
			return at
		}
	}
	return -1
}

// makeDue makes the queues of an account due that did not answer: one of them has.
func (a *account) makeDue(now time.Time) {
	for _, q := range a.queues {
		if storage.Is(q.trouble, storage.MaybeDone) && q.due.After(now) {
			q.due = now
		}
	}
}

func (q *entry) noteHidden(until time.Time) {
	if until.After(q.hidden) {
		q.hidden = until
	}
}

// NoteHidden notes that a message of a queue, which this process cannot settle, may be
// invisible until then.
func (p *Poller) NoteHidden(s *queues.Queue, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[s].noteHidden(until)
}

// NoteLater notes when something that was put back will be visible.
func (p *Poller) NoteLater(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.later) {
		p.later = at
	}
}

// LastAnswer is when the last answered get of a queue was sent, and whether the queue answered the
// very last get.
func (p *Poller) LastAnswer(s *queues.Queue) (at time.Time, well bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[s]
	if q == nil {
		return time.Time{}, false
	}
	return q.heard, q.polls && q.trouble == nil && !q.heard.IsZero()
}

// Queues is how many queues are in the schedule.
func (p *Poller) Queues() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		n += len(a.queues)
	}
	return n
}

// Trouble names the first queue that does not answer.
func (p *Poller) Trouble() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if q.trouble != nil {
				return fmt.Sprintf("queue %v: %v", q.queue, storage.CodeOf(q.trouble))
			}
		}
	}
	return ""
}
