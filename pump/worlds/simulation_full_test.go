package worlds

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/shardmap"
)

// Worlds in which a task ends in quarantine for what its reducer's state or its processors'
// configuration is: the state of a segment has no room for it, or it has fewer attempts after a
// restart.

// fullStates are worlds in which one segment's state has no room for anything.
func (g *simSeeded) fullStates() {
	p := g.plan
	p.full, p.reducer, p.delivery, p.live, p.limit, p.bad = true, true, pump.Once, false, 0, 0
	p.keys, p.tasks, p.pad, p.work = 8+g.roll(16), 60+g.roll(60), 0, min(p.work, 300*time.Millisecond)
	g.events, g.lone = -1, true
}

// simFullFor is how long a task without room waits at most until it is in quarantine, and some
// pauses more.
const simFullFor = 100 * time.Minute

// simCalls is how often a task without room comes to a handler at most: less and less often within
// an hour.
const simCalls = 14

// isFull reports whether a segment's state has no room.
func (p *simPlan) isFull(segment uint32) bool {
	return p.full && segment == shardmap.Segment([]byte("key 0"), p.segments)
}

// simHoard is more than a state may have: bytes that no compression makes fewer.
func simHoard(p *simPlan) []byte {
	const size = 3 << 19 // of six bits a byte
	b := make([]byte, 0, size+8)
	const digits = " !#$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_abcdefg"
	for i := 0; len(b) < size; i++ {
		h := testworld.SimHash(p.seed, "hoard", "", i)
		for range 8 {
			b, h = append(b, digits[h%64]), h>>8
		}
	}
	return b
}

// judgeFull judges a task that has no room: it is in quarantine for that, and was tried seldom
// (A13).
func (w *simWorld) judgeFull(task *simTask, condemned bool, poison []string) {
	other := func(reason string) bool { return reason != codec.ReasonStateFull }
	switch {
	case len(poison) == 0:
		w.wrongf("lost: %v has no room in the state of its segment and is in no poison queue", task)
	case !condemned && slices.ContainsFunc(poison, other):
		w.wrongf("%v has no room in the state of its segment, and is in quarantine for %v", task, poison)
	}
}

// triedTooOften judges how often a task comes to a handler that has no room. Then it comes to its
// end by being rejected: a reducer's result for it costs much.
func (w *simWorld) triedTooOften(task *simTask) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.plan.isFull(task.segment) || task.begun <= simCalls+simAttempts {
		return false
	}
	const often = "%v is handled for the %dth time though its state has no room for it (A13)"
	w.wrong = append(w.wrong, fmt.Sprintf(often, task, task.begun))
	return true
}

// fewerAttempts are worlds in which a processor dies again and again, and is started then with
// fewer attempts.
func (g *simSeeded) fewerAttempts() {
	p := g.plan
	p.accounts, p.queues, p.pack, p.limit, p.bad = 1, 1+g.roll(2), 1, 0, 0
	p.live, p.reducer = false, false
	p.tasks, p.keys, p.pace, p.trouble = 40+g.roll(60), 60, g.seconds(5, 10), 60
	p.work = []time.Duration{2 * time.Second, 12 * time.Second}[g.roll(2)]
	p.handlers, p.visibility = 8+g.roll(16), 6*time.Second
	g.events, g.lone = -1, true
	at := g.seconds(6, 12)
	for range 3 + g.roll(4) {
		g.step(simStep{at: at, verb: "restart", who: "p1"})
		at += g.seconds(8, 20)
	}
	g.step(simStep{at: at, verb: "fewer", who: "p1"})
}

// simFewer is how many attempts a processor makes that is started again with fewer, and
// simFewerTurn says so.
const (
	simFewer     = 2
	simFewerTurn = "fewer attempts"
)

// fewer reports whether attempts become fewer in a plan.
func (p *simPlan) fewer() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "fewer" })
}

// judgeFewer judges a task that may have had some attempts by the time they became fewer. It may
// have none left; it is condemned for its processes' ends only if one had it in hand (A19).
func (w *simWorld) judgeFewer(task *simTask, poison []string) (over bool) {
	fate, _ := task.source.fate(task.record)
	if slices.Contains(poison, codec.ReasonEndsProcess) && task.deaths == 0 {
		w.wrongf("%v is in quarantine for %v, and no process died with it (A19)", task, poison)
		return true
	}
	return fate != simDone && len(poison) > 0
}

// diesLocked notes which tasks a process has in hand that dies.
func (p *simProcess) diesLocked() {
	for _, t := range p.world.tasks {
		if t.busy[p] > 0 {
			t.deaths++
		}
	}
}
