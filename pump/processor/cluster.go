package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
)

// leaveWithin bounds how long a processor that stops takes to give up its
// segments and to say that it leaves. Without an answer in that time the others find
// out as they do after a crash.
const leaveWithin = 5 * time.Second

// join makes this process a member of the cluster, waiting for the control
// account if need be, and begins to poll what becomes its own.
func (r *run) join(ctx context.Context) error {
	m, err := member.Join(ctx, &r.Cfg.Config, r.Queues, r.Workload, member.Options{
		Role: cluster.RoleProcessor, Waiting: r.o.Gate,
		Beat: r.beat(), Lease: r.Queues.Values().Lease,
		Stake:  r.start.stake(),
		Grace:  max(r.o.Grace, 0) + 2*hardGrace, // stop ends the handlers before
		Report: r.fillBeat, InHand: r.segments.has, Drain: r.handOver,
		HandOver: func() time.Duration {
			if r.backlog.IsConcurrencyLimited() {
				return r.o.HandOver
			}
			return 0
		},
		Changed: func(v *cluster.View) {
			if err := r.heed(v.Workload); err != nil {
				r.endRun(err)
			}
			r.follow()
		},
		Lost: func(err error) { r.endRun(err) },
	})
	if err != nil {
		return fmt.Errorf("join workload %q: %w", r.Cfg.Workload, err)
	}
	r.Member.Store(m)
	if err := r.heed(m.View().Workload); err != nil {
		return err
	}
	m.Heed() // the first looks may have changed values already
	if watch := r.Cfg.Sim.Hands; watch != nil && r.recorder != nil {
		watch(r.recorder.Ledger, m.Hold)
	}
	// This process cannot read an account that was added since it read the row: the process that added
	// the account did not see this member's row (P6.5).
	for _, s := range m.View().Workload.Map.Shards {
		if _, err := r.Queues.Queue(s.Account, s.Queue); err != nil {
			return err
		}
	}
	r.follow()
	r.Log.Info("processing", "queues", len(r.Workload.Map.Shards), "accounts", len(r.Queues.Names()),
		"concurrency", r.o.Concurrency, "visibility", r.timing.Lease())
	return nil
}

// heed puts changed settings of the workload in force. The error says that a value is given to this
// process itself, too.
func (r *run) heed(w *workload.Workload) error {
	changed, err := setup.Follow(r.Queues, w)
	if changed {
		v := r.Queues.Values()
		r.timing.SetRetry(v.Retry)
		if !r.o.Discard && !r.Workload.Shared {
			r.backlog.SetPerKey(v.PerKey)
		}
		r.Member.Load().Heed()
	}
	return err
}

func (r *run) beat() time.Duration { return r.Queues.Values().Beat }

// follow lets the latest view decide what is polled. It is called after each look at the
// cluster and each change of what is held.
func (r *run) follow() {
	r.followMu.Lock()
	defer r.followMu.Unlock()
	m := r.Member.Load()
	if m == nil { // the first look; join follows
		return
	}
	if r.recorder != nil {
		r.recorder.Follow(m)
	}
	s := base.Assign(r.Cfg.Instance, m.View(), func(n uint32) bool {
		_, ok := r.segments.hold(n)
		return ok
	}, func(n uint32) bool { return r.recorder != nil && r.recorder.IsStuck(n) }, r.Reach)
	r.Assignment.Store(s)
	r.trials.Follow(s)
	r.tellAwaited(s)
	r.spills.follow(s)
	r.poller.Follow(s)
	r.poller.MarkUnready(s, r.segments.unready(s))
	r.aside.follow(s.View.Workload)
	r.lobby.releaseReady()
}

// tellAwaited logs once for each member that this process waits for its lease: otherwise a
// processor that is started after all others were killed would do nothing for a lease without a
// word. followMu is held.
func (r *run) tellAwaited(s *base.Assignment) {
	var news []string
	told := map[string]bool{}
	for _, name := range s.Awaited {
		if !r.awaited[name] {
			news = append(news, name)
		}
		told[name] = true
	}
	r.awaited = told
	if len(news) == 0 {
		return
	}
	lease := time.Duration(0)
	for _, m := range s.View.Members {
		if told[m.Instance] {
			lease = max(lease, m.Dead)
		}
	}
	r.Log.Info("waiting for the lease of members that do not beat to run out; "+
		"they own segments of this one",
		"members", setup.SomeOf(news, 10), "segments", s.Late, "lease", lease)
}

// reported is what the last beat said; it belongs to the membership's goroutine.
type reported struct {
	at      time.Time
	handled uint64
}

// told is what the watch of the handlers had others learn last; it belongs to its goroutine.
type told struct{ cannot, vouches []string }

// fillBeat says how this process does, for the beat.
func (r *run) fillBeat(to *cluster.Report) {
	now := time.Now()
	handled := uint64(r.Counts.Handled.Load())
	if span := now.Sub(r.reported.at).Seconds(); span > 0 && !r.reported.at.IsZero() {
		to.Rate = float64(handled-r.reported.handled) / span
	}
	r.reported = reported{now, handled}
	to.Tasks = handled
	to.Seconds, to.Hides = r.backlog.Seconds(), r.timing.Lease().Seconds()
	to.Pace = r.backlog.Pace()
	to.Queues, to.Trouble = r.poller.Queues(), r.trouble()
	to.Cannot, to.Vouches = r.cannot(now)
	if f := r.failures.State(); f.Count > 0 {
		to.Failing = cluster.Ill{
			Count: uint64(f.Count), Since: *f.Since, Error: f.LastError, Task: f.Task,
		}
	}
	if late := r.workers.late.Load(); late != nil && late.overdue > 0 {
		to.Stuck = cluster.Ill{Count: uint64(late.overdue), Since: late.oldest, Task: late.task}
		to.AllStuck = late.overdue >= r.o.Concurrency
	}
	if told := r.notNows.State(); told.Count > 0 {
		to.NotNow, to.NotNowSince, to.NotNowError = uint64(told.Count), *told.Since, told.LastError
	}
	to.KeysOver = r.keysOver()
	to.Unread, to.UnreadQueue = r.unread(now)
	to.UnreadForeign, to.ForeignPolled = r.poller.UnreadForeign(now)
	to.Draining, to.Paused = r.Stopping.Load(), r.aside.stands()
	to.Samples = r.sampler != nil && phase(r.phase.Load()) == phaseWorking
	to.Day = r.sampler.Day()
}

// cannot names the accounts that this process cannot read (it has no credentials for them, or they
// refuse it or do not answer), and those that it can read and others cannot.
func (r *run) cannot(now time.Time) (cannot, vouches []string) {
	s := r.Assignment.Load()
	if s == nil {
		return nil, nil
	}
	cannot = r.poller.Cannot(now)
	for i, q := range s.Shards {
		if name := s.Of.Shards[i].Account; q == nil && !slices.Contains(cannot, name) {
			cannot = append(cannot, name)
		}
	}
	slices.Sort(cannot)
	return cannot, r.poller.Vouches(s.View.Doubted(r.Cfg.Instance), now)
}

// tellCannot has the others learn at once if that has changed: tasks stand until they do.
func (r *run) tellCannot(now time.Time) {
	cannot, vouches := r.cannot(now)
	if slices.Equal(cannot, r.told.cannot) && slices.Equal(vouches, r.told.vouches) {
		return
	}
	r.told.cannot, r.told.vouches = cannot, vouches
	if m := r.Member.Load(); m != nil {
		m.Look()
	}
}

// unread is what the poller says, and never for a queue that this process should read and cannot.
func (r *run) unread(now time.Time) (longest float64, queue string) {
	if s := r.Assignment.Load(); s != nil {
		if names := s.Unreadable(); len(names) > 0 {
			return closing.NeverRead, names[0]
		}
	}
	return r.poller.Unread(now)
}

// trouble is what is wrong now, in a line for people; empty: nothing.
func (r *run) trouble() string {
	if m := r.Member.Load(); m != nil {
		if dark := m.Presence.Load().Dark(); dark > 0 {
			return fmt.Sprintf("the control account has not answered for %v; going on with what is held",
				dark.Round(time.Second))
		}
	}
	if s := r.Assignment.Load(); s != nil {
		if names := s.Unreadable(); len(names) > 0 {
			return fmt.Sprintf("queue %s: no credentials", names[0])
		}
		if awaits := s.Awaits(); awaits != "" {
			return awaits
		}
	}
	if r.recorder != nil {
		if trouble := r.recorder.Fencer.Trouble(); trouble != "" {
			return trouble
		}
	}
	return r.poller.Trouble()
}

// leaveCluster gives up what is still held and says that this process is gone.
func (r *run) leaveCluster() {
	m := r.Member.Load()
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Wire, leaveWithin)
	defer cancel()
	m.Leave(ctx)
}

// Nudged takes a hint to look at something: a queue, which is read now if this process polls it,
// the gate that it waits at, messages that come without nudges, or the cluster's rows. Hints, of
// any number, have a queue asked a few times a second at most. It may be called at any time and
// returns at once.
func (p *Processor) Nudged(n pump.Nudge) {
	r := p.running.Load()
	switch {
	case r == nil:
	case n.Queue != "":
		r.poller.Nudge(n.Queue)
	case n.Gate != "":
		r.gate.hint(n.Gate)
	case n.Traffic:
		r.poller.Hasten()
	default:
		if m := r.Member.Load(); m != nil {
			m.Nudged(n)
		}
	}
}

// keysOver says which keys are over their limits, for people.
func (r *run) keysOver() pump.KeysOver {
	over := r.backlog.KeysOver()
	for i := range over.Top {
		over.Top[i].Key = briefly(over.Top[i].Key)
	}
	return over
}

// handOver begins to give up segments, or notes that they are lost: their tasks are not started any
// more, and what was not started goes back without an attempt.
func (r *run) handOver(segments []uint32) {
	r.follow() // or it would get again what it puts back
	for _, d := range r.segments.of(segments) {
		r.withdraw(d)
	}
	if r.recorder != nil {
		r.recorder.Hurry(segments)
	}
}

// view is the latest look at the cluster; nil before the first.
func (r *run) view() *cluster.View {
	if m := r.Member.Load(); m != nil {
		return m.View()
	}
	return nil
}

// closeRuns ends runs while this processor is the first live one in rank. If two believe that for a
// while, it costs some reads.
func (r *run) closeRuns(ctx context.Context) {
	c := closing.New(&r.Cfg.Config, r.Queues, r.Workload)
	c.Unfinished, c.Remaining, c.Results = &r.unfinished, &r.remaining, r.o.Results
	c.HorizonBy(func(context.Context) (*cluster.View, error) { return r.Member.Load().View(), nil })
	c.Keep(ctx, r.Jitter, func(context.Context) bool {
		v := r.view()
		return v != nil && v.Rank(r.Cfg.Instance) == 0
	})
}

// errNotRunning says that no Run is there to take a configuration.
var errNotRunning = errors.New("the processor does not run")

// Reload takes from a configuration, while Run goes on, the accounts that are new in it, the limits
// of budgets, the cap on what a day costs and prices. A new account can be added to the workload
// from then on (package accounts). Everything else stays as it was when Run began. A change of what
// cannot change is a [*pump.ConfigError], and then nothing has changed. It may be called from any
// goroutine.
func (p *Processor) Reload(cfg pump.Config) error {
	r := p.running.Load()
	if r == nil {
		return errNotRunning
	}
	changed, err := setup.Reload(r.Queues, r.Cfg, cfg)
	if err != nil || !changed {
		return err
	}
	if m := r.Member.Load(); m != nil {
		m.Reloaded()
		r.follow() // queues that could not be read may be by now
	}
	return nil
}
