package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// memberOptions say how one half of the pump takes part in the cluster. The
// functions may be nil. They are called from the membership's goroutine, perhaps
// before joinCluster has returned; they must be quick and must not wait for the member.
type memberOptions struct {
	role cluster.Role
	// waiting is the gate that it waits at; see member.admit.
	waiting string
	// report fills in what the half knows of itself.
	report func(*cluster.Report)
	// inHand, drain and changed are cluster.Options' InHand, Drain and Changed.
	inHand  func(segment uint32) bool
	drain   func(segments []uint32)
	changed func(v *cluster.View)
	// lost is cluster.Options' Lost. It is also called when the workload turns out
	// to be no more before it was joined.
	lost func(err error)
	// beat and lease as in cluster.Options; 0 for the defaults.
	beat, lease time.Duration
	// grace is cluster.Options' Grace.
	grace time.Duration
	// optional: the half works without a cluster too, with the least of budgets.
	// joinCluster then does not wait for long, and goes on trying in the background.
	optional bool
}

// member is this process's part in the cluster: package cluster's presence bound
// to the half's work, its budgets (P8.1) and the nudges (P8.2). Its methods may be
// called from many goroutines at once.
type member struct {
	cfg      *pump.Config
	fleet    *fleet
	workload *workload.Workload
	o        memberOptions
	log      *slog.Logger
	jitter   backoff.Jitter
	nudges   *nudger

	ctx    context.Context // of what goes on in the background
	cancel context.CancelFunc
	wg     sync.WaitGroup

	entered  chan struct{} // closed when presence is set
	presence atomic.Pointer[cluster.Presence]
	admitted atomic.Bool // the gate is open

	mu      sync.Mutex // guards what follows
	sharing quota.Sharing
	backs   uint64    // the version of a map that was put back and said to be
	looked  time.Time // when a grown demand was last made known out of turn
}

// joinPatience is how long a half that can do without a cluster waits for it at the
// start. Joining takes some 50 ms, and without it there is a quarter of the budget.
const joinPatience = 2 * time.Second

// joinCluster makes this process a member of the workload's cluster. It returns when
// the first view is there; what fails for now is tried until ctx ends, what no
// waiting mends is an error. With memberOptions.optional it is never an error and
// returns after two seconds at the latest.
func joinCluster(ctx context.Context, cfg *pump.Config, f *fleet, w *workload.Workload, o memberOptions) (*member, error) {
	m := &member{
		cfg: cfg, fleet: f, workload: w, o: o,
		log: cfg.Log.With("workload", w.Name, "instance", cfg.Instance), jitter: backoff.Jitter(cfg.Instance),
		entered: make(chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.nudges = newNudger(context.WithoutCancel(ctx), cfg)
	beat := o.beat
	settings.Default(&beat, defaultBeat)
	l := quota.Limits{Account: cfg.Budget.Account, Queue: cfg.Budget.Queue}
	m.sharing = quota.Sharing{Instance: cfg.Instance, Accounts: f.names, Limits: l, Beat: beat}
	if f.tasks != nil {
		m.sharing.Tasks = f.tasks.Limit
	}
	f.retarget(quota.Unjoined(l, m.sharing.Tasks, f.names))
	f.expect()
	if !o.optional {
		if err := m.join(ctx); err != nil {
			m.cancel()
			m.nudges.close()
			return nil, err
		}
		return m, nil
	}
	m.wg.Go(func() {
		err := m.join(m.ctx)
		if workload.Lost(err) && m.o.lost != nil {
			m.o.lost(err)
			return
		}
		if err != nil && m.ctx.Err() == nil {
			m.log.Error("this process cannot join the cluster; it goes on alone, with a quarter of the budget", "error", err)
		}
	})
	patience := time.NewTimer(joinPatience)
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
func (m *member) join(ctx context.Context) error {
	for n := uint64(0); ; n++ {
		p, err := cluster.Join(ctx, m.workload, m.presenceOptions())
		if err == nil {
			m.presence.Store(p)
			close(m.entered)
			m.see(p.View())
			m.wg.Go(m.watchDemand)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !mayJoinLater(err) {
			return fmt.Errorf("workload %q in account %q: %w", m.cfg.Workload, m.cfg.Control, err)
		}
		m.log.Warn("the cluster could not be joined; trying again", "control", m.cfg.Control, "error", err)
		if !backoff.Wait(ctx, m.jitter.Around(backoff.Doubled(time.Second, 15*time.Second, n), "join", m.workload.Name, n)) {
			return context.Cause(ctx)
		}
	}
}

// mayJoinLater reports whether a join that failed may succeed without anybody's doing:
// the control account did not answer, for a request or for as long as control waits for the row of
// an earlier process, or this process was declared dead while it was stopped.
func mayJoinLater(err error) bool {
	if errors.Is(err, cluster.ErrEvicted) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	e, ok := asStorageError(err)
	return ok && (e.Ambiguous() || e.Code == storage.Canceled)
}

func (m *member) presenceOptions() cluster.Options {
	return cluster.Options{
		Instance: m.cfg.Instance, Host: hostName(), Version: buildVersion(), Role: m.o.role, Beat: m.o.beat, Lease: m.o.lease, Grace: m.o.grace,
		Report: m.report, InHand: m.o.inHand, Drain: m.o.drain, Nudge: m.nudgeMembers, Log: m.cfg.Log,
		Lost:       m.o.lost,
		BestEffort: m.cfg.Delivery == pump.AtLeastOnce, // a task done twice is the worst (P5.6)
		Changed: func(v *cluster.View) {
			<-m.entered // Join returns right away
			m.see(v)
			if m.o.changed != nil {
				m.o.changed(v)
			}
		},
	}
}

// report is what each beat says of this process.
func (m *member) report() cluster.Report {
	_, throttled := m.fleet.requests()
	r := cluster.Report{
		Admin: m.cfg.Admin, Accounts: m.fleet.names, Reads: codec.Version,
		Demand: m.fleet.demand(), Guessed: m.fleet.guessed(), Throttled: uint64(throttled), Throttles: m.fleet.throttles(),
	}
	if m.o.report != nil {
		m.o.report(&r)
	}
	if !m.admitted.Load() {
		r.Waiting = m.o.waiting
	}
	return r
}

// admit says that the gate has opened: from now on the process takes segments.
func (m *member) admit() {
	m.admitted.Store(true)
	m.look()
}

// joined reports whether the process is in the cluster. With an optional
// membership it may not be yet.
func (m *member) joined() bool { return m.presence.Load() != nil }

// view is the latest look at the cluster; nil before the first.
func (m *member) view() *cluster.View {
	if p := m.presence.Load(); p != nil {
		return p.View()
	}
	return nil
}

// hold gives a segment that is this process's to work on. In a shared workload
// every segment is everybody's, under epoch 0.
func (m *member) hold(segment uint32) (cluster.Hold, bool) {
	if m.workload.Shared {
		return cluster.Hold{Segment: segment}, true
	}
	if p := m.presence.Load(); p != nil {
		return p.Hold(segment)
	}
	return cluster.Hold{}, false
}

// settle says that the last work in hand of a segment may be done.
func (m *member) settle(segment uint32) {
	if p := m.presence.Load(); p != nil {
		p.Settle(segment)
	}
}

// look makes the process look at the cluster, and be seen, now or shortly.
func (m *member) look() {
	if p := m.presence.Load(); p != nil {
		p.Look()
	}
}

var errOutside = errors.New("this process has not joined the cluster")

// markSpill and clearSpill are cluster.Presence's MarkSpill and ClearSpill.
func (m *member) markSpill(ctx context.Context, segments []uint32, choice int) error {
	if p := m.presence.Load(); p != nil {
		return p.MarkSpill(ctx, segments, choice)
	}
	return errOutside
}

func (m *member) clearSpill(ctx context.Context, segments []uint32, choice int) error {
	if p := m.presence.Load(); p != nil {
		return p.ClearSpill(ctx, segments, choice)
	}
	return errOutside
}

// leave gives up what the process holds, removes it from the cluster, and ends all
// that the member does in the background. While the control plane is dark it tries until
// ctx ends, so that must. It may be called more than once.
func (m *member) leave(ctx context.Context) {
	m.cancel()
	m.wg.Wait() // a join under way has ended
	if p := m.presence.Load(); p != nil {
		p.Leave(ctx)
	}
	m.nudges.close()
}

// see takes a view: budgets follow it.
func (m *member) see(v *cluster.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := v.Workload; w.PutBack() && m.backs != w.Map.Version {
		m.backs = w.Map.Version
		m.log.Error("the shard map had gone back, because the control account failed over or its table was restored, and was put back by a process that knew it; "+
			"changes of accounts in between are undone: see distributor accounts list", "version", w.Map.Version)
	}
	m.sharing.See(v)
	m.sharing.Settle(time.Now())
	m.fleet.retarget(m.sharing.Targets())
}

// shareEvery is how often a process looks whether its shares, or what it needs,
// are other than at the last beat.
const shareEvery = time.Second

// watchDemand measures what this process needs, and makes it known before the next
// beat if its share has become too small for that.
func (m *member) watchDemand() {
	next := time.Duration(0)
	for n := uint64(0); ; n++ {
		wait := m.jitter.Around(shareEvery, "share", m.workload.Name, n)
		if next > 0 {
			wait = min(wait, next)
		}
		if !backoff.Wait(m.ctx, wait) {
			return
		}
		var changed bool
		demand := m.fleet.demand()
		m.mu.Lock()
		now := time.Now()
		if changed, next = m.sharing.Settle(now); changed {
			m.fleet.retarget(m.sharing.Targets())
		}
		grown := now.Sub(m.looked) >= m.sharing.Beat && m.grown(demand)
		if grown {
			m.looked = now
		}
		m.mu.Unlock()
		if grown {
			m.look()
		}
	}
}

// Of a demand that is made known before the next beat: it must have grown by half,
// and be more than what the process has.
const demandGrown = 1.5

// grown compares a demand with what the last beat said of it. m.mu is held.
func (m *member) grown(demand map[string]float64) bool {
	c := m.sharing.Latest
	known := c.Parties[c.Me].Demand
	targets := m.fleet.targets.Load()
	if d := demand[quota.TasksShare]; d > demandGrown*known[quota.TasksShare] && targets.Tasks < d {
		return true
	}
	for _, name := range m.fleet.names {
		if d := demand[name]; d > demandGrown*known[name] && m.fleet.short(name, d, targets) {
			return true
		}
	}
	return false
}

// nudged takes a nudge that is about the cluster.
func (m *member) nudged(n pump.Nudge) {
	if n.Queue == "" && n.Gate == "" && !n.Traffic {
		m.look()
	}
}

// nudgeMembers makes other members look at the cluster.
func (m *member) nudgeMembers(to []cluster.Member) {
	for i := range to {
		m.nudges.nudge("cluster/"+to[i].Instance, nudgeTo(&to[i], pump.Nudge{}))
	}
}

// nudgeOwner makes the owner of a segment, or in a shared workload some processor,
// look into a queue. It returns at once.
func (m *member) nudgeOwner(s *shard, segment uint32) {
	if v := m.view(); v != nil {
		m.nudges.nudgeOwner(v, m.cfg.Instance, s.String(), segment)
	}
}

// buildVersion is the module's version, or the commit that was built.
var buildVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
})

const defaultBeat = 5 * time.Second

// keeps reports whether a segment is this member's, also while it is being handed over.
func (m *member) keeps(segment uint32) bool {
	p := m.presence.Load()
	if p == nil {
		return false
	}
	_, held := p.Hold(segment)
	return held || p.Trusted(segment)
}

// raise says that holds of a segment must be above an epoch.
func (m *member) raise(segment uint32, above uint64) {
	if p := m.presence.Load(); p != nil {
		p.Raise(segment, above)
	}
}

// nudgeTraffic tells the other processors that messages come without nudges.
func (m *member) nudgeTraffic() {
	v := m.view()
	if v == nil {
		return
	}
	for i := range v.Members {
		if to := &v.Members[i]; to.Role == cluster.RoleProcessor && to.Instance != m.cfg.Instance {
			m.nudges.nudge("traffic "+to.Instance, nudgeTo(to, pump.Nudge{Traffic: true}))
		}
	}
}
