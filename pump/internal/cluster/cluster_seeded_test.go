package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// clusterScriptOf writes the script of a seed: a small cluster, what happens to
// it for two minutes or so, and that it settles.
func clusterScriptOf(seed uint64) *clusterScript {
	g := &clusterSeeded{seed: seed, script: &clusterScript{seed: seed, segments: 64}}
	s := g.script
	s.accounts, s.queues = 1+g.roll(3), 1+g.roll(4)
	if g.roll(4) == 0 {
		s.pages = 1 + g.roll(4)
	}
	s.work = []time.Duration{0, 2 * time.Second, 8 * time.Second, 30 * time.Second}[g.roll(4)]
	s.quiet = g.roll(4) == 0
	s.many = []int{0, 2, 3}[testkit.Hash(seed, "many", 0)%3]
	g.begin()
	for i := range 5 + g.roll(6) {
		g.event()
		g.times(i)
		g.step(clusterStep{verb: "wait", span: g.pause()})
	}
	g.step(clusterStep{verb: "settle"}, clusterStep{verb: "check"})
	if g.roll(4) == 0 && len(g.up) > 0 {
		minute := clusterStep{verb: "dark", span: time.Minute}
		g.step(clusterStep{verb: "remember"}, minute, clusterStep{verb: "wait", span: time.Minute},
			clusterStep{verb: "settle"}, clusterStep{verb: "check"}, clusterStep{verb: "unmoved"})
	}
	return s
}

// clusterSmall is how many machines a script of a seed has at most.
const clusterSmall = 9

// clusterSeeded writes a script step by step, knowing which machines are up, so
// that each step makes sense.
type clusterSeeded struct {
	seed   uint64
	drawn  int
	script *clusterScript

	up, down []int // machines with a process, and with one that crashed or left
	last     int   // machines are numbered to
	accounts int   // added so far
	drained  bool
}

func (g *clusterSeeded) roll(n int) int {
	g.drawn++
	return int(testkit.Hash(g.seed, "script", g.drawn) % uint64(n))
}

func (g *clusterSeeded) step(steps ...clusterStep) { g.script.steps = append(g.script.steps, steps...) }

// seconds is from least to most, at a millisecond of its own.
func (g *clusterSeeded) seconds(least, most int) time.Duration {
	return time.Duration(least*1000+g.roll((most-least)*1000)) * time.Millisecond
}

// pause is mostly shorter than a lease, so that one thing falls into another,
// and sometimes long enough for all to be over.
func (g *clusterSeeded) pause() time.Duration {
	switch g.roll(5) {
	case 0:
		return g.seconds(20, 50)
	case 1:
		return g.seconds(0, 2)
	}
	return g.seconds(1, 12)
}

func (g *clusterSeeded) begin() {
	n := 2 + g.roll(4)
	if g.roll(2) == 0 {
		g.step(clusterStep{verb: "clock", machines: []int{0}, span: g.seconds(-600, 600).Truncate(time.Second)})
	}
	for m := 1; m <= n+2; m++ {
		if g.roll(2) == 0 {
			g.step(clusterStep{verb: "clock", machines: []int{m}, span: g.seconds(-600, 600).Truncate(time.Second)})
		}
		if g.roll(3) == 0 {
			g.step(clusterStep{verb: "drift", machines: []int{m}, number: []int{-10, 10, g.roll(21) - 10}[g.roll(3)]})
		}
	}
	for range n {
		g.join()
	}
	if g.roll(3) > 0 {
		g.step(clusterStep{verb: "settle"}, clusterStep{verb: "check"})
	} else {
		g.step(clusterStep{verb: "wait", span: g.pause()})
	}
}

func (g *clusterSeeded) join() {
	g.last++
	verb := "join"
	if g.last > 2 && g.roll(8) == 0 {
		verb = "watch"
	}
	g.step(clusterStep{verb: verb, machines: []int{g.last}})
	g.up = append(g.up, g.last)
}

func (g *clusterSeeded) oneOf(list []int) []int { return []int{list[g.roll(len(list))]} }

// some are one or a few of the machines that are up.
func (g *clusterSeeded) some() (some []int) {
	for _, m := range g.up {
		if g.roll(3) == 0 {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		some = g.oneOf(g.up)
	}
	return some
}

func (g *clusterSeeded) event() {
	if len(g.up) == 0 || g.roll(8) == 0 && g.last < clusterSmall {
		g.arrive()
		return
	}
	switch g.roll(15) {
	case 0, 1:
		g.depart("crash")
	case 2:
		g.depart("leave")
	case 3:
		g.step(clusterStep{verb: "restart", machines: g.oneOf(g.up)})
	case 4, 5:
		g.step(clusterStep{verb: "pause", machines: g.oneOf(g.up), span: g.seconds(2, 50)})
	case 6:
		g.step(clusterStep{verb: "partition", machines: g.some(), span: g.seconds(2, 50)})
	case 7:
		g.step(clusterStep{verb: "slow", machines: g.some(), span: g.seconds(5, 40)})
	case 8:
		g.step(clusterStep{verb: "lose", machines: slices.Clone(g.up), number: 5 + g.roll(40), span: g.seconds(5, 40)})
	case 9:
		g.step(clusterStep{verb: "dark", span: g.seconds(1, 40)})
	case 10, 11:
		g.change()
	case 12:
		g.zombie()
	case 13, 14:
		g.hurry()
	}
}

// times gives some machines, mostly all, other times, in every third script. Its draws are its own.
func (g *clusterSeeded) times(i int) {
	draw := func(what string, n uint64) int { return int(testkit.Hash(g.seed, what, i) % n) }
	if g.seed%3 != 1 || len(g.up) == 0 || draw("times", 2) == 0 {
		return
	}
	to := slices.Clone(g.up)
	if draw("times of", 4) == 0 {
		to = to[:1]
	}
	beat := []time.Duration{time.Second, 2 * time.Second, 3300 * time.Millisecond, 5 * time.Second}[draw("beat", 4)]
	g.step(clusterStep{verb: "times", machines: to, span: beat, number: 3 + draw("lease", 2)})
}

// zombie has a process go on just when the others are about to declare it dead,
// and what they write to do that arrive late.
func (g *clusterSeeded) zombie() {
	m := g.oneOf(g.up)
	others := slices.DeleteFunc(slices.Clone(g.up), func(n int) bool { return n == m[0] })
	if len(others) > 0 {
		g.step(clusterStep{verb: "fault", machines: others, word: "late", row: "present." + clusterName(m[0]), number: 1 + g.roll(2)})
	}
	verb := []string{"pause", "partition"}[g.roll(2)]
	g.step(clusterStep{verb: verb, machines: m, span: g.seconds(22, 34)}, clusterStep{verb: "wait", span: g.seconds(20, 40)})
}

// hurry has machines come and go while some are slow to see it, and perhaps
// their claims miscarry.
func (g *clusterSeeded) hurry() {
	g.step(clusterStep{verb: "slow", machines: g.some(), span: g.seconds(8, 25)}, clusterStep{verb: "wait", span: g.seconds(0, 4)})
	if g.roll(2) == 0 {
		kind := []string{"broken", "lost", "late", "hung"}[g.roll(4)]
		g.step(clusterStep{verb: "fault", machines: slices.Clone(g.up), word: kind, row: "owner.", number: 1 + g.roll(2)})
	}
	for range 1 + g.roll(3) {
		switch {
		case len(g.up) > 1 && g.roll(2) == 0:
			g.depart([]string{"crash", "leave", "leave"}[g.roll(3)])
		default:
			g.arrive()
		}
		g.step(clusterStep{verb: "wait", span: g.seconds(0, 4)})
	}
}

// arrive lets a machine come, a new one or one that was here before.
func (g *clusterSeeded) arrive() {
	if len(g.down) > 0 && (g.roll(2) == 0 || g.last >= clusterSmall) {
		m := g.oneOf(g.down)
		g.step(clusterStep{verb: "restart", machines: m})
		g.down = slices.DeleteFunc(g.down, func(n int) bool { return n == m[0] })
		g.up = append(g.up, m[0])
		return
	}
	if g.last < clusterSmall {
		g.join()
	}
}

func (g *clusterSeeded) depart(verb string) {
	m := g.oneOf(g.up)
	g.step(clusterStep{verb: verb, machines: m})
	g.up = slices.DeleteFunc(g.up, func(n int) bool { return n == m[0] })
	g.down = append(g.down, m[0])
}

// change changes the map, a mark or a clock, or has a single write go wrong.
func (g *clusterSeeded) change() {
	total := g.script.accounts + g.accounts
	switch g.roll(5) {
	case 0:
		g.accounts++
		g.step(clusterStep{verb: "add", word: fmt.Sprintf("acct%02d", total+1)})
	case 1:
		if !g.drained && g.script.accounts > 1 { // one that was added may not be there yet
			g.drained = true
			g.step(clusterStep{verb: "drain", word: "acct01"})
		}
	case 2:
		m := g.oneOf(g.up)
		g.step(clusterStep{verb: "mark", machines: m, number: g.roll(g.script.segments), second: 1 + g.roll(2)})
	case 3:
		kind := clusterFaults[g.roll(len(clusterFaults))]
		row := []string{"present.", "owner.", "election"}[g.roll(3)]
		g.step(clusterStep{verb: "fault", machines: g.some(), word: kind, row: row, number: 1 + g.roll(3)})
	case 4:
		m := append(g.oneOf(g.up), 0)[g.roll(2)]
		g.step(clusterStep{verb: "clock", machines: []int{m}, span: g.seconds(-600, 600).Truncate(time.Second)})
	}
}
