package send

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// message is one sealed envelope on its way.
type message struct {
	*pack.Message
	weight int64 // in the memory budget

	sink    *Sink  // where it waits or is put
	share   *share // of the account that it is for; nil: none yet
	route   *Route // why it belongs there
	probe   bool   // its next put finds out whether a dark home takes messages again
	attempt uint64
	refused int // throttles of its puts into the sink
}

// name tells a message from others of its distribution, for its turn.
func (m *message) name(t sim.Step) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d %v", m.Segment, m.First, m.Bad)
}

// Sealed and unacknowledged messages take memoryBudget at most. Each counts its text's buffer, and
// its text again, because a request holds a copy, or messageBytes if that is more: for its other
// fields, and for the goroutines, timers and buffers of the few under way. If that is more, it
// counts the receipts of its tasks: tiny tasks are packed thousands to a message. That is 380 full
// envelopes or twenty thousand small ones. It also is enough for what comes for a dark queue until
// it counts as dark: darkAfter at 2,000 a second. Packers that are faster than the puts fill it, so
// a larger one leaves the garbage collector no room below its goal: at 64 MiB, without the copies
// counted, it took a third of all CPU.
//
// Queues do not share it out, and accounts only in part (share). With random keys some queue always
// has more waiting than the rest, and no queue is idle as long as many times as many messages wait
// as there are queues. So beyond 512 queues each queue adds queueMemory, room for some 40 small
// messages. A queue that puts messages one after the other, and gets them at random, has r +
// r^2/2(1-r) of them when it is busy for the part r of the time: 6.5 at 0.92, which was all of
// 2,500 queues in 64 MiB, and 37 at 0.986 (M/D/1; Pollaczek and Khinchine).
const (
	memoryBudget = 48 << 20
	queueMemory  = 96 << 10
	messageBytes = 2 << 10
	receiptBytes = 80
)

// MemoryFor is what the messages to so many queues may take: the queues at the distribution's
// begin.
func MemoryFor(queues int) int64 { return max(memoryBudget, int64(queues)*queueMemory) }

// lookEvery is how often the sinks are judged by whether they are busy.
const lookEvery = time.Second

// helpAfter is how many throttles a message waits out at a home that is at its limit: they have
// cost it a second or two, and at the end of a source only this empties a queue that refuses nine
// of ten.
const helpAfter = 4

// crowdedBy is how many more messages a sink counts as holding if its account has no room.
const crowdedBy = 1 << 30

// Putter sends the messages of one distribution. Send takes a message over and picks the sink that
// the message goes to now. The message waits there until a worker puts it, again until it is
// acknowledged. If its segment's messages have to go elsewhere meanwhile, another sink is picked.
type Putter struct {
	Options
	memory *semaphore.Weighted // of the messages on their way
	total  int64               // of memory
	wg     sync.WaitGroup      // the messages on their way
	stuck  logs.Limited        // segments are
}

// Options are what a [Putter] works with.
type Options struct {
	Ctx    context.Context // its end is the end of all puts (P5.2)
	Stages *errgroup.Group // of the distribution, which ends with the first that fails
	Log    *slog.Logger
	Hooks  *pump.Hooks
	Jitter waits.Jitter
	Turn   sim.Step
	Router *Router
	Count  *pack.Tally
	// Acked is told of the interval of each acknowledged message.
	Acked func(interval int)
	// Delivered is told of each acknowledged envelope of tasks; it must not wait.
	Delivered func(into *Sink, m *pack.Message)
	// Stake is what is at stake until a queue has taken a message: a command may end then.
	Stake failure.Stake
	// Proven returns when it is known that the distribution may go on. It is called before each put,
	// and before the acknowledgement counts: the process may have stood still.
	Proven func(context.Context) error
	// Loops counts what goes round.
	Loops *Loops
}

// NewPutter makes the putter of a distribution.
func NewPutter(o Options) *Putter {
	total := MemoryFor(len(o.Router.Current().sinks))
	return &Putter{Options: o, memory: semaphore.NewWeighted(total), total: total}
}

// Wait waits until no message is on its way. All calls of Send must have come back before.
func (p *Putter) Wait() { p.wg.Wait() }

// Send takes a message over, waiting while too many are on their way, all together or to its queue.
func (p *Putter) Send(pm *pack.Message) error {
	text := cap(pm.Text) + max(len(pm.Text), messageBytes)
	m := &message{Message: pm, weight: int64(max(text, receiptBytes*len(pm.Receipts)))}
	p.Turn.Wait("send", m.name(p.Turn))
	if p.memory.Acquire(p.Ctx, m.weight) != nil {
		return context.Cause(p.Ctx)
	}
	for {
		s, err := p.pick(m)
		if err == nil && !m.probe && (s.full() || p.crowded(s)) {
			if err = p.awaitRoom(m, s); err == nil {
				p.Turn.Wait("send", m.name(p.Turn))
				continue
			}
		}
		if err != nil {
			p.memory.Release(m.weight)
			return err
		}
		p.wg.Add(1)
		s.push(m, p.hire)
		return nil
	}
}

// awaitRoom waits while a sink is full or its account holds its share of the memory, or until there
// may be another way. One lane is woken at a time and may go elsewhere, so it passes the signal on
// to the next.
func (p *Putter) awaitRoom(m *message, s *Sink) error {
	s.share.waits.Add(1)
	crowded, full := p.crowded(s), s.full()
	defer func() {
		s.share.waits.Add(-1)
		if crowded && !p.crowded(s) {
			s.share.wake()
		}
		if full && !s.full() {
			waits.Signal(s.room)
		}
	}()
	if !full && !crowded { // since the caller asked
		return nil
	}
	room := s.share.room
	if !crowded {
		room = nil // that is for others
	}
	select {
	case <-s.room:
	case <-room:
	case <-m.route.Changed:
	case <-p.Ctx.Done():
		return context.Cause(p.Ctx)
	}
	return nil
}

// crowded reports whether the account of a sink holds as much of the memory as it may.
func (p *Putter) crowded(s *Sink) bool {
	return s.share.crowded(p.total, p.Router.Current().accounts)
}

// pick picks the sink that a message goes to now: the first of its destinations that is not busy
// and whose account has room, or else the one with the fewest waiting.
func (p *Putter) pick(m *message) (*Sink, error) {
	t := p.Router.Current()
	home, list, err := p.destinations(t, m)
	if err != nil {
		return nil, err
	}
	refused := m.refused
	m.refused = 0
	if m.probe && m.sink != home {
		p.endProbe(m)
	}
	m.route = t
	if m.probe {
		return home, nil
	}
	if list[0] != home && home.probe(p.Jitter) {
		m.probe = true
		return home, nil
	}
	if len(list) > 1 && list[0] == m.sink && refused >= helpAfter {
		list = list[1:]
	}
	if len(list) == 1 {
		return list[0], nil
	}
	var best *Sink
	least := math.MaxInt
	for _, s := range list {
		n, busy := s.queued()
		if p.crowded(s) {
			n += crowdedBy
		} else if !busy {
			return s, nil
		}
		if n < least {
			best, least = s, n
		}
	}
	return best, nil
}

// destinations is where the message may go now, and where it would go if all were well.
func (p *Putter) destinations(t *Route, m *message) (home *Sink, list []*Sink, err error) {
	if t.Fatal != nil {
		return nil, nil, t.Fatal
	}
	if m.Bad {
		return t.poisonDestinations(m.Segment)
	}
	return t.home(m.Segment), t.destinations(m.Segment), nil
}

// belongs reports whether the message may be put where it is. Any change of that makes another
// route.
func (p *Putter) belongs(m *message) bool {
	t := p.Router.Current()
	if t == m.route {
		return true
	}
	home, list, err := p.destinations(t, m)
	if err != nil || !(m.probe && m.sink == home) && !slices.Contains(list, m.sink) {
		return false
	}
	m.route = t
	return true
}

// hire starts a worker of a sink.
func (p *Putter) hire(s *Sink) {
	p.Stages.Go(func() error {
		for m := s.next(); m != nil; m = s.next() {
			if err := p.deliver(m); err != nil {
				s.leave(p.hire)
				return err
			}
		}
		return nil
	})
}

// deliver puts a message until it is acknowledged, belongs elsewhere, or the distribution ends; an
// error ends the distribution. The bytes are the same each time, so that copies are recognised by
// their tasks' identities (P1.2), and one acknowledgement, from any queue, suffices.
func (p *Putter) deliver(m *message) error {
	defer p.Loops.Puts.Begin()()
	p.Count.Begun.Add(1)
	for {
		p.Loops.Puts.Add()
		made, err := p.tryPut(m)
		switch {
		case err == nil:
			p.acknowledged(m)
			p.done(m)
			return nil
		case p.Ctx.Err() != nil: // its cause is told by what ended it
			p.done(m)
			return nil
		case errors.Is(err, errMoved):
			if err = p.move(m); err != nil {
				p.done(m)
			}
			return err
		}
		delay, err := p.judge(m, err, made)
		if err != nil {
			p.done(m)
			return err
		}
		m.attempt++
		p.endProbe(m)
		p.pause(m, delay)
	}
}

// done ends a message.
func (p *Putter) done(m *message) {
	p.endProbe(m)
	m.share.take(-m.weight)
	p.memory.Release(m.weight)
	p.wg.Done()
}

// endProbe lets another message probe; what this one found out has been counted.
func (p *Putter) endProbe(m *message) {
	if m.probe {
		m.probe, m.route = false, nil // it belongs there no longer
		m.sink.observe((*health).endProbe)
	}
}

// move brings a message to where it belongs now. It never waits: two full sinks whose messages
// want to change places would wait for each other for ever.
func (p *Putter) move(m *message) error {
	p.Turn.Wait("move", m.name(p.Turn))
	s, err := p.pick(m)
	if err == nil {
		s.push(m, p.hire)
	}
	return err
}

// Watch judges the sinks by whether they are busy, and finds other ways for messages that wait at a
// queue that is not well or no longer a home, until the distribution ends.
func (p *Putter) Watch() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	defer p.Loops.Sinks.Begin()()
	defer p.Router.said.Flush()
	for t := p.Router.Current(); ; {
		second := false
		select {
		case <-look.C:
			second = true
		case <-t.Changed:
		case <-p.Ctx.Done():
			return
		}
		p.Turn.Wait("watch")
		old := t
		t = p.Router.Current()
		troubled, all := false, heldBy(old.sinks)
		for _, s := range old.sinks {
			_, busy := s.queued()
			hinders, eased := s.share.hinders(p.total, all, t.accounts)
			p.observe(s, func(h *health, now time.Time) {
				if second { // or what moves because of it would change it back without end
					h.crowded = hinders || h.crowded && !eased
				}
				h.look(now, busy)
			})
			ill := s.state() != well
			troubled = troubled || ill
			if ill || t.choices != old.choices {
				p.scatter(s)
			}
		}
		if troubled {
			waits.Signal(p.Router.wake) // the helping queues may be pressed by now
			if n := t.Stuck(); n > 0 {  // their tasks can go nowhere
				p.stuck.Say(p.Log.Error, "the queues of all three choices of segments take nothing; "+
					"their tasks wait, and with them the distribution", "segments", n)
			}
		}
		p.Router.said.Due()
		p.Loops.Sinks.Add()
	}
}

// scatter moves all that waits in a sink.
func (p *Putter) scatter(s *Sink) {
	for _, m := range s.drain() {
		to, err := p.pick(m)
		if err != nil {
			to = s // its worker meets the same error
		}
		to.push(m, p.hire)
	}
}

// tryPut makes one request for the message, when the message is in the right place and paid for,
// and the map is young enough (P6.5). It reports whether the queue was known to exist when the put
// was sent.
func (p *Putter) tryPut(m *message) (made bool, err error) {
	for s := m.sink; ; {
		p.Turn.Wait("put", m.name(p.Turn))
		if !p.belongs(m) || m.refused >= helpAfter && s.state() == limited {
			return false, errMoved
		}
		if s.refused != nil {
			return false, s.refused
		}
		if s.unmade() {
			err := s.make(p.Ctx, m.route.Changed, p.Log)
			switch {
			case errors.Is(err, errMoved):
				continue
			case err != nil:
				return false, &makeError{err}
			}
		}
		about := s.shard.Digest(m.Text)
		if err := s.shard.Pay(p.Ctx, queues.ClassPut, 1, queues.OpPut, about); err != nil {
			return false, err
		}
		if !p.belongs(m) { // the budget may have kept it waiting for long
			return false, errMoved
		}
		if err := p.Proven(p.Ctx); err != nil {
			return false, err
		}
		if m.route.Fresh() {
			made = s.made.Load()
			s.share.sent()
			s.observe(func(h *health, now time.Time) { h.sent(now) })
			if err = s.shard.PutBy(p.Ctx, m.route.read, m.Text, 0, about); err == nil {
				err = p.Proven(p.Ctx)
			}
			return made, err
		}
		select { // for a newer map
		case <-m.route.Changed:
		case <-p.Ctx.Done():
			return false, context.Cause(p.Ctx)
		}
	}
}

// pause waits before the next attempt, or until the message belongs elsewhere, or its dark queue
// takes messages again.
func (p *Putter) pause(m *message, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	for ill := m.sink.state() == dark; p.belongs(m) && (!ill || m.sink.state() == dark); {
		select {
		case <-over.C:
			return
		case <-m.route.Changed:
		case <-p.Ctx.Done():
			return
		}
	}
}

func (p *Putter) acknowledged(m *message) {
	s := m.sink
	if !s.accepted.Swap(true) {
		s.made.Store(true)
		p.Log.Debug("the queue takes messages", "queue", s.name)
	}
	s.share.acknowledged()
	p.observe(s, (*health).acknowledged)
	p.endProbe(m)
	s.fit(p.hire)
	if lasted, was := s.trouble.Over(); was { // seldom: each acknowledged put comes here
		p.said(p.Log.Info)("the queue takes messages again", "queue", s.name, "after", lasted)
	}
	p.Count.Sent.Add(int64(len(m.Text)))
	p.Count.Envelopes.Add(1)
	if !m.Bad {
		p.Count.Acked.Add(int64(m.Tasks))
		p.Delivered(s, m.Message)
		for _, r := range m.Receipts {
			r.Acknowledge(r.Tasks)
		}
	} else {
		p.Count.Quarantined.Add(1)
		queues.HookQuarantine(p.Hooks, s.shard.Account.Name, codec.ReasonBadLine, 1)
	}
	pack.Texts.Put(&m.Text)
	p.Acked(m.Interval)
}
