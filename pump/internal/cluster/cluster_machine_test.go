package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// clusterMachine outlives its processes: it has the network, the clock and the
// name that the processes use one after another.
type clusterMachine struct {
	world  *clusterWorld
	number int
	name   string

	// Guarded by world.mu.
	wall      time.Duration // how far its wall clock is ahead
	rate      float64       // how fast its clocks run; 1 is true
	cutOffTo  time.Time
	slowTo    time.Time
	loseTo    time.Time
	loseShare int
	orders    []*clusterOrder
	lives     int
	life      *clusterLife // the newest; nil before the first
}

// clusterOrder is a fault that is to hit the next writes of some rows.
type clusterOrder struct {
	kind, row string
	left      int
}

// clusterLife is one process.
type clusterLife struct {
	machine *clusterMachine
	number  int
	watches bool            // it takes no segments
	draw    row.Draw        // its own: what a dead one still draws changes nothing for the next
	ctx     context.Context // ends with the process
	end     context.CancelFunc
	stands  context.Context // ends when it no longer stands for election
	resign  context.CancelFunc

	// Guarded by world.mu.
	presence *Presence // nil until it has joined
	dead     bool      // crashed, or has left
	leaving  bool
	pausedTo time.Time
	term     *election.Term
	inHand   map[uint32]time.Time // until when a handler is busy with a segment
	drained  map[uint32]time.Time // when the hand-over of a segment began last
	holds    []Hold               // by segment; what its handlers work under
	calls    map[string]int
	beat     time.Duration // as its clock shows it, as the next
	lease    time.Duration
	least    time.Duration // of the leases that it had
}

// count says how many times an operation on an object has been asked for.
func (l *clusterLife) count(op, object string) int {
	l.machine.world.mu.Lock()
	defer l.machine.world.mu.Unlock()
	l.calls[op+object]++
	return l.calls[op+object]
}

// roll is a number below n, by what it is for (P9).
func (l *clusterLife) roll(n uint64, what, object string, times int) uint64 {
	return testkit.Hash(l.machine.world.script.seed, l.String()+"\x00"+what+"\x00"+object, times) % n
}

// fate decides what becomes of a request that is sent now.
func (l *clusterLife) fate(op, object string, n int) (f clusterFate) {
	m := l.machine
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	roll := func(n2 uint64, what string) uint64 { return l.roll(n2, what, op+object, n) }
	if now.Before(m.slowTo) {
		f.before = time.Duration(roll(uint64(1500*time.Millisecond), "before"))
		f.after = time.Duration(roll(uint64(1500*time.Millisecond), "after"))
		w.faults["slow"]++
	}
	_, row, _ := strings.Cut(object, "/")
	order := slices.IndexFunc(m.orders, func(o *clusterOrder) bool {
		return o.left > 0 && strings.HasPrefix(row, o.row) && op != "read" && op != "query"
	})
	switch {
	case now.Before(m.cutOffTo):
		f.kind = []string{"broken", "hung"}[roll(2, "cut off")]
	case order >= 0:
		m.orders[order].left--
		f.kind = m.orders[order].kind
	case now.Before(m.loseTo) && roll(100, "lose") < uint64(m.loseShare):
		f.kind = clusterFaults[roll(uint64(len(clusterFaults)), "kind")]
	}
	if f.kind != "" {
		w.faults[f.kind]++
	}
	return f
}

// says and hears translate durations in rows: the times of a process whose clock
// runs at another rate are stretched instead of its clock, and what it writes
// down is what its clock shows.
func (m *clusterMachine) says(e storage.Entity) storage.Entity  { return m.translate(e, m.rate) }
func (m *clusterMachine) hears(e storage.Entity) storage.Entity { return m.translate(e, 1/m.rate) }

func (m *clusterMachine) translate(e storage.Entity, rate float64) storage.Entity {
	if rate == 1 || e.Properties == nil {
		return e
	}
	e.Properties = maps.Clone(e.Properties)
	for _, name := range []string{"Every", "Beat", "Lease", "Margin"} {
		if d, ok := e.Properties[name].(int64); ok {
			e.Properties[name] = int64(float64(d) * rate)
		}
	}
	return e
}

// clock is the machine's wall clock.
func (m *clusterMachine) clock() time.Time {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	return time.Now().Add(m.wall)
}

// shows is how long it takes until the machine's clocks show that so much has passed.
func (m *clusterMachine) shows(d time.Duration) time.Duration {
	return time.Duration(float64(d) / m.rate)
}

// start begins a process on the machine.
func (m *clusterMachine) start(watches bool) {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	m.lives++
	l := &clusterLife{machine: m, number: m.lives, watches: watches, inHand: map[uint32]time.Time{}, drained: map[uint32]time.Time{}, holds: make([]Hold, w.script.segments), calls: map[string]int{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.stands, l.resign = context.WithCancel(l.ctx)
	l.draw = testkit.SeededDraw(w.script.seed, l.String())
	l.beat, l.lease, l.least = m.shows(clusterBeat), m.shows(clusterLease), m.shows(clusterLease)
	m.life = l
	w.all = append(w.all, l)
	w.lives.Go(l.live)
}

// live is the process: it joins, however often that takes, and then stands for
// election while its membership goes on by itself.
func (l *clusterLife) live() {
	m := l.machine
	table := l.table("member")
	o := Options{
		Instance: m.name, Host: m.name, Role: RoleProcessor, Version: "test",
		Beat: m.shows(clusterBeat), Lease: m.shows(clusterLease), Margin: m.shows(clusterMargin),
		Report: l.report, InHand: l.busy, Drain: l.drain, Changed: l.changed, Nudge: l.nudge,
		BestEffort: m.world.script.seed%3 == 0,
		wall:       m.clock, many: m.world.script.many,
	}
	if l.watches {
		o.Role = RoleDistributor
	}
	for n := 1; l.ctx.Err() == nil; n++ {
		p, err := l.join(table, o)
		if err == nil {
			l.joined(p)
			break
		}
		m.world.note(l.String(), fmt.Sprint("could not join: ", err))
		wait(l.ctx, time.Second+time.Duration(l.roll(uint64(time.Second), "rejoin", "", n)))
	}
	l.stand(l.table("candidate"))
}

// retime gives the process other times.
func (l *clusterLife) retime(beat, lease time.Duration) {
	l.machine.world.mu.Lock()
	l.beat, l.lease, l.least = beat, lease, min(l.least, lease)
	p := l.presence
	l.machine.world.mu.Unlock()
	if p != nil {
		p.SetTimes(beat, lease)
	}
}

// times are those of its terms.
func (l *clusterLife) times() (beat, lease time.Duration) {
	l.machine.world.mu.Lock()
	defer l.machine.world.mu.Unlock()
	return l.beat, l.lease
}

// table is the control table for one part of the process. Each has a client of
// its own at the service, which counts a client's requests in the order in which they
// come (P9); two parts may act in the same instant.
func (l *clusterLife) table(part string) storage.Table {
	w := l.machine.world
	return row.Seeded(&clusterWire{Table: w.driver(l.machine.name + "." + part), life: l}, l.draw)
}

func (l *clusterLife) join(table storage.Table, o Options) (*Presence, error) {
	ctx, cancel := context.WithTimeout(l.ctx, 2*time.Minute)
	defer cancel()
	w, err := workload.Load(ctx, table, "city")
	if err != nil {
		return nil, err
	}
	return Join(ctx, w, o)
}

func (l *clusterLife) joined(p *Presence) {
	w := l.machine.world
	w.mu.Lock()
	l.presence = p
	dead := l.dead
	w.mu.Unlock()
	if dead { // in the very moment
		l.bury(p)
	}
}

func (l *clusterLife) String() string { return fmt.Sprintf("%s/%d", l.machine.name, l.number) }

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stand stands for election until the process ends or resigns.
func (l *clusterLife) stand(table storage.Table) {
	m := l.machine
	e := election.New(table, "city", election.Options{
		Instance: m.name, Every: m.shows(clusterEvery),
		Times: l.times, Beat: m.shows(clusterBeat), Lease: m.shows(clusterLease), Margin: m.shows(clusterMargin),
	})
	for n := 1; l.stands.Err() == nil; n++ {
		ctx, cancel := context.WithTimeout(l.stands, m.shows(clusterLease))
		term, pause, _ := e.Try(ctx)
		cancel()
		l.stopped("stands")
		if term == nil {
			wait(l.stands, pause)
			continue
		}
		l.lead(term, n)
	}
}

// lead is a distribution of some seconds with a few saves.
func (l *clusterLife) lead(term *election.Term, n int) {
	m := l.machine
	w := m.world
	w.mu.Lock()
	l.term = term
	w.judge.terms++
	w.mu.Unlock()
	w.look()
	ctx, cancel := context.WithCancel(term.Context())
	defer cancel()
	defer context.AfterFunc(l.stands, cancel)()
	defer func() {
		w.mu.Lock()
		l.term = nil
		w.mu.Unlock()
	}()
	work := func(i int) bool {
		wait(ctx, time.Duration(l.roll(uint64(8*time.Second), "distributes", "", n*10+i)))
		l.stopped("leads")
		return ctx.Err() == nil
	}
	if term.Resume == nil {
		var run codec.RunID
		binary.BigEndian.PutUint64(run[:], uint64(m.number)<<32|uint64(l.number)<<16|uint64(n))
		if term.Begin(ctx, run) != nil {
			l.leaves(term)
			return
		}
	}
	for i := range 3 {
		if !work(i) || term.Save(ctx, binary.BigEndian.AppendUint64(nil, uint64(i))) != nil {
			l.leaves(term)
			return
		}
	}
	if term.Finish(ctx) != nil {
		l.leaves(term)
	}
}

// leaves gives a term up. Of a process that is dead nothing is written, but its
// goroutine must end with it.
func (l *clusterLife) leaves(term *election.Term) {
	ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
	defer cancel()
	term.Abandon(ctx)
}

// stopped waits while the process is stopped, and says whether it was. Whatever
// the process does on its own calls it first: its timers may have fired
// meanwhile, but no member can act on them.
func (l *clusterLife) stopped(what string) (was bool) {
	w := l.machine.world
	for {
		w.mu.Lock()
		d := time.Until(l.pausedTo)
		dead := l.dead
		w.mu.Unlock()
		if d <= 0 || dead {
			return was
		}
		was = true
		// Not all of it goes on in the same nanosecond: what does so has no order.
		wait(l.ctx, d+time.Duration(l.roll(uint64(100*time.Microsecond), "goes on", what, int(d))))
	}
}

func (l *clusterLife) over() bool {
	w := l.machine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.dead
}

func (l *clusterLife) member() *Presence {
	w := l.machine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.presence
}

// kill ends the process where it stands: nothing more of it is sent, and whether
// it trusts anything no longer matters. Its goroutines end by themselves.
func (l *clusterLife) kill() {
	w := l.machine.world
	w.mu.Lock()
	was := l.dead
	l.dead = true
	p := l.presence
	w.mu.Unlock()
	l.end()
	if !was && p != nil {
		l.bury(p)
	}
}

func (l *clusterLife) bury(p *Presence) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	l.machine.world.lives.Go(func() { p.Leave(gone) })
}

// leave is the good order.
func (l *clusterLife) leave() {
	w := l.machine.world
	w.mu.Lock()
	l.leaving = true
	p := l.presence
	w.mu.Unlock()
	l.resign()
	if p == nil {
		l.kill()
		return
	}
	w.lives.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, 2*clusterLease)
		defer cancel()
		p.Leave(ctx)
		w.look()
		w.mu.Lock()
		l.dead = true
		w.mu.Unlock()
		l.end()
	})
}

func (l *clusterLife) report() Report {
	l.stopped("report")
	return Report{Admin: l.machine.name + ":8080", Reads: 1, Accounts: []string{"acct01"}, Demand: map[string]float64{"acct01": float64(l.machine.number)}}
}

func (l *clusterLife) changed(*View) {
	l.stopped("changed")
	l.machine.world.look()
}

// drain finds that handlers are busy with some of the segments for a while. It
// cannot wait for a stopped process to go on, because of the lock it is under.
func (l *clusterLife) drain(segments []uint32) {
	m := l.machine
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range segments {
		l.drained[s] = time.Now()
		if w.script.work == 0 {
			continue
		}
		of := fmt.Sprint(s)
		l.calls["drain"+of]++
		n := l.calls["drain"+of]
		if l.roll(3, "busy", of, n) > 0 {
			continue
		}
		d := time.Duration(l.roll(uint64(w.script.work), "work", of, n))
		l.inHand[s] = time.Now().Add(d)
		if p := l.presence; p != nil && l.roll(4, "settles", of, n) > 0 {
			time.AfterFunc(d, func() {
				if !l.over() {
					p.Settle(s)
				}
			})
		}
	}
}

func (l *clusterLife) busy(segment uint32) bool {
	l.stopped("busy")
	w := l.machine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(l.inHand[segment])
}

// nudge carries hints; some are lost.
func (l *clusterLife) nudge(to []Member) {
	l.stopped("nudge")
	m := l.machine
	w := m.world
	if w.script.quiet {
		return
	}
	for _, member := range to {
		n := l.count("nudge", member.Instance)
		if l.roll(5, "nudge", member.Instance, n) == 0 {
			continue
		}
		time.AfterFunc(time.Millisecond+time.Duration(l.roll(uint64(50*time.Millisecond), "nudged", member.Instance, n)), func() { w.nudged(member.Instance) })
	}
}

func (w *clusterWorld) nudged(instance string) {
	var p *Presence
	w.mu.Lock()
	for _, l := range w.all {
		if now := time.Now(); l.machine.name == instance && !l.dead && l.pausedTo.Before(now) && l.machine.cutOffTo.Before(now) {
			p = l.presence
		}
	}
	w.mu.Unlock()
	if p != nil {
		p.Look()
	}
}
