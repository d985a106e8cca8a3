package worlds

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// simWorld plays one plan: simulated accounts, the processes, and somebody who sees
// all of them at once and judges at the end (simulation_check_test.go).
type simWorld struct {
	plan    *simPlan
	sim     *azsim.Sim
	tables  azsim.TableOptions
	began   time.Time
	sources map[string]*simSource
	turns   *turns
	goes    sync.WaitGroup // what is on its way
	lives   sync.WaitGroup
	tell    *slog.Logger // of all processes; nil: they say nothing

	mu      sync.Mutex
	latest  map[string]*simProcess // by name
	all     []*simProcess          // as they began
	faults  []simFault
	busyTo  time.Time // when the last thing that was ordered is over
	records bool      // keeps a history
	history []simEvent
	over    bool // what comes is only the end of the processes
	tasks   map[simKey]*simTask
	most    map[simKey]uint64 // how many tasks of a run and segment have come to handlers, at least
	counts  map[string]int    // what happened, by name
	wrong   []string
	judge   simJudge

	copies []simCopy
	novel  map[string]int  // texts of a newer version, and how often each was put
	newest map[string]bool // rows that are of a newer format
	dir    string          // for files
	calmed time.Duration   // when nothing went wrong any more

	rolls      []*simRoll      // partitions of the ledger that were rolled back
	deliveries int             // of messages to processors
	messages   map[string]bool // that were delivered

	namedRow     string                       // the key of the named run's row
	kept         map[string]*azsim.Snapshot   // by partition
	before       map[codec.RunID]workload.Run // as they were when their rows came back
	runsWentBack bool                         // rows of runs came back as they were
	put          map[simKey]bool              // tasks that a queue has taken of who distributes
	touched      map[simKey]string            // tasks that an operator redrove or dropped, or was about to: drop, if it was ever that
	paused       simPauses
	beats        map[string]*simBeats // by instance
	shown        string               // the workload's incarnation, to who asked first
	foreign      map[int]*simForeign  // messages of another program
	lost         map[string]*simLost  // accounts that are gone for good, by name
	perished     map[simKey]bool      // tasks that were in a queue or account that is lost
	busy         map[string]time.Time // until when what handlers use says "not now", by process or "all"
	poisonLost   map[simKey][]string  // and those in quarantine there
	coordinated  simCoordinated
	// leftInQuarantine is how many messages are, in the end, by account.
	leftInQuarantine map[string]int

	requests int
	lasted   time.Duration
	recovery time.Duration // from the last fault until all was done
	allowed  time.Duration // which that may take
}

// simFault is a rule in force, and what its requests are.
type simFault struct {
	*azsim.Injection
	kind, operation string
	rule            azsim.Rule
}

// Counters under names that are used twice.
const (
	simDiedWithTasks   = "died with tasks in handlers"
	simPausedWithTasks = "pause beyond the visibility with tasks in handlers"
	simLongPause       = "pause beyond the lease"
	simTakenOver       = "runs taken over"
	simSentLate        = "requests sent by a process that was stopped before"
	simLeasesLost      = "messages lost to the end of their lease"
)

// simEvery is so long that a source that can be read again has one elected run.
const simEvery = 2 * time.Hour

// playSim plays a plan in a bubble of virtual time.
func playSim(t *testing.T, plan *simPlan, change ...func(*simWorld)) *simWorld {
	w := &simWorld{
		plan: plan, beats: map[string]*simBeats{}, sources: map[string]*simSource{}, latest: map[string]*simProcess{},
		messages: map[string]bool{}, lost: map[string]*simLost{}, perished: map[simKey]bool{}, busy: map[string]time.Time{}, poisonLost: map[simKey][]string{}, tasks: map[simKey]*simTask{}, most: map[simKey]uint64{}, counts: map[string]int{}, turns: newTurns(plan.seed),
		put: map[simKey]bool{}, novel: map[string]int{}, newest: map[string]bool{}, kept: map[string]*azsim.Snapshot{}, before: map[codec.RunID]workload.Run{}, touched: map[simKey]string{}, leftInQuarantine: map[string]int{},
		coordinated: simCoordinated{given: map[string]bool{}}, judge: simJudge{fences: map[simFence]string{}, owning: map[string]string{}, shut: map[codec.RunID]bool{}, left: map[simKey]bool{}, known: map[simKey]bool{}},
	}
	for _, c := range change {
		c(w)
	}
	if plan.files > 0 {
		w.dir = t.TempDir()
	}
	synctest.Test(t, func(t *testing.T) {
		w.began = time.Now()
		w.play(t.Context())
		w.tidy()
		w.tally()
	})
	slices.SortStableFunc(w.history, func(a, b simEvent) int {
		return cmp.Or(cmp.Compare(a.done, b.done), strings.Compare(a.String(), b.String()))
	})
	return w
}

func (w *simWorld) now() time.Duration { return time.Since(w.began) }

func (w *simWorld) roll(n uint64, what string, times int) uint64 {
	return testworld.SimHash(w.plan.seed, "world", what, times) % n
}

func (w *simWorld) play(ctx context.Context) {
	c := azsim.Config{
		Seed: w.plan.seed, Ordered: true, Latency: 10 * time.Millisecond, PopReceiptMismatch: w.plan.receipts == 400,
		Tables: azsim.TableOptions{EmptyPages: w.roll(4, "empty pages", 0) == 0},
	}
	if w.roll(4, "short pages", 0) == 0 {
		c.Tables.ScanLimit = 3
	}
	for i := range w.plan.accounts {
		c.Accounts = append(c.Accounts, azsim.Account{Name: "account" + string(rune('a'+i))})
	}
	if w.plan.limit > 0 {
		c.Limits.Queue = azsim.Rate(w.plan.limit)
	}
	if w.plan.entities {
		c.Limits.QueryCost = 1000
	}
	w.sim, w.tables = azsim.New(c), c.Tables
	begun := make(chan struct{})
	w.goes.Go(func() { w.manyRuns(); close(begun) })
	if w.plan.foreign > 0 {
		w.foreign = map[int]*simForeign{}
		w.lasts(2 * w.plan.pace)
		w.goes.Go(w.otherProgram)
	}
	for _, s := range w.plan.steps {
		waits.Wait(ctx, time.Until(w.began.Add(s.at)))
		w.note("plan", s.String())
		w.do(s)
		if took := w.now() - s.at; took > 0 {
			w.wrongf("the world's mistake: it was %v late after %q, and a step takes no time", took, s)
			break
		}
	}
	w.mu.Lock()
	busy := w.busyTo
	w.mu.Unlock()
	waits.Wait(ctx, time.Until(busy)+time.Millisecond)
	<-begun
	w.calm()
	w.sumsAreSmall(ctx)
	if w.recovers(ctx) && w.remembers(ctx) && w.runsEnd(ctx) && w.copiesAreKnown(ctx) && w.redrivesAreKnown(ctx) && w.unprovenEnd(ctx) {
		w.check(ctx)
		w.deletesAll(ctx)
	}
}

// source gives what a process reads or sends: each life of a program has a source of its own.
func (w *simWorld) source(process string) *simSource {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, n := "elected", w.plan.tasks
	if process[0] == 'o' {
		name, n = process, max(1, w.plan.tasks/5)
		if len(process) > 3 { // one of very many
			n = 1 + int(w.roll(3, "tasks of "+process, 0))
		}
	}
	if process[0] == 'n' {
		name = "named"
	}
	if process[0] == 's' && w.sources[process] == nil {
		w.sources[process] = newSentSource(w.plan, process)
	}
	if process[0] == 's' {
		return w.sources[process]
	}
	if w.sources[name] == nil {
		w.sources[name] = newSimSource(w.plan, name, n)
		w.sources[name].brief = len(process) > 3
		if name == "elected" && w.plan.files > 0 {
			if err := w.sources[name].onDisk(w.dir); err != nil {
				w.wrong = append(w.wrong, err.Error())
			}
		}
	}
	return w.sources[name]
}

// maxUnsaved is low in some worlds, so that distributors meet it (P2.5).
func (w *simWorld) maxUnsaved() int64 {
	return []int64{0, 0, 100}[w.roll(3, "unsaved", 0)]
}

// do begins a step. None takes time: what lasts ends by itself.
func (w *simWorld) do(s simStep) {
	w.mu.Lock()
	p := w.latest[s.who]
	w.mu.Unlock()
	here := p != nil && !p.over()
	switch s.verb {
	case "start":
		if !here {
			w.start(s.who)
		}
	case "restart":
		if here {
			p.kill("at once")
		}
		w.start(s.who)
	case "turn", "fewer":
		if here {
			p.kill("at once")
		}
		w.start(s.who, map[string]string{"turn": simTurned, "fewer": simFewerTurn}[s.verb])
	case "remake":
		w.remake()
	case "clock":
		w.count("clock jump")
		w.jump(s.span)
	case "suspend":
		w.suspend(s)
	case "dark", "hang":
		w.darken(s)
	case "disable", "gone":
		w.changeState(s)
	case "unqueue":
		w.deleteQueues(s.who)
	case "fault":
		w.inject(s)
	case "stray":
		w.stray(s)
	case "copy":
		w.copy(s)
	case "operate":
		if !here {
			w.start(s.who, s.order...)
		}
	case "keep", "back", "lose":
		w.rollBack(s)
	case "source":
		w.changeFiles(s)
	case "newer":
		w.newer(s)
	case "unread":
		w.unread(s)
	case "busy":
		w.lasts(s.span)
		w.mu.Lock()
		w.busy[s.who] = time.Now().Add(s.span)
		w.mu.Unlock()
	case "stop", "crash", "pause":
		if here {
			p.suffer(s)
		}
	}
}

// jump sets the service's clock forward, or back.
func (w *simWorld) jump(by time.Duration) {
	w.mu.Lock()
	w.judge.offset += by
	w.judge.back += max(-by, 0)
	if w.now() > 0 { // there are rows, whose stamps never go back
		w.coordinated.doubts(max(-by, 0) + simInterval + row.RequestTimeout)
	}
	offset := w.judge.offset
	w.mu.Unlock()
	w.sim.SetClockOffset(offset)
}

// suspend lets a machine sleep, or all of them. A sleep takes no virtual time, as no monotonic
// clock of those who sleep goes on: the service's clock jumps, and when they wake their wall
// clocks have too. If only one sleeps, the others see what they see of a clock that jumps.
func (w *simWorld) suspend(s simStep) {
	w.count("suspended " + map[bool]string{false: "machine", true: "machines, all"}[s.who == "all"])
	w.jump(s.span)
	w.mu.Lock()
	defer w.mu.Unlock()
	var slept []*simProcess
	for _, p := range w.latest {
		if s.who == "all" || s.who == p.name {
			p.slept = append(p.slept, simSleep{time.Now(), s.span})
			slept = append(slept, p)
		}
	}
	if s.span > w.plan.lease() && w.plan.delivery == pump.Once {
		w.goes.Go(func() { w.judgeTrust(slept, s.span) })
	}
}

// suffer is what a step does to a process.
func (p *simProcess) suffer(s simStep) {
	w := p.world
	switch s.verb {
	case "stop":
		w.mu.Lock()
		p.stopping = true
		w.mu.Unlock()
		w.count("stop")
		p.stop()
	case "pause":
		w.count("pause")
		if s.point != "" {
			w.lasts(s.span + simSent)
			w.mu.Lock()
			p.points = append(p.points, &simPoint{s.after, s.point, s.nth, s.span})
			w.mu.Unlock()
			return
		}
		if s.span > w.plan.lease() {
			w.count(simLongPause)
		}
		w.mu.Lock()
		if p.hands > 0 && s.span > w.plan.visibility {
			w.counts[simPausedWithTasks]++
		}
		p.pausedTo = time.Now().Add(s.span)
		w.mu.Unlock()
		w.lasts(s.span)
	case "crash":
		if s.point == "" {
			p.kill("at once")
			return
		}
		w.mu.Lock()
		p.points = append(p.points, &simPoint{s.after, s.point, s.nth, 0})
		w.mu.Unlock()
	}
}

// manyRuns begins one small distribution after the other; each is a process, of which some die.
func (w *simWorld) manyRuns() {
	for i := range w.plan.runs {
		d := w.plan.every
		time.Sleep(d/2 + time.Duration(w.roll(uint64(d), "run", i)))
		name := fmt.Sprintf("o%d", 100+i)
		w.start(name)
		if w.roll(100, "dies", i) == 0 {
			w.do(simStep{verb: "crash", who: name, after: w.roll(2, "after", i) == 0, point: []string{"put", "write"}[w.roll(2, "point", i)], nth: 1 + int(w.roll(4, "nth", i))})
		}
	}
}

// lasts notes that something is not over before so long.
func (w *simWorld) lasts(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to := time.Now().Add(d); to.After(w.busyTo) {
		w.busyTo = to
	}
}

func (w *simWorld) darken(s simStep) {
	w.lasts(s.span)
	w.count("account " + s.verb)
	if s.who == w.sim.Accounts()[0] {
		w.count("control account " + s.verb)
	}
	darken := map[string]func(string, bool){"dark": w.sim.Blackout, "hang": w.sim.Hang}[s.verb]
	darken(s.who, true)
	w.goes.Go(func() {
		time.Sleep(s.span)
		darken(s.who, false)
	})
}

func (w *simWorld) inject(s simStep) {
	rule := s.rule
	i := w.sim.Inject(rule)
	span := s.span
	w.mu.Lock()
	w.faults = append(w.faults, simFault{i, string(rule.Fault), strings.Join(rule.Operations, ","), rule})
	if s.forAllForGood() { // when the others were sent what it did not take, an operator gives it up
		span = simRound
		w.lost[rule.Account] = &simLost{}
	}
	w.mu.Unlock()
	if s.forOneForGood() {
		return
	}
	w.lasts(span)
	w.goes.Go(func() {
		time.Sleep(span)
		w.judgeElsewhere(s)
		w.judgeRound(s, rule.Account)
		if span == s.span {
			i.Remove()
		}
	})
}

// calm is after the last fault: who was to die at some point that was not reached
// lives on, and there is one process of each role at least.
func (w *simWorld) calm() {
	roles := map[byte]bool{}
	w.mu.Lock()
	w.noteLocked("plan", "nothing goes wrong any more")
	w.calmed = w.now()
	for _, p := range w.all {
		p.points = nil
		if !p.over() && !p.stopping && !w.blind(p) && !w.plan.refused(p.name) {
			roles[p.name[0]] = true
		}
	}
	w.mu.Unlock()
	for _, role := range "dp" {
		if !roles[byte(role)] {
			w.start(string(role) + "99")
		}
	}
	if w.plan.named() {
		w.start(simNamedLast)
	}
	if w.plan.gated {
		w.start("x98", "release")
	}
	if w.plan.pausing() || w.plan.pausingParts() {
		w.start(simResumer, "resume")
	}
	w.losesAccounts()
}

// looks is the time between two looks for the end: where there are many runs each look costs some.
func (w *simWorld) looks(what string, n int) time.Duration {
	d := time.Second
	if w.plan.runs > 0 {
		d = 5 * time.Second
	}
	if w.plan.full {
		d = 15 * time.Second
	}
	return d + time.Duration(w.roll(uint64(d), what, n))
}

// recovers waits until everything is done, for as long as that may take.
func (w *simWorld) recovers(ctx context.Context) bool {
	began := w.now()
	w.allowed = w.bound()
	for n := 1; ; n++ {
		waits.Wait(ctx, w.looks("recovers", n))
		what := w.unfinished(ctx)
		if what == "" {
			break
		}
		if w.now()-began > w.allowed {
			w.wrongf("stuck: %v after the last fault %s; %s", w.now()-began, what, w.within(ctx))
			return false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recovery = w.now() - began
	return true
}

// tidy ends every process that is still there as a crash does, and waits for what is on its way.
func (w *simWorld) tidy() {
	w.mu.Lock()
	w.over, w.lasted = true, w.now()
	all := slices.Clone(w.all)
	w.mu.Unlock()
	for _, p := range all {
		p.kill("")
	}
	w.lives.Wait()
	w.goes.Wait()
	time.Sleep(time.Second) // handlers of dead processes may still wait for their turns
}

// runs reads the newest run rows, which are all: a world has a few, or many.
func (w *simWorld) runs(ctx context.Context) ([]workload.Run, error) {
	return workload.NewRuns(w.openTable(), "work").List(ctx, 1000+w.plan.runs)
}
