package distributor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/nudging"
)

// sending is one Run of a Distributor: what lasts over all its distributions,
// which is its part in the cluster. A distributor is a member for its share of
// the budgets (P8.1), for marks (P6.3), for nudges (P8.2) and to be seen, and does
// without all that as long as it cannot join: thousands of clients may distribute
// by themselves (origins H6), and none of them shall wait for a row. A sender joins only
// while it needs to (sender_guest.go).
type sending struct {
	d      *Distributor
	member atomic.Pointer[member.Member] // nil until joined
	tasks  atomic.Uint64                 // acknowledged

	visits bool                         // a guest until it needs to be a member
	seen   atomic.Pointer[cluster.View] // a guest's last look
	put    atomic.Bool                  // something since then
	nudges *nudging.Sender              // a guest's

	ctx     context.Context // its end is the end of joining
	stop    context.CancelFunc
	once    sync.Once
	wg      sync.WaitGroup // what joins
	arrive  sync.Once
	arrives chan struct{} // closed when the cluster was seen, or will not be any more

	mu      sync.Mutex // guards pending
	pending []putInto  // acknowledged before it was known whom that concerns

	reported      time.Time // when report was last called; it is called by one goroutine at a time
	reportedTasks uint64    // what it said then
}

// putInto is a put of a segment into a queue.
type putInto struct {
	sink    *sink
	segment uint32
}

// What waits for the cluster to be known: at most maxPending puts, and none that
// is among the last lookBack.
const (
	maxPending = 4096
	lookBack   = 64
)

func newSending(d *Distributor) *sending {
	s := &sending{d: d, visits: d.mode == closing.ModeClient, arrives: make(chan struct{}), nudges: nudging.NewSender(context.Background(), &d.cfg)}
	s.ctx, s.stop = context.WithCancel(context.Background()) // its end is end's business, not that of Run's context
	return s
}

// join makes this process a member, beside everything else, as soon as the
// cluster's rows can be reached.
func (s *sending) join() {
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

func (s *sending) arrived() { s.arrive.Do(func() { close(s.arrives) }) }

func (s *sending) enter() {
	d := s.d
	m, err := member.Join(s.ctx, &d.cfg, d.fleet, d.router.Current().workload, member.Options{
		Role: cluster.RoleDistributor, Report: s.report, Changed: s.changed, Lost: d.router.lost, Beat: d.opts.Beat, Lease: d.opts.Lease, Optional: true,
	})
	if err != nil { // never, of an optional membership
		d.cfg.Log.Error("the cluster cannot be joined", "error", err)
		return
	}
	s.member.Store(m)
	if v := m.View(); v != nil {
		s.changed(v)
	}
}

// changed takes a look at the cluster. The first tells whom the puts before it concern.
func (s *sending) changed(v *cluster.View) {
	s.d.router.see(v)
	if s.member.Load() != nil {
		s.notifyOwners(v)
	}
}

// notifyOwners tells whom the puts before a look concern.
func (s *sending) notifyOwners(v *cluster.View) {
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, u := range pending {
		s.notifyOwner(v, u)
	}
}

// view is what is known of the cluster; nil: nothing.
func (s *sending) view() *cluster.View {
	if m := s.member.Load(); m != nil {
		return m.View()
	}
	return s.seen.Load()
}

const (
	// leaveSlow is what leaving may take. It is one request; a row that stays behind is
	// removed by others when it has been silent for long enough.
	leaveSlow = 2 * time.Second
	// sayLast is how long a run that was over sooner than it had joined waits for
	// that, to tell the owners what waits for them: it would wait longer in the queue.
	sayLast = time.Second
)

// end ends the membership. Ctx is Run's.
func (s *sending) end(ctx context.Context) {
	s.once.Do(s.arrived) // it never began to join
	s.mu.Lock()
	pending := len(s.pending) > 0
	s.mu.Unlock()
	if pending && ctx.Err() == nil {
		last := time.NewTimer(sayLast)
		defer last.Stop()
		select {
		case <-s.arrives:
		case <-last.C:
		}
	}
	s.stop()
	s.wg.Wait()
	s.leave(ctx)
	s.nudges.Close()
}

// leave ends the membership if there is one.
func (s *sending) leave(ctx context.Context) {
	if m := s.member.Swap(nil); m != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveSlow)
		defer cancel()
		m.Leave(ctx)
	}
}

// delivered is told of each envelope of tasks that a queue has acknowledged.
func (s *sending) delivered(m *message) {
	s.tasks.Add(uint64(m.Tasks))
	u := putInto{m.sink, m.Segment}
	s.put.Store(true)
	if v := s.view(); v != nil {
		s.notifyOwner(v, u)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) < maxPending && !slices.Contains(s.pending[max(0, len(s.pending)-lookBack):], u) {
		s.pending = append(s.pending, u)
	}
}

// notifyOwner tells the owner of a segment of a message in a queue, unless it has had
// another there from this process just before.
func (s *sending) notifyOwner(v *cluster.View, u putInto) {
	owner := ""
	if by, ok := v.OwnerOf(u.segment); ok {
		owner = by.Instance
	}
	if !u.sink.quiet(owner) {
		return
	}
	nudges := s.nudges
	if m := s.member.Load(); m != nil {
		nudges = m.Nudges
	}
	nudges.NudgeOwner(v, s.d.cfg.Instance, u.sink.shard.String(), u.segment)
}

// report is what a distributor says of itself in each beat.
func (s *sending) report(r *cluster.Report) {
	now, tasks := time.Now(), s.tasks.Load()
	r.Tasks = tasks
	if past := now.Sub(s.reported); !s.reported.IsZero() && past > 0 {
		r.Rate = float64(tasks-s.reportedTasks) / past.Seconds()
	}
	s.reported, s.reportedTasks = now, tasks
	r.Trouble = s.d.router.Current().trouble()
}

// trouble names the queues that do not take what is meant for them, in one line.
func (t *route) trouble() string {
	var dark []string
	for _, o := range t.sinks {
		if o.dark() {
			dark = append(dark, o.name)
		}
	}
	switch len(dark) {
	case 0:
		return ""
	case 1:
		return "queue " + dark[0] + " is dark"
	}
	return fmt.Sprintf("%d queues are dark, %s first", len(dark), slices.MinFunc(dark, cmp.Compare[string]))
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

// commonFormat is the newest format that all processors of a view read, 0 if it has none.
func commonFormat(v *cluster.View) (reads uint32) {
	for _, m := range v.Members {
		if m.Role == cluster.RoleProcessor {
			this := uint32(min(max(m.Reads, 1), codec.Version)) // a row may say anything
			if reads == 0 || this < reads {
				reads = this
			}
		}
	}
	return reads
}

// see takes what a member has read of the cluster.
func (r *router) see(v *cluster.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.Read.Before(r.viewed) {
		return
	}
	r.heed(v)
	same := slices.Equal(r.spills, v.Spills)
	r.spills = v.Spills
	for m, at := range r.own {
		if at.Before(v.Read) {
			delete(r.own, m) // the view has it, or its owner took it back
			same = false
		}
	}
	if !r.take(v.Workload) && !same {
		r.remake()
	}
}

// heed takes what processors say of themselves; r.mu is held.
func (r *router) heed(v *cluster.View) {
	r.viewed = v.Read
	r.reads.Store(commonFormat(v))
	if limits := envelopeLimits(v); limits != nil {
		r.limits.Store(&limits)
	} else {
		r.limits.Store(nil)
	}
}

// glance takes what a guest has read of the cluster, without the marks: it looks too seldom to
// know which of them stand.
func (r *router) glance(v *cluster.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heed(v)
	r.take(v.Workload)
}

// alone says that nobody learns any more which marks stand.
func (r *router) alone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spills = nil
	clear(r.own)
	r.remake()
}
