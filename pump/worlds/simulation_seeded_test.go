package worlds

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// simPlanOf writes the plan of a seed, of the kind that is the seed's.
func simPlanOf(seed uint64) *simPlan {
	if *simKindOnly != "" {
		kind, err := simKindNamed(*simKindOnly)
		if err != nil {
			panic(err)
		}
		return kind.planOf(seed)
	}
	return simKindOf(seed).planOf(seed)
}

// planOf writes a world: processes that come, and some ten to twenty things that go wrong in
// the first minute or two. It is a small one, and what its kind makes of that.
func (k *simKind) planOf(seed uint64) *simPlan {
	g := &simSeeded{plan: newSimPlan(), kind: k, roles: "dpp", last: map[byte]int{}}
	p := g.plan
	p.seed, p.kind = seed, k.name
	p.accounts, p.queues = 1+g.roll(3), 1+g.roll(4)
	more := g.roll(4) * g.roll(400) // mostly few, so that many worlds can be played
	p.tasks = 200 + more*more/1100
	p.keys = []int{1, 10, 60, 300}[g.roll(4)]
	p.pack = 1 + g.roll(8)
	if p.tasks > 600 {
		p.pack = 4 + g.roll(12)
	}
	p.pace = time.Duration(5+g.roll(40)) * time.Second
	p.live = g.roll(10) == 0
	p.bad = max(0, g.roll(8)-5)
	if g.roll(5) == 0 {
		p.delivery = pump.AtLeastOnce
	}
	p.reducer = g.roll(3) == 0
	p.handlers = 1 + g.roll(16)
	p.work = []time.Duration{0, 300 * time.Millisecond, 2 * time.Second, 12 * time.Second}[g.roll(4)]
	if p.work > 2*time.Second {
		p.handlers, p.tasks = p.handlers+4, min(p.tasks, 300)
	}
	p.trouble = []int{0, 5, 20, 60}[g.roll(4)]
	p.visibility = []time.Duration{6 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}[g.roll(4)]
	p.limit = []int{0, 0, 0, 40, 120}[g.roll(5)]
	p.receipts = []int{404, 404, 400}[g.roll(3)]
	if k.write != nil {
		k.write(g)
	}
	g.begin()
	g.at = max(g.at, g.calm)
	if g.events == 0 {
		g.events = 4 + g.roll(14)
	}
	for i := range max(0, g.events) {
		if n := len(g.rows); n > 0 && (g.roll(3) == 0 || g.events-i <= n) {
			g.at += g.pause()
			g.step(g.rows[0])
			g.rows = g.rows[1:]
		}
		g.at += g.pause()
		g.event()
	}
	if g.operating {
		g.deletions()
	}
	slices.SortStableFunc(p.steps, func(a, b simStep) int { return int(a.at - b.at) })
	return p
}

// The processes of a world of a seed, at most.
const (
	simDistributors = 3
	simClients      = 2
	simProcessors   = 5
	simSenders      = 4
)

// simSeeded writes a plan step by step, knowing roughly who is up, so that most
// steps make sense.
type simSeeded struct {
	plan  *simPlan
	kind  *simKind
	drawn int
	at    time.Duration
	up    []string
	down  []string
	last  map[byte]int

	roles     string        // of those who come later
	operating bool          // there are operators
	removing  bool          // an account is removed by a step of the kind
	few       bool          // one process joins the first two
	late      time.Duration // processors start so much later
	lone      bool          // the first of a role stays the only one
	calm      time.Duration // nothing else happens before
	rows      []simStep     // what happens to rows, in this order
	events    int           // how many things go wrong; 0: some, -1: none
}

func (g *simSeeded) roll(n int) int {
	g.drawn++
	return int(testworld.SimHash(g.plan.seed, "plan", "", g.drawn) % uint64(n))
}

func (g *simSeeded) step(s simStep) {
	if s.at == 0 {
		s.at = g.at
	}
	g.plan.steps = append(g.plan.steps, s)
}

// seconds is from least to most, at a millisecond of its own.
func (g *simSeeded) seconds(least, most int) time.Duration {
	return time.Duration(least*1000+g.roll((most-least)*1000)) * time.Millisecond
}

// pause is mostly so short that one thing falls into another, and at times long
// enough for a lease to end.
func (g *simSeeded) pause() time.Duration {
	switch g.roll(8) {
	case 0:
		return g.seconds(15, 45)
	case 1, 2:
		return g.seconds(0, 1)
	}
	return g.seconds(0, 8)
}

func (g *simSeeded) oneOf(list []string) string { return list[g.roll(len(list))] }

func (g *simSeeded) begin() {
	if g.roll(2) == 0 && g.events >= 0 {
		g.step(simStep{verb: "clock", span: g.seconds(-600, 600).Truncate(time.Second)})
	}
	g.join('d')
	g.join('p')
	more := g.roll(simProcessors)
	if g.few {
		more = 1
	}
	if g.lone {
		more = 0
	}
	for range more {
		g.join([]byte("dppp")[g.roll(4)])
	}
	if g.roll(4) == 0 {
		g.join('o')
	}
}

func (g *simSeeded) join(role byte) {
	if g.last[role] >= map[byte]int{'d': simDistributors, 'o': simClients, 'p': simProcessors, 's': simSenders, 'n': 3}[role] {
		return
	}
	g.last[role]++
	name := fmt.Sprintf("%c%d", role, g.last[role])
	at := g.at + time.Duration(g.roll(2000))*time.Millisecond
	if role == 'p' {
		at += g.late
	}
	g.step(simStep{at: at, verb: "start", who: name})
	g.up = append(g.up, name)
}

func (g *simSeeded) gone(name string) {
	g.up = slices.DeleteFunc(g.up, func(n string) bool { return n == name })
	if name[0] != 'o' {
		g.down = append(g.down, name)
	}
}

func (g *simSeeded) event() {
	if len(g.up) == 0 || len(g.down) > 0 && g.roll(6) == 0 || g.roll(12) == 0 {
		g.arrive()
		return
	}
	switch r := g.roll(8); {
	case g.operating && r == 0:
		g.removal()
	case g.operating && r < 5:
		g.command()
	}
	switch g.roll(16) {
	case 14:
		who := g.account()
		if g.operating || g.removing { // what is put into an account that was removed is for ever where no process looks
			who = "accounta"
		}
		g.step(simStep{verb: []string{"stray", "copy", "copy"}[g.roll(3)], who: who})
	case 0:
		g.depart("crash", "", 0)
	case 1, 2, 3:
		name := g.oneOf(g.up)
		g.step(simStep{verb: "crash", who: name, after: g.roll(2) == 0, point: simPoints[g.roll(len(simPoints))], nth: 1 + g.roll(3)*g.roll(10)})
		if g.roll(3) > 0 {
			g.step(simStep{at: g.at + g.seconds(1, 40), verb: "restart", who: name})
		} else {
			g.gone(name)
		}
	case 4:
		g.step(simStep{verb: "restart", who: g.oneOf(g.up)})
	case 5:
		if len(g.up) > 2 {
			g.depart("stop", "", 0)
		}
	case 6, 7:
		g.step(simStep{verb: "pause", who: g.oneOf(g.up), span: g.seconds(2, 70)})
	case 8:
		g.step(simStep{verb: "clock", span: g.seconds(-40, 60).Truncate(time.Second)})
	case 9:
		g.step(simStep{verb: []string{"dark", "hang"}[g.roll(2)], who: g.account(), span: g.seconds(2, 50)})
	case 10:
		g.storm()
	default:
		for range 1 + g.roll(3) {
			g.fault()
		}
	}
}

func (g *simSeeded) account() string { return "account" + string(rune('a'+g.roll(g.plan.accounts))) }

func (g *simSeeded) arrive() {
	if len(g.down) > 0 && g.roll(3) > 0 {
		name := g.oneOf(g.down)
		g.down = slices.DeleteFunc(g.down, func(n string) bool { return n == name })
		g.up = append(g.up, name)
		g.step(simStep{verb: "restart", who: name})
		return
	}
	g.join(g.roles[g.roll(len(g.roles))])
}

func (g *simSeeded) depart(verb, point string, nth int) {
	name := g.oneOf(g.up)
	g.step(simStep{verb: verb, who: name, point: point, nth: nth})
	g.gone(name)
}

// storm is a service, or a queue's worth of it, that is too busy.
func (g *simSeeded) storm() {
	r := azsim.Rule{Fault: azsim.Answer, Probability: []float64{0.3, 0.9, 1}[g.roll(3)], Service: "queue"}
	switch g.roll(4) {
	case 0:
		r.Service = "table"
	case 1:
		r.Status, r.Code = 500, "OperationTimedOut"
	case 2:
		r.RetryAfter = g.seconds(1, 8).Truncate(time.Second)
	}
	if g.roll(2) == 0 {
		r.Account = g.account()
	}
	g.step(simStep{verb: "fault", span: g.seconds(2, 40), rule: r})
}

// What can go wrong with one kind of request.
var (
	simQueueOperations = []string{"PutMessage", "GetMessages", "UpdateMessage", "DeleteMessage"}
	simTableOperations = []string{"GetEntity", "QueryEntities", "InsertEntity", "UpdateEntity", "MergeEntity", "DeleteEntity", "InsertOrReplaceEntity", "Batch"}
	simFaultKinds      = []azsim.FaultKind{
		azsim.Answer, azsim.FailBefore, azsim.AnswerAfter, azsim.AnswerLost, azsim.AnswerLost, azsim.CutBody, azsim.DelayBefore, azsim.DelayAfter,
		azsim.HangBefore, azsim.HangAfter,
	}
	simMischief = []azsim.FaultKind{azsim.DeliverTwice, azsim.ReappearEarly, azsim.Reorder}
)

func (g *simSeeded) fault() {
	r := azsim.Rule{Fault: simFaultKinds[g.roll(len(simFaultKinds))], Probability: []float64{0, 0.1, 0.3, 0.6}[g.roll(4)]}
	switch g.roll(5) {
	case 0:
		r.Fault, r.Operations = simMischief[g.roll(3)], []string{"GetMessages"}
		if r.Fault == azsim.ReappearEarly && g.roll(2) == 0 {
			r.Operations = []string{"UpdateMessage"}
		}
	case 1, 2, 3:
		r.Operations = []string{simQueueOperations[g.roll(len(simQueueOperations))]}
	case 4:
		r.Operations = []string{simTableOperations[g.roll(len(simTableOperations))]}
	}
	switch r.Fault {
	case azsim.DelayBefore, azsim.DelayAfter:
		r.Delay = g.seconds(1, 14)
	case azsim.CutBody:
		if r.Operations[0] == "UpdateMessage" || r.Operations[0] == "DeleteMessage" { // their answers have no body
			r.Fault = azsim.AnswerLost
		}
	}
	if r.Probability == 0 || g.roll(3) == 0 {
		r.First = 1 + g.roll(5)
	}
	if g.roll(3) == 0 && len(g.up) > 0 {
		r.Instance = g.oneOf(g.up)
	}
	if g.roll(4) == 0 {
		r.Account = g.account()
	}
	g.step(simStep{verb: "fault", span: g.seconds(3, 40), rule: r})
}
