package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// The settings of every simulated process, other than those of the plan.
const (
	simBeat     = 5 * time.Second // unless the plan says otherwise
	simAttempts = 4
	simRetryMax = 10 * time.Second
	simGrace    = 10 * time.Second
	simSoon     = 30 * time.Second // after which sources that change, or cannot be read again, are distributed once more
)

// simProcess is one life of a process.
type simProcess struct {
	world  *simWorld
	name   string
	number int             // the how-manieth of its name
	alive  context.Context // ends when it dies
	die    context.CancelFunc
	asked  context.Context // ends when it is told to stop
	stop   context.CancelFunc
	ended  chan struct{} // closed when Run has returned

	distributor *distributor.Distributor
	inHand      atomic.Pointer[simHands]
	processor   *processor.Processor
	does        func(context.Context) error // of those that are neither: a program with a Sender, an operator

	// Guarded by world.mu.
	dead     bool
	died     time.Time
	stopping bool
	err      error // of Run
	did      processor.Summary
	pausedTo time.Time
	slept    []simSleep
	heard    time.Time // when the last request of a table that was answered was sent
	calls    map[string]int
	points   []*simPoint
	hands    int    // handlers at work
	turned   bool   // its accounts are in another order
	fewer    bool   // it makes fewer attempts
	emptying string // of an operator at the quarantine: redrive or drop
	deleting *simDeleting
}

// simPoint is where a process is to die, or to stand still for so long.
type simPoint struct {
	after bool
	op    string
	left  int
	pause time.Duration
}

func (p *simProcess) String() string { return fmt.Sprintf("%s/%d", p.name, p.number) }

// count says how many times something has come up.
func (p *simProcess) count(what string) int {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.calls[what]++
	return p.calls[what]
}

// roll is a number below n, by what it is for (P9).
func (p *simProcess) roll(n uint64, what, object string, times int) uint64 {
	return testworld.SimHash(p.world.plan.seed, p.String()+"\x00"+what, object, times) % n
}

func (p *simProcess) over() bool { return p.alive.Err() != nil }

// stopped waits while the process is stopped, and says whether it was. Whatever
// shows outside the process calls it first: timers may have fired
// meanwhile, but no process can act on them.
func (p *simProcess) stopped(what string) (was bool) {
	for {
		p.world.mu.Lock()
		d := time.Until(p.pausedTo)
		p.world.mu.Unlock()
		if d <= 0 || p.over() {
			return was
		}
		was = true
		// Not all of it goes on in the same nanosecond: what does so has no order.
		waits.Wait(p.alive, d+time.Duration(p.roll(uint64(100*time.Microsecond), "goes on", what, int(d))))
	}
}

// reaches says that the process is before or after a request at which it may be
// meant to die, and whether it is dead.
func (p *simProcess) reaches(r simRequest, after bool) bool {
	w := p.world
	w.mu.Lock()
	due := ""
	for _, point := range p.points {
		if (point.op == r.op || point.op == r.step) && point.after == after && point.left > 0 {
			if point.left--; point.left == 0 && point.pause > 0 {
				p.pausedTo = time.Now().Add(point.pause)
			} else if point.left == 0 && !p.dead {
				due = map[bool]string{false: "before ", true: "after "}[after] + point.op
			}
		}
	}
	w.mu.Unlock()
	if due != "" {
		p.kill(due)
	}
	return p.over()
}

// kill ends the process where it stands: nothing more of it is sent or has an
// effect. Its goroutines end by themselves.
func (p *simProcess) kill(at string) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || p.alive.Err() != nil {
		return
	}
	p.dead, p.died = true, time.Now()
	p.diesLocked()
	if !w.over {
		w.counts["crash "+at]++
		if p.hands > 0 {
			w.counts[simDiedWithTasks]++
		}
	}
	w.noteLocked(p.String(), "dies "+at)
	p.die()
	p.stop()
}

// start begins a life of a process; order is what an operator is to do.
func (w *simWorld) start(name string, order ...string) {
	p := &simProcess{world: w, name: name, calls: map[string]int{}, ended: make(chan struct{})}
	p.turned = slices.Equal(order, []string{simTurned})
	p.fewer = slices.Equal(order, []string{simFewerTurn})
	p.alive, p.die = context.WithCancel(context.Background())
	p.asked, p.stop = context.WithCancel(p.alive)
	w.mu.Lock()
	if old := w.latest[name]; old != nil {
		p.number = old.number
	}
	p.number++
	w.latest[name] = p
	w.all = append(w.all, p)
	w.noteLocked(p.String(), "starts")
	w.counts["start"]++
	w.mu.Unlock()
	var err error
	switch name[0] {
	case 'p':
		p.processor, err = processor.New(p.config(), p.handler(), p.processorOptions())
	case 's':
		p.does = p.sends
	case 'n':
		p.does = p.sendsNamed
	case 'x':
		p.does = func(ctx context.Context) error { return p.operates(ctx, order) }
	default:
		p.distributor, err = p.newDistributor(w.source(name))
	}
	if err != nil {
		w.wrongf("%s cannot start: %v", p, err)
		p.kill("at the start")
		close(p.ended)
		return
	}
	w.lives.Go(p.live)
}

func (p *simProcess) processorOptions() processor.Options {
	o := processor.Options{
		Concurrency: p.world.plan.handlers, Visibility: p.world.plan.visibility, Grace: simGrace,
		PerKey: p.world.plan.perKeyLimits(), Results: p.world.plan.results,
		Retry: pump.RetryPolicy{MaxAttempts: simAttempts, Base: time.Second, Max: simRetryMax},
	}
	o.Beat, o.Lease = p.world.plan.times()
	if p.name == simSweeper {
		o.Beat, o.Lease = simSweeps, 4*simSweeps
	}
	if p.world.plan.gated && p.name[1:] > "2" {
		o.Gate = simGate
	}
	if p.fewer {
		o.Retry.MaxAttempts = simFewer
	}
	return o
}

// newDistributor makes a distributor of a source: of role d an elected one.
func (p *simProcess) newDistributor(src *simSource) (*distributor.Distributor, error) {
	w := p.world
	o := distributor.Options{
		Pack: w.plan.pack, OnBadLine: distributor.BadLineQuarantine, SealAge: time.Second, Grace: simGrace,
		BlobAbove: w.plan.blobAbove(),
	}
	o.Beat, o.Lease = w.plan.times()
	o.OnRun = func(s distributor.Summary, _ error) {
		if s.Resumed && !p.over() {
			w.count(simTakenOver)
		}
	}
	if p.name[0] == 'd' {
		o.Every = simEvery
		// A run that cannot be continued is broken, and the next one comes after this.
		if src.live() || w.plan.changes() || w.plan.remakes() {
			o.Every = simSoon
		}
	}
	if p.name[0] == 'n' {
		o.Name = simName
		if w.plan.delivery == pump.Once && p.roll(3, "waits", "", 0) == 0 {
			o.Wait = &pump.WaitOptions{}
		}
	}
	reading := source.Source(simReading{src, p})
	if src.files != nil {
		reading = simShelf{src, p}
	}
	cfg := p.config()
	engine := sim.In(&cfg)
	engine.BarrierAge, engine.MaxUnsaved = 3*time.Second, w.maxUnsaved()
	return distributor.New(cfg, reading, o)
}

func (p *simProcess) live() {
	defer close(p.ended)
	w := p.world
	var err error
	var did processor.Summary
	switch {
	case p.processor != nil:
		did, err = p.processor.Run(p.asked)
	case p.does != nil:
		err = p.does(p.asked)
	default:
		_, err = p.distributor.Run(p.asked)
	}
	if p.over() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.err, p.did = err, did
	w.noteLocked(p.String(), fmt.Sprint("ends: ", err))
	p.die()
}

// config is what the process is configured with: accounts behind its own wire.
func (p *simProcess) config() pump.Config {
	w := p.world
	c := pump.Config{
		Workload: "work", Instance: p.name, Segments: w.plan.segments, Delivery: w.plan.delivery, Log: w.log(p.String()),
		Admin: p.name + ":80", Nudge: p.nudge,
	}
	if w.plan.results || w.plan.bodies {
		c.Retention = simRetention
	}
	names := w.sim.Accounts()
	if p.turned {
		names = slices.Clone(names)
		slices.Reverse(names)
	}
	for _, name := range names {
		st, err := azure.Open(azure.Options{ConnectionString: w.sim.ConnectionString(name), Transport: w.sim.Transport().As(p.name)})
		if err != nil {
			panic(err) // the simulator's own connection string
		}
		c.Accounts = append(c.Accounts, pump.Account{Storage: &simWire{st, p}, Queues: w.plan.queues})
	}
	engine := sim.In(&c)
	engine.Seeding = w.turns.Of(p.String())
	engine.Lanes = 2 // or a history would be that of a machine's number of processors
	engine.Hands = func(l *ledger.Ledger, hold func(uint32) (cluster.Hold, bool)) { p.inHand.Store(&simHands{l, hold}) }
	if w.plan.foreign > 0 {
		c.ForeignKey, engine.Names = "key", simNames
	}
	if w.plan.suspends() {
		engine.Seeding.Ahead = p.ahead
	}
	return c
}

// nudge carries hints; some are lost.
func (p *simProcess) nudge(_ context.Context, n pump.Nudge) error {
	w := p.world
	p.stopped("nudge")
	k := p.count("nudge " + n.Instance + n.Queue)
	if p.over() || p.roll(5, "nudge", n.Instance+n.Queue, k) == 0 {
		return errSimLost
	}
	late := time.Millisecond + time.Duration(p.roll(uint64(50*time.Millisecond), "nudged", n.Instance+n.Queue, k))
	w.goes.Go(func() {
		time.Sleep(late)
		w.mu.Lock()
		to := w.latest[n.Instance]
		hears := to != nil && !to.over() && time.Now().After(to.pausedTo)
		w.mu.Unlock()
		switch {
		case !hears:
		case to.processor != nil:
			to.processor.Nudged(n)
		case to.distributor != nil:
			to.distributor.Nudged(n)
		}
	})
	return nil
}

func (p *simProcess) handler() pump.Handler {
	if p.world.plan.reducer {
		return p.reducer()
	}
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		task, err := p.handle(ctx, t)
		if err == nil && p.world.plan.results {
			t.SetResult(ctx, []byte(task.String()))
		}
		return err
	})
}

// errSimRoom is why a task without room is rejected in the end.
var errSimRoom = errors.New("there is no room for it")

// errSimDead is what a handler of a dead process returns, to no caller.
var errSimDead = errors.New("the process is dead")

// handle is what a task comes to here, in a time and with an end that its record says. A
// handler does not look at its context in the moment of its effect, as few do.
func (p *simProcess) handle(ctx context.Context, t *pump.Task) (*simTask, error) {
	w := p.world
	if p.over() { // its slots go on with what they have, in any order
		return nil, errSimDead
	}
	if n, is := foreignMessage(t.Body); is && w.plan.foreign > 0 {
		return nil, p.handleForeign(ctx, n)
	}
	task, err := w.begins(p, t)
	if string(t.Body) == simStray && w.plan.delivery == pump.AtLeastOnce {
		return nil, pump.Reject(err) // no run row could be read, and in this mode that stops no process (P5.6)
	}
	if err != nil {
		w.wrongf("%s was given a task that no source has: %v", p, err)
		return nil, pump.Reject(err)
	}
	defer w.returns(p, task)
	if w.triedTooOften(task) {
		return nil, pump.Reject(errSimRoom)
	}
	began := time.Now()
	waitAny(ctx, p.alive, w.works(task, t))
	p.judgeLease(ctx, began, task)
	w.turns.Of(p.String()).Turn("handled", task.String()) // two that end in one nanosecond have no order
	p.stopped("handle " + task.String())
	switch {
	case p.over():
		return nil, errSimDead
	case ctx.Err() != nil && p.roll(4, "stubborn", task.String(), task.begun) > 0:
		return nil, context.Cause(ctx)
	}
	if err := w.fails(p, task, t); err != nil {
		return nil, err
	}
	if p.reaches(simRequest{op: "effect"}, false) {
		return nil, errSimDead
	}
	w.effect(p, task)
	if p.reaches(simRequest{op: "effect"}, true) {
		return nil, errSimDead
	}
	return task, nil
}

// waitAny waits unless one of the contexts ends.
func waitAny(a, b context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.Done():
	case <-b.Done():
	}
}

// simState is the state of the simulation's reducer, with bytes that no compression makes fewer.
type simState struct {
	Sums simSums
	Pad  string `json:",omitempty"`
}

// simSums is of each key what its tasks come to.
type simSums map[string]simAmount

type simAmount struct{ Count, Sum int64 }

type simAddend struct {
	key     string
	sum     int64
	segment uint32
}

func (p *simProcess) reducer() pump.Handler {
	return (&reduce.Reducer[simState, simAddend]{
		Name: "simulation/1",
		Map: func(ctx context.Context, t *pump.Task) (simAddend, error) {
			task, err := p.handle(ctx, t)
			if err != nil {
				return simAddend{}, err
			}
			return simAddend{task.source.key(task.record), task.source.sum(task.record), task.segment}, nil
		},
		Fold: func(state *simState, a simAddend) {
			if state.Sums == nil {
				state.Sums, state.Pad = simSums{}, simPad(p.world.plan)
				if p.world.plan.isFull(a.segment) {
					state.Pad = string(simHoard(p.world.plan))
				}
			}
			s := state.Sums[a.key]
			state.Sums[a.key] = simAmount{s.Count + 1, s.Sum + a.sum}
		},
	}).Handler()
}

// simPad is of hexadecimal digits, which compression halves.
func simPad(p *simPlan) string {
	b := make([]byte, 0, 2*p.pad)
	for i := 0; len(b) < 2*p.pad; i++ {
		b = fmt.Appendf(b, "%016x", testworld.SimHash(p.seed, "pad", "", i))
	}
	return string(b)
}

// openTable is the control table for somebody outside the pump. Without a seeding, pauses between
// attempts are by chance.
func (w *simWorld) openTable() storage.Table {
	return row.Seeded(w.outside().Table(row.TableName), w.turns.Of("outside").Draw)
}

func (w *simWorld) outside() storage.Account {
	return w.account(w.sim.Accounts()[0])
}

func (w *simWorld) account(name string) storage.Account {
	return w.accountBy(name, w.sim.Transport().As("outside"))
}

// sure is an account as it is to the world, which knows what each of its requests has done.
func (w *simWorld) sure(name string) storage.Account {
	return w.accountBy(name, w.sim.Transport().As("arranges").Spared())
}

func (w *simWorld) accountBy(name string, t *azsim.Transport) storage.Account {
	return openSim(w.sim, name, t)
}

func openSim(sim *azsim.Sim, name string, t *azsim.Transport) storage.Account {
	st, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: t})
	if err != nil {
		panic(err) // the simulator's own connection string
	}
	return st
}

// simKey is a task's identity.
type simKey struct {
	run     codec.RunID
	segment uint32
	n       uint64
}
