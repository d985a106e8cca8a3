package worlds

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Worlds in which the work on each key is limited. Processors come, stop and are killed, and
// operators pause. No process ever has more of a key in handlers than the limit. Nor have all
// together, unless a lease is lost while its owner lives.

// limitedKeys are those worlds. In half of them no lease of a live process is lost.
func (g *simSeeded) limitedKeys() {
	p := g.plan
	p.perKey, p.keys = 1+g.roll(3), 5+g.roll(60)
	p.tasks, p.work = min(p.tasks, 300), max(min(p.work, 2*time.Second), 300*time.Millisecond)
	if g.roll(2) == 0 {
		return
	}
	p.pace = max(p.pace, 20*time.Second)
	p.bad, p.limit, p.live, p.tables, p.entities, g.events = 0, 0, false, 0, false, -1
	at := g.seconds(2, 20)
	for i := range 4 + g.roll(6) {
		name := fmt.Sprintf("p%d", 1+g.roll(4))
		verb := []string{"start", "restart", "stop", "restart"}[g.roll(4)]
		g.step(simStep{at: at, verb: verb, who: name})
		if at += g.seconds(1, 30); verb == "stop" || verb == "start" && i%2 == 0 {
			g.step(simStep{at: at, verb: "restart", who: name})
			at += g.seconds(1, 20)
		}
		if g.roll(4) == 0 {
			g.operate(at, "pause")
			at += g.seconds(5, 40)
			g.operate(at, "resume")
		}
	}
}

// perKeyLimits are the limits of a world's keys.
func (p *simPlan) perKeyLimits() (k pump.PerKey) {
	if p.perKey > 0 {
		k = pump.PerKey{Concurrent: p.perKey, Rate: float64(p.seed % 2 * 20)}
	}
	return k
}

// keepsLeases reports whether no live process loses a lease in a world.
func (p *simPlan) keepsLeases() bool {
	return p.limit == 0 && p.tables == 0 && !p.entities &&
		!slices.ContainsFunc(p.steps, func(s simStep) bool {
			return !slices.Contains([]string{"start", "stop", "restart", "crash", "operate"}, s.verb)
		})
}

// judgeKeyLocked counts a handler of a key that begins or returns, and says whether that is one too
// many.
func (w *simWorld) judgeKeyLocked(p *simProcess, key string, more int) {
	most := w.plan.perKey
	if most == 0 {
		return
	}
	if w.judge.keyed == nil {
		w.judge.keyed = map[string]map[*simProcess]int{}
	}
	if w.judge.keyed[key] == nil {
		w.judge.keyed[key] = map[*simProcess]int{}
	}
	w.judge.keyed[key][p] += more
	all := 0
	for q, n := range w.judge.keyed[key] {
		if !q.dead && !q.over() {
			all += n
		}
	}
	if n := w.judge.keyed[key][p]; n > most && !p.over() || all > most && w.plan.keepsLeases() {
		w.wrong = append(w.wrong, fmt.Sprintf("%s has %d handlers of key %s at work, and all have %d; the limit is %d",
			p, n, key, all, most))
	}
}
