package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// ErrNameTaken: another live process is a member under this instance's name.
var ErrNameTaken = errors.New("another process uses this instance name")

// ErrEvicted is Join's error if the member was declared dead before it had read its first view,
// because it was stopped or cut off then. It may join again.
var ErrEvicted = errors.New("the member row was removed by another")

// Options says which instance joins a workload's cluster, with which times. Members should have
// equal times; where they differ, an observer takes the longer of its own and the observed
// member's.
type Options struct {
	// Instance is this process's unique name; see [CheckInstance]. Host is the
	// machine's name and Version the program's, for people.
	Instance, Host, Version string
	Role                    Role
	// Beat is how often the member's row is written, at most 10 min. Default 5 s.
	Beat time.Duration
	// Lease is how long a beat is good for, less Margin for the member, plus
	// Margin for all others; at most 1 h. Default 4 x Beat.
	Lease time.Duration
	// Margin covers clocks of different speed and requests under way when trust ends. Default 3/20 of
	// Lease.
	Margin time.Duration
	// Grace is how long work may stay in hand when this member drains because it stops
	// (Report.Draining). The caller that stops the member says how long that is. A Grace below the
	// lease has no effect; in any other hand-over the lease is the bound, or HandOver.
	Grace time.Duration
	// Report is asked before each beat what to say; nil: nothing. It must return
	// quickly and must not wait for the Presence.
	Report func() Report
	// InHand reports whether work of a segment that is being handed over is still under way; nil:
	// never. It must return quickly; see also Settle.
	InHand func(segment uint32) bool
	// HandOver is for how long work in hand may delay a hand-over, if that is longer than the lease;
	// nil: 0. It must return quickly.
	HandOver func() time.Duration
	// Drain tells that the hand-over of these segments, or their loss, begins: no
	// new work of them may be started, and what was not started should be given
	// back. [Presence.Hold] is false for them already. It is never called twice at once.
	Drain func(segments []uint32)
	// Changed is called after each look at the cluster and each change of what is
	// held. It must return quickly and must not wait for the Presence.
	Changed func(v *View)
	// Lost is called once, when a look shows that the workload is gone: its row was deleted, or made
	// again (see [workload.Lost]). From then on nothing is held. It must return at once, and should
	// lead to a call of Leave.
	Lost func(err error)
	// Nudge should make these members look at the cluster now; it must return at once. It is a hint:
	// if it is lost, they look later. May be nil.
	Nudge func(to []Member)
	// BestEffort lets the context of a Hold outlive trust while the control plane
	// is dark (P5.6): right for at-least-once delivery, where the worst is a
	// task done twice.
	BestEffort bool
	// Log receives what happens, each line with the workload and the instance. Default: nothing.
	Log *slog.Logger

	wall func() time.Time // for Started only; tests of wrong clocks set it
	many int              // in place of manyMembers; tests of small clusters with musters set it
}

func (o Options) withDefaults() (Options, error) {
	o.Beat = cmp.Or(o.Beat, 5*time.Second)
	o.Lease = cmp.Or(o.Lease, 4*o.Beat)
	o.Margin = cmp.Or(o.Margin, marginOf(o.Lease))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.many = cmp.Or(o.many, manyMembers)
	if o.wall == nil {
		o.wall = time.Now
	}
	if o.Role != RoleProcessor && o.Role != RoleDistributor {
		return o, fmt.Errorf("role %q is neither %q nor %q", o.Role, RoleProcessor, RoleDistributor)
	}
	return o, errors.Join(CheckInstance(o.Instance),
		row.Times{Beat: o.Beat, Lease: o.Lease, Margin: o.Margin}.Check())
}

// marginOf is the margin of a lease.
func marginOf(lease time.Duration) time.Duration { return lease * 3 / 20 }

// Presence is this process's membership in a workload's cluster. The package
// comment tells how. It beats, looks at the cluster, claims and hands over
// segments by itself until Leave. Its methods may be called from many goroutines at once.
type Presence struct {
	options  Options
	table    storage.Table
	workload string
	times    row.Times // the loop alone changes them, with mu held
	draw     row.Draw
	clock    waits.Clock
	row      row.Row[memberRow]
	reader   viewReader
	started  time.Time // by the wall clock

	ctx    context.Context // of all requests; ends when Leave's does
	cancel context.CancelFunc
	wake   chan struct{} // holds a token after what the loop must see changed
	done   chan struct{} // the loop has ended
	leave  chan struct{} // closed by Leave
	view   atomic.Pointer[View]
	drains sync.Mutex // held while Drain is called
	rounds waits.Counter

	// mu guards what follows. It is never held over a request or a callback.
	mu          sync.RWMutex
	incarnation string
	trustEnds   time.Time
	trustFor    time.Duration // from beaten until then
	wants       row.Times     // from the next beat on
	alarm       *time.Timer   // fires at trustEnds
	holds       []*holding    // by segment; nil: not held. Empty if the workload is shared
	above       []uint64      // by segment: epochs of its holds must be greater, as Raise said
	speak, look bool          // a beat, a look at the cluster was asked for
	leaving     bool
	drainBy     time.Time // when leaving: what is not settled then is still given up
	beaten      time.Time // when the last acknowledged beat was sent
	blind       time.Time // when the view gets old: a look should have succeeded by then
	seen        time.Time // when the last successful look was sent
	unowned     int
	unownedFrom time.Time // the segment longest without an owner has been seen so since

	loop loopState // the loop's alone
}

// Join makes this process a member of the workload's cluster: it writes the member row, reads the
// first view and starts the loop. Join waits until an earlier process of the same name is dead
// (lease + margin), or has left if it stops; if that process lives, the error is [ErrNameTaken].
// ctx bounds the call only. Join gives up a minute after it could have succeeded at the latest.
func Join(ctx context.Context, w *workload.Workload, o Options) (*Presence, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("joining the cluster: %w", err)
	}
	o.Log = o.Log.With("workload", w.Name, "instance", o.Instance)
	t := row.Times{Beat: o.Beat, Lease: o.Lease, Margin: o.Margin}
	p := &Presence{
		options: o, workload: w.Name, times: t, wants: t, draw: row.DrawOf(w.Table),
		clock: row.ClockOf(w.Table), started: o.wall(), wake: make(chan struct{}, 1),
		done: make(chan struct{}), leave: make(chan struct{}),
	}
	p.table = row.Counted(w.Table, &p.rounds)
	p.row = memberRowOf(p.table, w.Name, o.Instance, t.Timeout())
	p.reader = viewReader{table: p.table, workload: w.Name, timeout: t.Timeout()}
	if !w.Shared {
		p.holds, p.above = make([]*holding, w.Map.Segments), make([]uint64, w.Map.Segments)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.Lock() // the alarm may fire at once
	p.alarm = time.AfterFunc(0, p.expire)
	p.mu.Unlock()
	p.loop.observer = newObserver(o.Instance, t, len(p.holds))
	p.loop.observer.many = o.many
	if err := p.join(ctx, w); err != nil {
		p.alarm.Stop()
		p.cancel()
		return nil, fmt.Errorf("joining the cluster: %w", err)
	}
	go p.run()
	return p, nil
}

func (p *Presence) join(ctx context.Context, w *workload.Workload) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience+2*p.times.Dead())
	defer cancel()
	if err := p.enter(ctx); err != nil {
		p.withdraw()
		return err
	}
	v, err := p.firstView(ctx)
	if err == nil {
		// What was made for w has no place for another number of segments.
		v.Workload, err = w.Later(v.Workload)
	}
	if err == nil && !p.shown(v) {
		err = ErrEvicted
	}
	if err != nil {
		p.withdraw()
		return err
	}
	p.loop.first = v
	p.view.Store(v)
	p.sees(v.received, 1)
	if !v.muster { // else the watchers have seen this member, and nudge those that it concerns
		p.nudgeAll(v)
	}
	return nil
}

// withdrawFor is short: a process that ends waits for it, also if the account does not answer.
const withdrawFor = 800 * time.Millisecond

// withdraw removes the row of a member whose join failed. An insert whose caller gave up while it
// was under way may have acted. So withdraw reads the row, and removes it if it is of this
// incarnation. A row that lands later stays until others evict it as dead.
func (p *Presence) withdraw() {
	if p.loop.beatTried.IsZero() {
		return // nothing was sent
	}
	ctx, cancel := context.WithTimeout(p.ctx, withdrawFor) // Join's may be what ended
	defer cancel()
	now, err := p.row.Read(ctx)
	if err == nil && now.Value.Incarnation == p.incarnation {
		_ = p.row.TryRemove(ctx, now)
	}
}

// newIncarnation tells this membership from an earlier one under the same name.
func (p *Presence) newIncarnation() string {
	if s, ok := p.table.(row.SeededTable); ok && s.Draw != nil {
		return fmt.Sprintf("%016x", p.draw("incarnation", p.options.Instance))
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}

// SetTimes gives the member other times, from its next beat on, which comes at once.
func (p *Presence) SetTimes(beat, lease time.Duration) {
	t := row.Times{Beat: beat, Lease: lease, Margin: marginOf(lease)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wants != t && t.Check() == nil {
		p.wants, p.speak = t, true
		waits.Signal(p.wake)
	}
}

// takeTimes puts the wanted times in force before a beat that says them (P5.2). Others judge by a
// beat as soon as it has landed, which is after now, and its answer may never come: so with a
// shorter lease trust ends at the latest when a beat of now would be too old. A longer lease counts
// once the beat is acknowledged.
func (p *Presence) takeTimes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wants == p.times {
		return
	}
	p.options.Log.Info("the member has other times", "beat", p.wants.Beat, "lease", p.wants.Lease)
	p.times, p.loop.observer.times = p.wants, p.wants
	p.row.Timeout, p.reader.timeout = p.times.Timeout(), p.times.Timeout()
	if most := p.clock.Since(p.beaten) + p.times.Trust(); most < p.trustFor {
		p.trustFor = most
		p.trustEnds = time.Now().Add(p.times.Trust())
		p.alarm.Reset(p.times.Trust())
	}
}

// Rounds counts what the loop has tried: its rounds, and each of its requests.
func (p *Presence) Rounds() *waits.Counter { return &p.rounds }

// View is the latest look at the cluster; never nil.
func (p *Presence) View() *View { return p.view.Load() }

// Look makes the member beat and look at the cluster now, or shortly: many calls at once are one
// look.
func (p *Presence) Look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speak, p.look = true, true
	waits.Signal(p.wake)
}

// Raise says that a hold of this segment is useless unless its epoch is greater than above, because
// the segment's ledger has been under that epoch: the owner rows are behind, as after a fail-over
// of the account, a table restored in parts, or a removed row. At its next look, which comes at
// once, the member claims the segment again above that epoch if it still owns the segment. If
// another has the segment, nothing happens.
func (p *Presence) Raise(segment uint32, above uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(segment) < len(p.above) && p.above[segment] < above {
		p.above[segment], p.look = above, true
		waits.Signal(p.wake)
	}
}

// Settle says that the last work in hand of a segment in hand-over may be done, so that InHand is
// asked again at once.
func (p *Presence) Settle(segment uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(segment) < len(p.holds) && p.holds[segment] != nil &&
		!p.holds[segment].draining.IsZero() {
		p.look = true
		waits.Signal(p.wake)
	}
}

// Dark is how long the control plane has not answered this member as it should; 0: it has. It is
// counted from the last answered beat, or the last answered look at the cluster. It is not 0 if
// trust is over or the known view of the cluster is old.
func (p *Presence) Dark() time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := time.Now()
	var dark time.Duration
	if !p.trustedLocked() || now.Sub(p.beaten) > 2*p.times.Beat {
		dark = now.Sub(p.beaten)
	}
	if now.After(p.blind) {
		dark = max(dark, now.Sub(p.seen))
	}
	return dark
}

// Unowned is the number of segments that no live member owned at the last look, and how long the
// longest such segment has been seen so.
func (p *Presence) Unowned() (n int, longest time.Duration) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.unowned == 0 {
		return 0, 0
	}
	return p.unowned, time.Since(p.unownedFrom)
}

// Leave ends the membership: it drains what is held (for a lease, or three quarters of what ctx
// leaves, at most), gives it up and removes the member row. While the control plane is dark it
// tries until ctx ends. When it returns no Hold is alive and the member makes no request any more.
// Later calls wait until the first is done, or their own ctx ends.
func (p *Presence) Leave(ctx context.Context) {
	p.mu.Lock()
	first := !p.leaving
	if first {
		p.leaving = true
		close(p.leave)
		p.drainBy = time.Now().Add(p.times.Lease)
		if deadline, ok := ctx.Deadline(); ok {
			if by := time.Now().Add(time.Until(deadline) * 3 / 4); by.Before(p.drainBy) {
				p.drainBy = by
			}
		}
		drainOver := time.AfterFunc(time.Until(p.drainBy), func() { p.endAll(errHandedOver) })
		defer drainOver.Stop()
		defer context.AfterFunc(ctx, p.cancel)()
	}
	p.mu.Unlock()
	if first {
		p.drainAll() // at once, even while the loop waits
		waits.Signal(p.wake)
		<-p.done
		return
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// nudge hints to members that they should look.
func (p *Presence) nudge(v *View, chosen func(i int, m *Member) bool) {
	if p.options.Nudge == nil {
		return
	}
	var to []Member
	for i := range v.Members {
		if m := &v.Members[i]; m.Instance != p.options.Instance && m.Admin != "" && chosen(i, m) {
			to = append(to, *m)
		}
	}
	if len(to) > 0 {
		p.options.Nudge(to)
	}
}

func (p *Presence) nudgeOwners(segments []uint32) {
	v := p.View()
	owners := map[string]bool{}
	for _, s := range segments {
		if m, ok := v.OwnerOf(s); ok {
			owners[m.Instance] = true
		}
	}
	p.nudge(v, func(_ int, m *Member) bool { return owners[m.Instance] })
}

// nudgeAll hints to all members of a small cluster. In a large cluster, where a look costs the
// table many rows, it hints to the watchers, and they hint to the members planned for segments
// without an owner. Hand-overs can wait for the looks that come anyway.
func (p *Presence) nudgeAll(v *View) {
	if !p.loop.observer.large(v) {
		p.nudge(v, func(int, *Member) bool { return true })
		return
	}
	watchers := p.loop.observer.watchers(v)
	if !slices.Contains(watchers, p.options.Instance) {
		p.nudge(v, func(_ int, m *Member) bool { return slices.Contains(watchers, m.Instance) })
		return
	}
	involved := map[string]bool{}
	for s, planned := range v.Plan() {
		if planned >= 0 && v.alive(v.Owners[s]) < 0 {
			involved[v.candidates[planned]] = true
		}
	}
	p.nudge(v, func(_ int, m *Member) bool { return involved[m.Instance] })
}
