package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Options say how one half of the pump takes part in the cluster. The
// functions may be nil. They are called from the membership's goroutine, perhaps
// before Join has returned; they must be quick and must not wait for the member.
type Options struct {
	Role cluster.Role
	// Waiting is the gate that it waits at; see member.admit.
	Waiting string
	// Report fills in what the half knows of itself.
	Report func(*cluster.Report)
	// InHand, HandOver, Drain and Changed are those of cluster.Options.
	InHand   func(segment uint32) bool
	HandOver func() time.Duration
	Drain    func(segments []uint32)
	Changed  func(v *cluster.View)
	// Lost is cluster.Options' Lost. It is also called when the workload turns out to be gone before
	// the join.
	Lost func(err error)
	// Beat and lease as in cluster.Options; 0 for the defaults.
	Beat, Lease time.Duration
	// Grace is cluster.Options' Grace.
	Grace time.Duration
	// Optional: the half works without a cluster too, with the least of budgets.
	// Join then does not wait for long, and goes on trying in the background.
	Optional bool
	// Stake says which failures of the control account end a join.
	Stake failure.Stake
}

// Member is this process's part in the cluster: package cluster's presence bound
// to the half's work, its budgets (P8.1) and the nudges (P8.2). Its methods may be
// called from many goroutines at once.
type Member struct {
	cfg      *pump.Config
	Queues   *queues.Set
	Workload *workload.Workload
	o        Options
	log      *slog.Logger
	jitter   waits.Jitter
	Nudges   *nudging.Sender

	ctx    context.Context // of the work in the background
	cancel context.CancelFunc
	wg     sync.WaitGroup

	entered  chan struct{} // closed when presence is set
	Presence atomic.Pointer[cluster.Presence]
	admitted atomic.Bool // the gate is open

	mu      sync.Mutex // guards what follows
	sharing queues.Sharing
	backs   uint64    // the version of a map that was put back and said to be
	looked  time.Time // when a grown demand was last made known out of turn
}

// JoinPatience is how long a half that can do without a cluster waits for it at the
// start. Joining takes some 50 ms, and without it there is a quarter of the budget.
const JoinPatience = 2 * time.Second

// Join makes this process a member of the workload's cluster. It returns when the first view is
// there; it tries again until ctx ends; a failure that waiting does not mend is an error. With
// Options.optional it is never an error and returns after two seconds at the latest.
func Join(
	ctx context.Context, cfg *pump.Config, f *queues.Set, w *workload.Workload, o Options,
) (*Member, error) {
	m := &Member{
		cfg: cfg, Queues: f, Workload: w, o: o,
		log:    cfg.Log.With("workload", w.Name, "instance", cfg.Instance),
		jitter: waits.Jitter(cfg.Instance), entered: make(chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.Nudges = nudging.NewSender(context.WithoutCancel(ctx), cfg)
	beat := cmp.Or(o.Beat, DefaultBeat)
	l := f.Limits()
	m.sharing = queues.Sharing{
		Instance: cfg.Instance, Accounts: f.Names(), Limits: l, Beat: beat, Tasks: f.Values().MaxRate,
	}
	f.Retarget(queues.Unjoined(l, m.sharing.Tasks, f.Names()))
	f.Expect()
	if !o.Optional {
		if err := m.join(ctx); err != nil {
			m.cancel()
			m.Nudges.Close()
			return nil, err
		}
		return m, nil
	}
	m.wg.Go(func() {
		err := m.join(m.ctx)
		if workload.Lost(err) && m.o.Lost != nil {
			m.o.Lost(err)
			return
		}
		if err != nil && m.ctx.Err() == nil {
			m.log.Error("this process cannot join the cluster; it goes on alone, "+
				"with a quarter of the budget", "error", err)
		}
	})
	patience := time.NewTimer(JoinPatience)
	defer patience.Stop()
	select {
	case <-m.entered:
	case <-patience.C:
		m.log.Warn("the cluster is not joined yet; going on with a quarter of the budget")
	case <-ctx.Done():
	}
	return m, nil
}

// join joins, trying again what may be better later.
func (m *Member) join(ctx context.Context) error {
	began := time.Now()
	var failing logs.Limited
	for n := uint64(0); ; n++ {
		p, err := cluster.Join(ctx, m.Workload, m.presenceOptions())
		if err == nil {
			m.Presence.Store(p)
			close(m.entered)
			m.see(p.View())
			m.wg.Go(m.watchDemand)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		patience := failure.Decide(failure.ControlAccount, err, m.o.Stake).Patience
		if !MayJoinLater(err, m.o.Stake) || patience > 0 && time.Since(began) > patience {
			return fmt.Errorf("workload %q in account %q: %w", m.cfg.Workload, m.cfg.Control, err)
		}
		failing.GoesOn(m.log.Warn, "the cluster could not be joined; trying again",
			"control", m.cfg.Control, "error", err)
		if !waits.Wait(ctx, m.jitter.Around(waits.Doubled(time.Second, 15*time.Second, n), "join",
			m.Workload.Name, n)) {
			return context.Cause(ctx)
		}
	}
}

// MayJoinLater reports whether a join, or another request of a start, that failed may succeed
// later: the control account did not answer, for a request or for as long as control waits for the
// row of an earlier process, or it is disabled, or this process was declared dead while it was
// stopped. A process whose work is to wait waits for a missing right, too.
func MayJoinLater(err error, at failure.Stake) bool {
	return errors.Is(err, cluster.ErrEvicted) || errors.Is(err, context.DeadlineExceeded) ||
		!failure.Ends(failure.ControlAccount, err, at)
}

func (m *Member) presenceOptions() cluster.Options {
	return cluster.Options{
		Instance: m.cfg.Instance, Host: nudging.HostName(), Version: logs.Revision(),
		Role: m.o.Role, Beat: m.o.Beat, Lease: m.o.Lease, Grace: m.o.Grace,
		Report: m.report, InHand: m.o.InHand, HandOver: m.o.HandOver, Drain: m.o.Drain,
		Nudge: m.nudgeMembers, Log: m.cfg.Log,
		Lost:       m.o.Lost,
		BestEffort: m.cfg.Delivery == pump.AtLeastOnce, // a task done twice is the worst (P5.6)
		Changed: func(v *cluster.View) {
			<-m.entered // Join returns right away
			m.see(v)
			if m.o.Changed != nil {
				m.o.Changed(v)
			}
		},
	}
}

// report is what each beat says of this process.
func (m *Member) report() cluster.Report {
	_, throttled := m.Queues.Requests()
	r := cluster.Report{
		Admin: m.cfg.Admin, Accounts: m.Queues.Names(), Reads: codec.Version,
		Demand: m.Queues.Demand(), Guessed: m.Queues.Guessed(), Throttled: uint64(throttled),
		Throttles: m.Queues.Throttles(), AskedSince: m.Queues.Opened,
	}
	r.Asked, r.Operations = m.Queues.Asked()
	m.Queues.Allowance.Report(&r)
	m.Queues.Heeds.Lock()
	r.Own, r.Settings = m.Queues.Heeds.Own, m.Queues.Heeds.Set.ID()
	m.Queues.Heeds.Unlock()
	if m.cfg.Sample > 0 {
		r.Held, r.Later, r.Deletes = m.Queues.Known(time.Now())
	}
	if m.o.Report != nil {
		m.o.Report(&r)
	}
	if !m.admitted.Load() {
		r.Waiting = m.o.Waiting
	}
	return r
}

// Admit says that the gate has opened: from now on the process takes segments.
func (m *Member) Admit() {
	m.admitted.Store(true)
	m.Look()
}

// Joined reports whether the process is in the cluster. With an optional
// membership it may not be yet.
func (m *Member) Joined() bool { return m.Presence.Load() != nil }

// View is the latest look at the cluster; nil before the first.
func (m *Member) View() *cluster.View {
	if p := m.Presence.Load(); p != nil {
		return p.View()
	}
	return nil
}

// Hold gives a segment that is this process's to work on. In a shared workload
// every segment is every member's, under epoch 0.
func (m *Member) Hold(segment uint32) (cluster.Hold, bool) {
	if m.Workload.Shared {
		return cluster.Hold{Segment: segment}, true
	}
	if p := m.Presence.Load(); p != nil {
		return p.Hold(segment)
	}
	return cluster.Hold{}, false
}

// Settle says that the last work in hand of a segment may be done.
func (m *Member) Settle(segment uint32) {
	if p := m.Presence.Load(); p != nil {
		p.Settle(segment)
	}
}

// Look makes the process look at the cluster, and be seen, now or shortly.
func (m *Member) Look() {
	if p := m.Presence.Load(); p != nil {
		p.Look()
	}
}

// ErrOutside is the answer of a member that has not joined yet.
var ErrOutside = errors.New("this process has not joined the cluster")

// MarkSpill and ClearSpill are cluster.Presence's MarkSpill and ClearSpill.
func (m *Member) MarkSpill(ctx context.Context, segments []uint32, choice int) error {
	if p := m.Presence.Load(); p != nil {
		return p.MarkSpill(ctx, segments, choice)
	}
	return ErrOutside
}

// ClearSpill is cluster.Presence's.
func (m *Member) ClearSpill(ctx context.Context, segments []uint32, choice int) error {
	if p := m.Presence.Load(); p != nil {
		return p.ClearSpill(ctx, segments, choice)
	}
	return ErrOutside
}

// Leave gives up what the process holds, removes it from the cluster, and ends all that the member
// does in the background. While the control plane is dark it tries until ctx ends, so ctx must end.
// It may be called more than once.
func (m *Member) Leave(ctx context.Context) {
	m.cancel()
	m.wg.Wait() // a join under way has ended
	if p := m.Presence.Load(); p != nil {
		p.Leave(ctx)
	}
	m.Nudges.Close()
}

// see takes a view: budgets follow it.
func (m *Member) see(v *cluster.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := v.Workload; w.PutBack() && m.backs != w.Map.Version {
		m.backs = w.Map.Version
		m.log.Error("the shard map had gone back, because the control account failed over "+
			"or its table was restored, and was put back by a process that knew it; "+
			"changes of accounts in between are undone: see distributor accounts list",
			"version", w.Map.Version)
	}
	m.sharing.Accounts, m.sharing.Limits = m.Queues.Names(), m.Queues.Limits() // they may have changed
	now := m.Queues.Values()
	m.sharing.Tasks = now.MaxRate
	m.sharing.Beat = max(cmp.Or(now.Beat, m.sharing.Beat), v.LongestBeat())
	m.sharing.Observe(v)
	m.sharing.Advance(time.Now())
	m.Queues.Retarget(m.sharing.Targets())
	m.Queues.Allowance.Follow(v, m.cfg.Instance, v.ServerTime(time.Now()))
}

// ShareEvery is how often a process looks whether its shares or needs have changed since the last
// beat.
const ShareEvery = time.Second

// watchDemand measures what this process needs, and makes the need known before the next beat if
// the share has become too small.
func (m *Member) watchDemand() {
	next := time.Duration(0)
	for n := uint64(0); ; n++ {
		wait := m.jitter.Around(ShareEvery, "share", m.Workload.Name, n)
		if next > 0 {
			wait = min(wait, next)
		}
		if !waits.Wait(m.ctx, wait) {
			return
		}
		var changed bool
		demand := m.Queues.Demand()
		m.mu.Lock()
		now := time.Now()
		if changed, next = m.sharing.Advance(now); changed {
			m.Queues.Retarget(m.sharing.Targets())
		}
		grown := now.Sub(m.looked) >= m.sharing.Beat && m.grown(demand)
		if grown {
			m.looked = now
		}
		m.mu.Unlock()
		if grown {
			m.Look()
		}
	}
}

// A demand is made known before the next beat if it has grown by half and is more than what the
// process has.
const demandGrown = 1.5

// grown compares a demand with that of the last beat. m.mu is held.
func (m *Member) grown(demand map[string]float64) bool {
	targets := m.Queues.Targets.Load()
	if d := demand[queues.TasksShare]; d > demandGrown*m.sharing.Published(queues.TasksShare) &&
		targets.Tasks < d {
		return true
	}
	for _, name := range m.Queues.Names() {
		if d := demand[name]; d > demandGrown*m.sharing.Published(name) &&
			m.Queues.Short(name, d, targets) {
			return true
		}
	}
	return false
}

// Reloaded says that the accounts or limits of this process have changed: its shares follow, and
// the other members learn of it at once. The member may be nil: it has not joined.
func (m *Member) Reloaded() {
	if m == nil {
		return
	}
	if v := m.View(); v != nil {
		m.see(v)
	}
	m.Look()
}

// Heed puts the values in force that the set has now. The member may be nil: it has not joined.
func (m *Member) Heed() {
	if m == nil {
		return
	}
	if p, v := m.Presence.Load(), m.Queues.Values(); p != nil && v.Beat > 0 {
		p.SetTimes(v.Beat, v.Lease)
	}
	m.Reloaded()
}

// Nudged takes a nudge that is about the cluster.
func (m *Member) Nudged(n pump.Nudge) {
	if n.Queue == "" && n.Gate == "" && !n.Traffic {
		m.Look()
	}
}

// nudgeMembers makes other members look at the cluster.
func (m *Member) nudgeMembers(to []cluster.Member) {
	for i := range to {
		m.Nudges.Nudge("cluster/"+to[i].Instance, nudging.To(&to[i], pump.Nudge{}))
	}
}

// NudgeOwner makes the owner of a segment, or in a shared workload some processor,
// look into a queue. It returns at once.
func (m *Member) NudgeOwner(s *queues.Queue, segment uint32) {
	if v := m.View(); v != nil {
		m.Nudges.NudgeOwner(v, m.cfg.Instance, s.String(), segment)
	}
}

// DefaultBeat is how often a member writes its row, if the options say nothing.
const DefaultBeat = 5 * time.Second

// Keeps reports whether a segment is this member's, also while it is being handed over.
func (m *Member) Keeps(segment uint32) bool {
	p := m.Presence.Load()
	if p == nil {
		return false
	}
	_, held := p.Hold(segment)
	return held || p.Trusted(segment)
}

// Raise says that holds of a segment must be above an epoch.
func (m *Member) Raise(segment uint32, above uint64) {
	if p := m.Presence.Load(); p != nil {
		p.Raise(segment, above)
	}
}

// NudgeTraffic tells the other processors that messages come without nudges.
func (m *Member) NudgeTraffic() {
	v := m.View()
	if v == nil {
		return
	}
	for i := range v.Members {
		if to := &v.Members[i]; to.Role == cluster.RoleProcessor && to.Instance != m.cfg.Instance {
			m.Nudges.Nudge("traffic "+to.Instance, nudging.To(to, pump.Nudge{Traffic: true}))
		}
	}
}
