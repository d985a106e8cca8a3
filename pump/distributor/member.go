package distributor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/distributor/internal/send"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// membership is a Distributor's part in the cluster, which lasts over all distributions of one Run.
// A distributor is a member for its share of the budgets (P8.1), for marks (P6.3), for nudges
// (P8.2) and to be seen, and does without all that while it cannot join: thousands of clients may
// distribute by themselves (origins H6), and must not wait for a row. A sender joins only while it
// needs to (sender_guest.go).
type membership struct {
	d      *Distributor
	member atomic.Pointer[member.Member] // nil until joined
	tasks  atomic.Uint64                 // acknowledged

	visits  bool                         // a guest until it needs to be a member
	seen    atomic.Pointer[cluster.View] // a guest's last look
	put     atomic.Bool                  // something since then
	nudges  *nudging.Sender              // a guest's
	samples *sampling.Sampler            // nil: it never samples the queues

	ctx     context.Context // its end is the end of joining
	stop    context.CancelFunc
	once    sync.Once
	wg      sync.WaitGroup // what joins, and what makes late queues
	makes   atomic.Bool    // it does the latter
	arrive  sync.Once
	arrives chan struct{} // closed when the cluster was seen, or will not be any more

	mu      sync.Mutex // guards pending
	pending []putInto  // acknowledged before it was known which member that concerns

	reported      time.Time // when report was last called; it is called by one goroutine at a time
	reportedTasks uint64    // what the member said then
}

// putInto is a put of a segment into a queue.
type putInto struct {
	sink    *send.Sink
	segment uint32
}

// Puts wait until the cluster is known: at most maxPending, without those of the last lookBack.
const (
	maxPending = 4096
	lookBack   = 64
)

func newMembership(d *Distributor) *membership {
	s := &membership{
		d: d, visits: closing.OfClient(d.mode), arrives: make(chan struct{}),
		nudges: nudging.NewSender(context.Background(), &d.cfg.Config),
	}
	if !s.visits {
		s.samples = sampling.New(&d.cfg.Config, d.fleet, s.view)
	}
	// its end is end's business, not that of Run's context
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// join makes this process a member, beside everything else, as soon as the
// cluster's rows can be reached.
func (s *membership) join() {
	s.once.Do(func() {
		s.wg.Go(func() {
			defer s.arrived()
			if s.visits {
				s.visit()
			} else {
				s.enter()
			}
		})
	})
}

// makeLate makes the queues that were late, beside everything else.
func (s *membership) makeLate() {
	if s.makes.Swap(true) {
		return
	}
	s.wg.Go(func() {
		defer s.makes.Store(false)
		s.d.router.MakeLate(s.ctx, waits.Jitter(s.d.cfg.Instance))
	})
}

func (s *membership) arrived() { s.arrive.Do(func() { close(s.arrives) }) }

func (s *membership) enter() {
	d := s.d
	m, err := member.Join(s.ctx, &d.cfg.Config, d.fleet, d.router.Current().Workload, member.Options{
		Role: cluster.RoleDistributor, Report: s.report, Changed: s.changed, Lost: d.router.Lost,
		Beat: d.times().Beat, Lease: d.times().Lease, Optional: true,
		Stake: failure.Work, // the distribution has begun, and goes on meanwhile
	})
	if err != nil { // never, of an optional membership
		d.cfg.Log.Error("the cluster cannot be joined", "error", err)
		return
	}
	s.member.Store(m)
	m.Heed()
	if s.samples != nil {
		s.wg.Go(func() { s.samples.Keep(s.ctx) })
	}
	if v := m.View(); v != nil {
		s.changed(v)
	}
}

// changed takes a look at the cluster. The first look tells which members the puts before it
// concern.
func (s *membership) changed(v *cluster.View) {
	s.d.router.See(v)
	if s.member.Load() != nil {
		s.notifyOwners(v)
	}
}

// notifyOwners tells the members that the puts before a look concern.
func (s *membership) notifyOwners(v *cluster.View) {
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, u := range pending {
		s.notifyOwner(v, u)
	}
}

// view is what is known of the cluster; nil: nothing.
func (s *membership) view() *cluster.View {
	if m := s.member.Load(); m != nil {
		return m.View()
	}
	return s.seen.Load()
}

const (
	// leaveSlow is what leaving may take. It is one request; others remove a row that stays behind
	// when it has been silent for long enough.
	leaveSlow = 2 * time.Second
	// sayLast is how long a run that ended before its process had joined waits for the join, to tell
	// the owners of their messages: without a nudge those would wait longer in the queue.
	sayLast = time.Second
)

// end ends the membership. Ctx is Run's.
func (s *membership) end(ctx context.Context) {
	s.once.Do(s.arrived) // it never began to join
	s.mu.Lock()
	pending := len(s.pending) > 0
	s.mu.Unlock()
	if pending && ctx.Err() == nil {
		waits.Sleep(context.WithoutCancel(ctx), sayLast, s.arrives)
	}
	s.stop()
	s.wg.Wait()
	s.samples.Last(context.WithoutCancel(ctx))
	s.leave(ctx)
	s.nudges.Close()
}

// leave ends the membership if there is one.
func (s *membership) leave(ctx context.Context) {
	if m := s.member.Swap(nil); m != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveSlow)
		defer cancel()
		m.Leave(ctx)
	}
}

// delivered is told of each envelope of tasks that a queue has acknowledged.
func (s *membership) delivered(into *send.Sink, m *pack.Message) {
	s.tasks.Add(uint64(m.Tasks))
	u := putInto{into, m.Segment}
	s.put.Store(true)
	if v := s.view(); v != nil {
		s.notifyOwner(v, u)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) < maxPending &&
		!slices.Contains(s.pending[max(0, len(s.pending)-lookBack):], u) {
		s.pending = append(s.pending, u)
	}
}

// notifyOwner tells a segment's owner of a message in a queue, unless the owner has just had
// another there from this process.
func (s *membership) notifyOwner(v *cluster.View, u putInto) {
	owner := ""
	if by, ok := v.OwnerOf(u.segment); ok {
		owner = by.Instance
	}
	if !u.sink.Quiet(owner) {
		return
	}
	nudges := s.nudges
	if m := s.member.Load(); m != nil {
		nudges = m.Nudges
	}
	nudges.NudgeOwner(v, s.d.cfg.Instance, u.sink.String(), u.segment)
}

// report is what a distributor says of itself in each beat.
func (s *membership) report(r *cluster.Report) {
	now, tasks := time.Now(), s.tasks.Load()
	r.Tasks, r.Samples, r.Day = tasks, s.samples != nil, s.samples.Day()
	if past := now.Sub(s.reported); !s.reported.IsZero() && past > 0 {
		r.Rate = float64(tasks-s.reportedTasks) / past.Seconds()
	}
	s.reported, s.reportedTasks = now, tasks
	r.Trouble = s.d.router.Current().Trouble()
}

// Nudged takes a hint from another process: the cluster's rows are worth a look.
// It never waits, and may be called at any time.
func (d *Distributor) Nudged(n pump.Nudge) {
	s := d.running.Load()
	if s == nil || n.Queue != "" || n.Gate != "" || n.Traffic {
		return
	}
	if m := s.member.Load(); m != nil {
		m.Nudged(n)
	}
}
