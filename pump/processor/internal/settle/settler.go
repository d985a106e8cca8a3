package settle

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/poll"
	"github.com/queuepump/queuepump/pump/processor/internal/record"
	"github.com/queuepump/queuepump/pump/processor/internal/trial"
	"github.com/queuepump/queuepump/pump/storage"
)

// How many messages are settled at the same time, and may wait to be.
const (
	// settlersPerQueue is how many messages of one queue are settled at the same time: at 15 ms a
	// delete, a queue's published 2,000 a second. The number grows with the time of a delete, up to
	// settlersMost (Ahead of package queues). Queues do not share them: a queue that hangs or is
	// throttled would take them all.
	settlersPerQueue = 32
	settlersMost     = 256
	// unsettledLeast and unsettledMost bound how many messages of a queue, and of
	// an account, may wait to be settled before it is not asked for more. Between them
	// the bound is what its budget can settle in a quarter of a lease: otherwise
	// leases run out faster than deletes get through (window 27).
	unsettledLeast = 64
	unsettledMost  = 4096
)

// Parts are the parts of a processor that settling uses.
type Parts struct {
	Timing   *leases.Timing
	Keeper   *message.Keeper
	Backlog  *message.Backlog
	Poller   *poll.Poller
	Recorder *record.Recorder // nil: nothing is recorded
	Results  *record.Keeper   // nil: results are not kept
	Trials   *trial.Trials
	// Disown ends that a message is in hand of its segment.
	Disown func(d *message.Delivery)
}

// Settlers settle the messages of one processor. Each queue has a settler of its own.
type Settlers struct {
	*base.Env
	Parts
	hints   *ownerHints
	cutOnce sync.Once // a delay was cut that was asked for
	refuse  sync.Map  // queues that took no message that was to be brought home, until they take one

	mu       sync.Mutex // guards what follows
	of       map[*queues.Queue]*Settler
	accounts map[*queues.Account]*unsettled
}

// New makes the settlers of a processor.
func New(env *base.Env, parts Parts) *Settlers {
	return &Settlers{
		Env: env, Parts: parts, hints: &ownerHints{Env: env, waits: map[ownerHint]bool{}},
		of: map[*queues.Queue]*Settler{}, accounts: map[*queues.Account]*unsettled{},
	}
}

// Settler settles the messages of one queue, with goroutines that end when
// there is nothing to do. Handlers and gets never wait for it.
type Settler struct {
	all     *Settlers
	shard   *queues.Queue
	waiting atomic.Int64 // messages from their last outcome until they are settled
	account *unsettled

	mu      sync.Mutex // guards what follows
	queue   []*message.Delivery
	running int
}

// unsettled is what waits to be settled in all queues of one account.
type unsettled struct {
	messages atomic.Int64
	// bytes of their texts. From mostBytes on the account is not asked for more: all accounts together
	// then hold half of Options.MaxBytes, and an account that takes no puts leaves room for the
	// others.
	bytes     atomic.Int64
	mostBytes int64
}

// leastUnsettledBytes is what every account may hold at least.
const leastUnsettledBytes = 4 * storage.MaxText

// Of gives the settler of a queue.
func (r *Settlers) Of(q *queues.Queue) *Settler {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.of[q]; known != nil {
		return known
	}
	a := r.accounts[q.Account]
	if a == nil {
		a = &unsettled{mostBytes: max(r.MaxBytes/2/int64(len(r.Queues.Names())), leastUnsettledBytes)}
		r.accounts[q.Account] = a
	}
	r.of[q] = &Settler{all: r, shard: q, account: a}
	return r.of[q]
}

// Add takes a message whose tasks all have their verdicts.
func (s *Settler) Add(d *message.Delivery) {
	s.waiting.Add(1)
	s.account.messages.Add(1)
	s.holds(d, len(d.Text))
	s.resume(d)
}

// holds says how much text of a message is still in memory.
func (s *Settler) holds(d *message.Delivery, bytes int) {
	more := int64(bytes - d.Held)
	d.Held = bytes
	now, most := s.account.bytes.Add(more), s.account.mostBytes
	if now < most && now-more >= most {
		s.all.Poller.Wake()
	}
}

// done takes a settled message out of the count.
func (s *Settler) done(d *message.Delivery) {
	s.holds(d, 0)
	s.account.messages.Add(-1)
	s.waiting.Add(-1)
}

func (s *Settler) resume(d *message.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, d)
	if s.running < s.shard.Settles.Ahead(s.shard.Budget.Rate(), settlersPerQueue, settlersMost) {
		s.running++
		go s.run()
	}
}

func (s *Settler) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running--
			s.queue = nil
			s.mu.Unlock()
			return
		}
		d := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		// The handler that gave the last verdict goes on at the same time.
		s.all.Cfg.Sim.Seeding.Turn.Wait("settle", s.shard.Account.Name, d.ID)
		s.all.settle(d)
		s.all.Trials.Finish(d)
	}
}

// Full reports whether too much waits to be settled to fetch more.
func (s *Settler) Full() bool {
	return s.tooMany(&s.waiting, s.shard.Budget) ||
		s.tooMany(&s.account.messages, s.shard.Account.Budget) ||
		s.account.bytes.Load() >= s.account.mostBytes
}

func (s *Settler) tooMany(waiting *atomic.Int64, b *queues.Budget) bool {
	n := waiting.Load()
	return n >= unsettledLeast &&
		n >= min(int64(b.Rate()*s.all.Timing.Lease().Seconds()/4), unsettledMost)
}

func settlerFor(d *message.Delivery) *Settler { return d.Settler.(*Settler) }

// Park takes a message that waits for a commit out of the count of those that wait
// for a request.
func (s *Settler) Park(d *message.Delivery) {
	d.Recording.Store(true)
	s.account.messages.Add(-1)
	s.waiting.Add(-1)
}

// Unpark goes on with a message that was parked.
func (s *Settler) Unpark(d *message.Delivery) {
	d.Recording.Store(false)
	s.account.messages.Add(1)
	s.waiting.Add(1)
	s.resume(d)
}

// ownerHints tells owners when a message of theirs that this process has put back becomes visible.
// In a queue that many share, other processors would otherwise go on getting it by chance, and the
// last of a thousand messages would wait for minutes (P7). If a queue gives as many messages as it
// is asked for, its owners read it all the time, and are told only of messages that were hidden for
// a while.
type ownerHints struct {
	*base.Env

	mu    sync.Mutex // guards what follows
	waits map[ownerHint]bool
}

// ownerHint is about one queue to one owner. One is enough at a time.
type ownerHint struct {
	queue *queues.Queue
	owner string
}

// sendLater tells the owner of a message that was put back, when its delay is over.
func (h *ownerHints) sendLater(d *message.Delivery, delay time.Duration) {
	if !d.Whole.Hint {
		return
	}
	owner, live := h.Assignment.Load().View.OwnerOf(d.Header.Segment)
	if !live || owner.Instance == h.Cfg.Instance {
		return
	}
	key := ownerHint{d.Queue, owner.Instance}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[key] {
		return
	}
	h.waits[key] = true
	segment := d.Header.Segment
	time.AfterFunc(leases.InWholeSeconds(delay), func() {
		h.mu.Lock()
		delete(h.waits, key)
		h.mu.Unlock()
		h.Member.Load().NudgeOwner(d.Queue, segment)
	})
}
