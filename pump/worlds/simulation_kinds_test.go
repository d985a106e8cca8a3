package worlds

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// simKind is a kind of world: most are small, so that very many can be played, and each of the
// others has what a small one lacks. A seed's kind is a matter of arithmetic, so that any
// 200 seeds in a row have each kind in its share.
type simKind struct {
	name  string
	share int // of 200 seeds
	every int // of seeds that are its share only one of so many is; 0: each
	write func(g *simSeeded)
	met   string // what requests meet in nine of ten of its worlds; see simWorld.meetLocked
}

// simKinds are the kinds, but for the small one, which takes the rest. The first has the seeds 199,
// 399 and so on.
var simKinds = []simKind{
	{name: "many segments", share: 1, every: 2, write: (*simSeeded).manySegments},
	// One takes half a minute of CPU time, or more.
	{name: "a day", write: (*simSeeded).day},
	{name: "many runs", share: 4, write: (*simSeeded).manyRuns},
	{name: "partitions", share: 10, write: (*simSeeded).partitions},
	{name: "quiet", share: 6, write: (*simSeeded).quiet},
	{name: "slow tables", share: 6, write: (*simSeeded).slowTables},
	{name: "lost owners", share: 3, write: (*simSeeded).lostOwners},
	{name: "rolled back", share: 6, write: (*simSeeded).rolledBack},
	{name: "senders", share: 6, write: (*simSeeded).senders},
	{name: "many senders", share: 4, write: (*simSeeded).manySenders, met: simMetSenders},
	{name: "operators", share: 16, write: (*simSeeded).operators},
	{name: "sources", share: 4, write: (*simSeeded).sources},
	{name: "replaced sources", share: 4, write: (*simSeeded).replacedSources, met: simMetReplaced},
	{name: "newer versions", share: 8, write: (*simSeeded).newerVersions},
	{name: "removals", share: 4, write: (*simSeeded).removals},
	{name: "lost runs", share: 4, write: (*simSeeded).lostRuns},
	{name: "suspended", share: 6, write: (*simSeeded).suspended},
	{name: "pauses", share: 4, write: (*simSeeded).pauses},
	{name: "paused parts", share: 4, write: (*simSeeded).pausedParts},
	{name: "made anew", share: 2, write: (*simSeeded).madeAnew},
	{name: "other order", share: 2, write: (*simSeeded).otherOrder},
	{name: "late roles", share: 2, write: (*simSeeded).lateRoles},
	{name: "deposed leaders", share: 2, write: (*simSeeded).deposedLeaders},
	{name: "full states", share: 1, write: (*simSeeded).fullStates},
	{name: "fewer attempts", share: 2, write: (*simSeeded).fewerAttempts},
	{name: "foreign", share: 2, write: (*simSeeded).foreignMessages},
	{name: "lost rows", share: 4, write: (*simSeeded).lostRows, met: simMetRows},
	{name: "slow partitions", share: 4, write: (*simSeeded).slowPartitions, met: simMetPartition},
	{name: "dark partitions", share: 4, write: (*simSeeded).darkPartitions, met: simMetPartition},
	{name: "damaged partitions", share: 4, write: (*simSeeded).damagedPartitions, met: simMetPartition},
	{name: "refusing accounts", share: 4, write: (*simSeeded).refusingAccounts, met: simMetRefusal},
	{name: "refused processes", share: 4, write: (*simSeeded).refusedProcesses, met: simMetRefusal},
	{name: "disabled accounts", share: 4, write: (*simSeeded).disabledAccounts, met: simMetDisabled},
	{name: "gone accounts", share: 4, write: (*simSeeded).goneAccounts, met: simMetGone},
	{name: "lost accounts", share: 4, write: (*simSeeded).lostAccounts, met: simMetGone},
	{name: "lost queues", share: 4, write: (*simSeeded).lostQueues, met: simMetNoQueue},
	{name: "not now", share: 4, write: (*simSeeded).notNow, met: simMetNotNow},
	{name: "named", share: 4, write: (*simSeeded).named},
	{name: "limited keys", share: 1, write: (*simSeeded).limitedKeys},
	{name: "settings", share: 4, write: (*simSeeded).settings},
	{name: "results", share: 4, write: (*simSeeded).keepsResults},
	{name: "bodies", share: 4, write: (*simSeeded).largeTasks},
}

const (
	simKindSmall = "small"
	simKindsOf   = 200 // seeds
)

// simKindOf is the kind of a seed.
func simKindOf(seed uint64) *simKind {
	slot := int((seed%simKindsOf + 1) * 37 % simKindsOf) // 37 visits all of them, and 199 is the first
	for i := range simKinds {
		k := &simKinds[i]
		if slot -= k.share; slot < 0 {
			if k.every > 0 && seed/simKindsOf%uint64(k.every) > 0 {
				continue // it is one of the next kind, which has no share of its own
			}
			return k
		}
	}
	return &simKind{name: simKindSmall}
}

// simMix says how many worlds of 10,000 are of each kind.
func simMix() []string {
	have := map[string]int{}
	for seed := range uint64(10_000) {
		have[simKindOf(seed).name]++
	}
	list := []string{fmt.Sprintf("%d %s", have[simKindSmall], simKindSmall)}
	for _, k := range simKinds {
		if n := have[k.name]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, k.name))
		}
	}
	return list
}

// simKindNamed is a kind that is asked for by name.
func simKindNamed(name string) (*simKind, error) {
	names := []string{simKindSmall}
	for i := range simKinds {
		if simKinds[i].name == name {
			return &simKinds[i], nil
		}
		names = append(names, simKinds[i].name)
	}
	if name == simKindSmall {
		return &simKind{name: name}, nil
	}
	return nil, fmt.Errorf("%q is no kind of world: they are %s", name, strings.Join(names, ", "))
}

// manySegments is the most that a workload has, with 128 queues; half of them without a fault.
func (g *simSeeded) manySegments() {
	p := g.plan
	p.segments, p.accounts, p.queues = 4096, 8, 16
	p.tasks, p.keys, p.pack, p.pace, p.limit = 4096, 40_000, 1+g.roll(2), 10*time.Second, 0
	p.work, p.handlers, p.visibility = 0, 32, 30*time.Second
	if g.roll(2) == 0 {
		p.trouble, p.bad, p.live, g.events = 0, 0, false, -1
	}
}

// day is a day of some hundred runs, or of more than a thousand in one world of three. Its
// processes are few and beat seldom, which is most of what they do in it.
func (g *simSeeded) day() {
	g.manyRuns()
	g.plan.queues, g.plan.live, g.few = 1, false, true // of a live source there would be a run each half minute
	g.plan.runs, g.plan.every, g.plan.beat = 300+g.roll(120), 4*time.Minute, time.Minute
	if g.roll(3) == 0 {
		g.plan.runs, g.plan.every = 1000+g.roll(1000), time.Minute
	}
}

// manyRuns are some hundred small runs, some of which break or leave something in quarantine.
func (g *simSeeded) manyRuns() {
	p := g.plan
	p.tasks, p.runs, p.every = 100, 100+g.roll(200), g.seconds(1, 4)
	p.work, p.trouble = min(p.work, 300*time.Millisecond), []int{1, 5}[g.roll(2)]
	p.accounts, p.queues = 1, 1+g.roll(2) // what waits for tasks asks few queues
	g.events = 2 + g.roll(4)
}

// quiet is a world in which nothing goes wrong.
func (g *simSeeded) quiet() {
	p := g.plan
	p.segments = 64 << g.roll(5)
	p.queues, p.keys = 1+g.roll(8), []int{60, 3000}[g.roll(2)]
	p.trouble, p.bad, p.limit, p.live, g.events = 0, 0, 0, false, -1
	p.work = min(p.work, 300*time.Millisecond)
	p.tables = []time.Duration{0, 0, 200 * time.Millisecond, 500 * time.Millisecond}[g.roll(4)]
	if g.roll(2) == 0 { // all is there when the first processor comes
		g.late, g.lone = p.pace+g.seconds(5, 20), true
		if g.roll(2) == 0 {
			p.segments, p.keys, p.tables = 1024, 3000, 500*time.Millisecond
		}
	}
}

// partitions is a ledger of several partitions, at times with pages. From 65 segments on, each 64
// have one.
func (g *simSeeded) partitions() {
	p := g.plan
	p.segments = 128 << g.roll(3)
	p.keys = []int{60, 300, 3000}[g.roll(3)]
	p.reducer = p.reducer || g.roll(3) == 0
	if p.reducer && g.roll(2) == 0 {
		p.keys, p.pad = 60, 20_000+g.roll(60_000)
		p.tasks = min(p.tasks, 400)
	}
}

// slowTables is a table that takes up to a second for a request, or one whose queries cost their
// rows.
func (g *simSeeded) slowTables() {
	p := g.plan
	if g.roll(3) > 0 {
		p.tables = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second}[g.roll(3)]
	}
	p.entities = p.tables == 0 || g.roll(2) == 0
}

// senders are programs that send as they go, beside a distributor or two.
func (g *simSeeded) senders() {
	p := g.plan
	p.tasks = min(p.tasks, 600)
	g.roles = "sssdp"
	g.join('s')
	if g.roll(2) == 0 {
		g.join('s')
	}
	// What a program begins with is refused for a while, or what it puts later.
	r := azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthorizationFailure", Instance: "s1", Service: "table"}
	at := time.Millisecond
	if g.roll(2) == 0 {
		r.Status, r.Code, r.Service, r.Operations = 400, "InvalidInput", "", []string{"PutMessage"}
		at = g.seconds(3, 12)
	}
	if g.roll(4) > 0 {
		g.step(simStep{at: at, verb: "fault", span: g.seconds(5, 40), rule: r})
	}
}

// operators do at any time what they may, with messages in quarantine, accounts, runs and the gate.
func (g *simSeeded) operators() {
	p := g.plan
	p.accounts, p.trouble = 2+g.roll(2), []int{5, 20, 60}[g.roll(3)]
	p.gated = g.roll(4) == 0
	g.operating = true
}

// someFiles have elected distributors read files, for a time of pace at least.
func (g *simSeeded) someFiles(pace time.Duration, roles string) {
	p := g.plan
	p.files, p.bad, p.live, p.tasks = 1+g.roll(3), 0, false, min(p.tasks, 250)
	p.pace, g.roles = max(p.pace, pace), roles
	g.join('d')
}

// sources are files that cannot be read at times, and in half of the worlds ones that change.
func (g *simSeeded) sources() {
	p := g.plan
	g.someFiles(12*time.Second, "dddp")
	for range 1 + g.roll(3) {
		g.rows = append(g.rows, simStep{verb: "unread", who: []string{"d1", "d2", "d3", "all"}[g.roll(4)], span: []time.Duration{g.seconds(1, 8), g.seconds(8, 60), g.seconds(8, 60)}[g.roll(3)]})
	}
	if g.roll(2) == 0 {
		for range 1 + g.roll(4) {
			g.rows = append(g.rows, simStep{verb: "source", who: simChanges[g.roll(len(simChanges))]})
		}
	}
	switch g.roll(4) {
	case 0: // while who leads first is about to begin its run, which takes some slow requests
		p.tables = time.Second
		for range 3 {
			g.step(simStep{at: g.seconds(1, 9), verb: "source", who: "appear"})
		}
	case 1: // and who leads first cannot read
		g.step(simStep{at: 500 * time.Millisecond, verb: "unread", who: "all", span: g.seconds(4, 20)})
	}
	if g.roll(3) == 0 {
		g.rows = append(g.rows, simStep{verb: "unread", who: []string{"d1", "d2"}[g.roll(2)], span: simForGood})
	}
	for i := range g.rows { // in any order
		j := i + g.roll(len(g.rows)-i)
		g.rows[i], g.rows[j] = g.rows[j], g.rows[i]
	}
	g.events = len(g.rows) + 2 + g.roll(8)
}

// newerVersions are worlds in which processes of a newer version are at work too.
func (g *simSeeded) newerVersions() {
	p := g.plan
	p.live = false
	for range 2 + g.roll(3) {
		s := simStep{verb: "newer", who: "envelopes", order: []string{g.account()}}
		if g.roll(2) == 0 {
			s.who, s.span = "row", []time.Duration{g.seconds(1, 8), g.seconds(8, 60)}[g.roll(2)]
			s.order = []string{[]string{"work.runs/", "work/owner.", "work/spill", fmt.Sprintf("work.ledger.%02d/head.", 0)}[g.roll(4)]}
		}
		g.rows = append(g.rows, s)
	}
	if g.roll(2) == 0 { // one dies
		g.step(simStep{at: g.seconds(1, 20), verb: "start", who: simNewer})
		g.step(simStep{at: g.seconds(30, 60), verb: "newer", who: "member", order: []string{simNewer}})
	}
	g.events = len(g.rows) + 2 + g.roll(8)
}

// lostOwners are rows of the cluster that are gone, once or twice.
func (g *simSeeded) lostOwners() {
	g.rows = []simStep{{verb: "lose", who: []string{"owner", "present", "spill"}[g.roll(5)*2/3%3]}}
	if g.roll(2) == 0 {
		g.rows = append(g.rows, simStep{verb: "keep", who: "work"}, simStep{verb: "back", who: "work"})
	}
}

// lostRuns are rows of runs that come back as they were before: in half of the worlds at any time,
// and in the others about as they were when all was sent, after all is closed and forgotten.
func (g *simSeeded) lostRuns() {
	p := g.plan
	p.live = false
	g.rows = []simStep{{verb: "keep", who: "work.runs"}, {verb: "back", who: "work.runs"}}
	if g.roll(2) == 0 {
		at := p.pace + g.seconds(1, 30)
		g.step(simStep{at: at, verb: "keep", who: "work.runs"})
		g.step(simStep{at: at + g.seconds(60, 180), verb: "back", who: "work.runs"})
		g.rows = nil
	} else if g.roll(2) == 0 {
		g.rows = append(g.rows, g.rows...)
	}
}

// suspended are machines that sleep, one or all of them, for less than a lease or for more. In all
// they sleep for less than five minutes: the service refuses a request that is 15 minutes old by
// its clock.
func (g *simSeeded) suspended() {
	longest := 120
	if p := g.plan; g.roll(2) == 0 { // handlers are at work when their machine wakes
		p.work, p.visibility = 2*time.Minute, 15*time.Second
		p.tasks, p.handlers = min(p.tasks, 100), 8+g.roll(8)
	}
	for range 1 + g.roll(4) {
		s := simStep{verb: "suspend", who: []string{"all", "p1", "p2", "d1"}[g.roll(4)]}
		s.span = []time.Duration{g.seconds(1, 6), g.seconds(6, 60), g.seconds(6, 60), g.seconds(59, longest)}[g.roll(4)]
		longest = 60
		g.rows = append(g.rows, s)
	}
	g.events = len(g.rows) + 2 + g.roll(8)
}

// rolledBack is a partition of the ledger that comes back as it was. Mode once then promises that
// of a ledger which forgets: nothing is lost, as a repair puts again what is not recorded, and that
// may be done twice.
func (g *simSeeded) rolledBack() {
	p := g.plan
	p.delivery, p.live, p.segments = pump.Once, false, 64<<g.roll(3)
	which := fmt.Sprintf("work.ledger.%02d", g.roll(p.segments/64))
	g.rows = []simStep{{verb: "keep", who: which}, {verb: "back", who: which}}
	if g.roll(2) == 0 {
		g.rows = append(g.rows, g.rows...)
	}
}

// removal is an account that is drained and removed while it or its quarantine is in trouble. An
// operator empties that quarantine.
func (g *simSeeded) removal() {
	account := g.other()
	operate := func(order ...string) string { return g.operate(0, order...) }
	trouble := func(span time.Duration, r azsim.Rule) { g.step(simStep{verb: "fault", span: span, rule: r}) }
	if g.roll(2) == 0 {
		g.join('p')
	}
	if g.roll(3) > 0 { // what is redriven cannot be put for long
		by := operate("redrive")
		trouble(g.seconds(20, 100), azsim.Rule{
			Fault: []azsim.FaultKind{azsim.Answer, azsim.HangBefore, azsim.FailBefore}[g.roll(3)], Operations: []string{"PutMessage"}, Instance: by,
		})
		g.at += g.seconds(0, 4)
	}
	operate("drain", account)
	g.at += g.seconds(0, 20)
	by := operate("remove", account)
	if g.roll(3) > 0 { // the counts of some queues are of another time than those of others
		trouble(g.seconds(30, 100), azsim.Rule{
			Fault: []azsim.FaultKind{azsim.DelayBefore, azsim.DelayAfter}[g.roll(2)], Operations: []string{"GetQueueMetadata"}, Instance: by,
			Delay: g.seconds(1, 9), Probability: []float64{0.3, 0.7}[g.roll(2)],
		})
	}
	if g.roll(2) == 0 {
		g.at += g.seconds(0, 30)
		operate("redrive")
	}
}

// removals are worlds in which it is tight between what goes into an account and its removal.
func (g *simSeeded) removals() {
	p := g.plan
	g.removing = true
	p.accounts, p.queues, p.tasks, p.trouble, p.limit, p.live = 2, 1+g.roll(3), 80+g.roll(120), 60, 0, false
	p.keys, p.pack, p.work = 300, 1+g.roll(3), min(p.work, 300*time.Millisecond)
	if g.events = -1; g.roll(3) == 0 {
		g.events = 1 + g.roll(3)
	}
	operate := func(at time.Duration, who string, order ...string) {
		g.step(simStep{at: at, verb: "operate", who: who, order: order})
	}
	g.last['x'] = 5
	if g.roll(2) == 0 { // what is in quarantine goes home into the account, and cannot until that is removed
		at := g.seconds(3, 5)
		operate(at, "x1", "drain", "accountb")
		at += g.seconds(20, 30)
		p.pace = at
		operate(at, "x2", "add", "accountb")
		at += g.seconds(2, 8)
		operate(at, "x3", "redrive")
		g.step(simStep{at: at, verb: "fault", span: g.seconds(30, 60), rule: azsim.Rule{
			Fault: azsim.HangBefore, Operations: []string{"PutMessage"}, Instance: "x3",
		}})
		g.step(simStep{at: at + g.seconds(1, 25), verb: "pause", who: "x3", span: g.seconds(30, 60)})
		at += g.seconds(0, 2)
		operate(at, "x4", "drain", "accountb")
		operate(at+g.seconds(0, 2), "x5", "remove", "accountb")
		return
	}
	// The messages in its queues fail while the removal counts, which takes its time.
	at := g.seconds(6, 10)
	p.tasks, p.trouble = 30+g.roll(30), 20
	p.bad = max(p.bad, 1)
	// Processors begin about when the removal counts, queues.RemoveAfter behind the drain.
	p.pace, g.late = at, at+queues.RemoveAfter+g.seconds(0, 12)-4*time.Second
	operate(at, "x1", "drain", "accountb")
	operate(at+g.seconds(1, 3), "x2", "remove", "accountb")
	g.step(simStep{at: at + 4*time.Second, verb: "fault", span: 2 * time.Minute, rule: azsim.Rule{
		Fault: []azsim.FaultKind{azsim.DelayBefore, azsim.DelayAfter}[g.roll(2)], Operations: []string{"GetQueueMetadata"}, Instance: "x2", Delay: g.seconds(3, 8),
	}})
}

// other is an account that may be removed: the first one has the control table.
func (g *simSeeded) other() string { return "account" + string(rune('b'+g.roll(g.plan.accounts-1))) }

// operate has one operator more carry out an order.
func (g *simSeeded) operate(at time.Duration, order ...string) (name string) {
	g.last['x']++
	name = fmt.Sprintf("x%d", g.last['x'])
	g.step(simStep{at: at, verb: "operate", who: name, order: order})
	return name
}

// command is one of an operator, who may die of it.
func (g *simSeeded) command() {
	what := []string{"redrive", "redrive", "redrive", "drop", "repair", "release", "hold", "drain", "drain", "remove", "remove", "add", "end", "end-drop"}[g.roll(14)]
	if what == "repair" && g.plan.delivery != pump.Once || g.plan.gated == (what == "redrive") && g.roll(3) == 0 {
		what = "drain"
	}
	order := []string{what}
	switch what {
	case "add", "drain", "remove":
		order = append(order, g.other())
	}
	name := g.operate(0, order...)
	switch g.roll(8) {
	case 0:
		g.step(simStep{verb: "crash", who: name, after: g.roll(2) == 0, point: []string{"put", "delete", "get", "replace", "renew", "write"}[g.roll(6)], nth: 1 + g.roll(4)})
	case 1:
		g.step(simStep{at: g.at + g.seconds(0, 3), verb: "pause", who: name, span: g.seconds(2, 70)})
	}
}

func TestEachKindOfWorldHasItsShareOfTheSeeds(t *testing.T) {
	have := map[string]int{}
	for seed := range uint64(simKindsOf) {
		have[simKindOf(1000+seed).name]++
	}
	rest := simKindsOf
	for _, k := range simKinds {
		if k.every == 0 && k.share > 0 {
			rest -= k.share
			proof.Same(t, have[k.name], k.share, "of", simKindsOf, "worlds are of kind", k.name)
		}
	}
	for _, name := range []string{
		"many senders", "replaced sources", "lost rows", "slow partitions", "dark partitions", "damaged partitions", "refusing accounts",
		"refused processes", "disabled accounts", "gone accounts", "lost accounts", "lost queues", "not now",
	} {
		if k, err := simKindNamed(name); err != nil || k.met == "" || 50*have[name] < 200 {
			t.Errorf("%d of 10,000 worlds are of kind %q, want 200, and what they meet is counted (%v)", 50*have[name], name, err)
		}
	}
	mix := strings.Join(simMix(), ", ")
	t.Log(mix)
	protocols, err := os.ReadFile("../../docs/protocols.md")
	must(t, err)
	said := strings.Join(strings.Fields(strings.ReplaceAll(string(protocols), "5,000", "5000")), " ")
	if !strings.Contains(said, mix) {
		t.Errorf("docs/protocols.md does not say of P9 that it plays %s", mix)
	}
	if have[simKindSmall] < rest-1 || rest < simKindsOf*13/100 {
		t.Errorf("%d of %d worlds are small", have[simKindSmall], simKindsOf)
	}
}
