package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Worlds of accounts that refuse, are disabled, are gone, or lose their queues: what people do to
// accounts, and what no retry mends. The others go on meanwhile.

// What the requests of a kind meet: the counts "met ...".
const (
	simMetRefusal   = "a refusal of an account"
	simMetDisabled  = "a disabled account"
	simMetGone      = "an account that is gone"
	simMetNoQueue   = "a queue that was deleted"
	simMetPartition = "a partition that is not well"
	simMetNotNow    = "an endpoint that says not now"
	simMetRows      = "rows that are gone or came back"
	simMetReplaced  = "a file that was replaced"
	simMetSenders   = "fifty Senders at once"
)

// simRefusals are the ways in which an account refuses whoever has a key or a SAS that is good no
// more, or the wrong rights.
var simRefusals = []string{"AuthenticationFailed", "AuthorizationPermissionMismatch", "AuthorizationFailure"}

// someAccounts makes a world of at least two, in which sending takes a while and, in half of the
// worlds, nothing else goes wrong.
func (g *simSeeded) someAccounts() {
	p := g.plan
	p.accounts, p.pace, p.tasks = 2+g.roll(3), g.seconds(20, 45), min(p.tasks, 400)
	p.keys = max(p.keys, 60) // there are tasks in each account
	if g.roll(2) == 0 {
		p.live, p.bad, p.limit, g.events = false, 0, 0, -1
	} else {
		g.events = 2 + g.roll(6)
	}
}

// begins is when something begins: before any process, or in the midst of the sending.
func (g *simSeeded) begins() time.Duration {
	if g.roll(3) == 0 {
		return time.Millisecond
	}
	return g.seconds(3, 18)
}

// while is mostly some beats, and at times longer than anything waits.
func (g *simSeeded) while() time.Duration {
	if g.roll(4) == 0 {
		return g.seconds(240, 900)
	}
	return g.seconds(15, 90)
}

// refusingAccounts are accounts that refuse all processes for a while, one after the other, or in a
// third of the worlds one that does for good, until an operator gives it up. In some worlds a
// distributor and a processor start meanwhile.
func (g *simSeeded) refusingAccounts() {
	g.someAccounts()
	at := g.seconds(3, 18)
	g.calm = at // the workload is made by then: a first start needs all accounts
	if g.roll(3) == 0 {
		for _, who := range []string{"d2", "p3"} {
			g.last[who[0]] = int(who[1] - '0')
			g.step(simStep{at: at + g.seconds(1, 10), verb: "start", who: who})
		}
	}
	spans := []time.Duration{g.while(), g.while()}[g.roll(2):]
	if g.roll(3) == 0 {
		g.replayable()
		spans = []time.Duration{simForGood}
	}
	for _, span := range spans {
		g.step(simStep{at: at, verb: "fault", span: span, rule: azsim.Rule{
			Fault: azsim.Answer, Status: 403, Code: g.oneOf(simRefusals), Account: g.other(),
		}})
		at += span + g.seconds(1, 30)
	}
}

// refusedProcesses are one processor or distributor each whose credential for an account is good no
// more, for a while or for ever. Another one of its role is well.
func (g *simSeeded) refusedProcesses() {
	g.someAccounts()
	g.join('p') // which is p1; begin has another one join
	who, at := "p1", time.Millisecond
	if g.roll(6) == 0 { // in the midst it may own nothing there
		at = g.seconds(3, 18)
	}
	if g.roll(8) == 0 { // who leads, as it is mostly the only one
		who, at, g.few = "d1", g.seconds(3, 15), true
	}
	span := max(g.while(), time.Minute) // it owns something by then
	if g.roll(2) == 0 {
		span = simForGood
	}
	g.step(simStep{at: at, verb: "fault", span: span, rule: azsim.Rule{
		Fault: azsim.Answer, Status: 403, Code: g.oneOf(simRefusals), Account: g.other(), Instance: who,
	}})
}

// forOneForGood: one process meets it until the world ends.
func (s *simStep) forOneForGood() bool {
	return s.verb == "fault" && s.span >= simForGood && s.rule.Instance != ""
}

// forAllForGood: an account refuses all processes until the world ends.
func (s *simStep) forAllForGood() bool {
	return s.span >= simForGood && s.rule.Account != "" && s.rule.Instance == ""
}

// refused says that an account refuses a process of this name for good.
func (p *simPlan) refused(name string) bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.forOneForGood() && s.rule.Instance == name })
}

// disabledAccounts are accounts that are disabled for a while; in some worlds it is the control
// account.
func (g *simSeeded) disabledAccounts() {
	g.someAccounts()
	who := g.other()
	if g.roll(4) == 0 {
		who = "accounta"
	}
	g.step(simStep{at: g.begins(), verb: "disable", who: who, span: g.while()})
}

// goneAccounts are accounts that were deleted, and recovered after a while.
func (g *simSeeded) goneAccounts() {
	g.someAccounts()
	g.step(simStep{at: g.begins(), verb: "gone", who: g.other(), span: g.while()})
}

// replayable makes a world in which each run can be repaired.
func (g *simSeeded) replayable() {
	g.someAccounts()
	g.plan.delivery, g.plan.live, g.plan.bad = pump.Once, false, 0
}

// lostAccounts are accounts that are gone for good, and in half of the worlds come back when their
// workload has forgotten them: with what was in them, or as others of their names.
func (g *simSeeded) lostAccounts() {
	g.replayable()
	s := simStep{at: g.seconds(5, 18), verb: "gone", who: g.other(), span: simForGood}
	g.calm = s.at // the workload is made by then, as in refusingAccounts
	if g.roll(2) == 0 {
		s.order = []string{[]string{"full", "empty"}[g.roll(2)]}
	}
	g.step(s)
}

// lostQueues are work queues that somebody deletes, with what is in them. A distributor that starts
// later makes them again.
func (g *simSeeded) lostQueues() {
	g.replayable()
	at := g.seconds(5, 18)
	g.step(simStep{at: at, verb: "unqueue", who: g.other()})
	g.step(simStep{at: at + g.seconds(40, 90), verb: "restart", who: "d1"})
}

// parseState reads what is done to accounts by hand.
func (s *simStep) parseState(args []string, accounts int) (err error) {
	want := map[string]int{"disable": 2, "gone": 2, "unqueue": 1}[s.verb]
	switch {
	case want == 0:
		return errors.New("no such step")
	case s.verb == "gone" && len(args) == 3:
		if s.order = args[2:]; args[2] != "full" && args[2] != "empty" {
			return errors.New("an account comes back full or empty")
		}
	case len(args) != want:
		return fmt.Errorf("%s needs %d arguments", s.verb, want)
	}
	if err = checkSimAccount(s.who, accounts); err == nil && s.verb != "unqueue" {
		s.span, err = simSpan(args[1])
	}
	switch forGood := s.span >= simForGood; {
	case err != nil:
	case forGood && s.who == "accounta":
		err = errors.New("the control account cannot be gone for good")
	case s.order != nil && !forGood:
		err = errors.New("what comes back by a step of its own was gone for good")
	}
	return err
}

// simLost is an account that is gone for good.
type simLost struct {
	back string // as what it comes back: "", "full" or "empty"
}

// changeState disables an account or lets it be gone, for a while or for good.
func (w *simWorld) changeState(s simStep) {
	w.count("account " + s.verb)
	met := func() int { return int(w.sim.Stats().Blackouts[s.who]) }
	before := met()
	state := azsim.Disabled
	if s.verb == "gone" {
		state = azsim.Gone
	}
	w.sim.SetState(s.who, state)
	if s.span >= simForGood {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lost[s.who] = &simLost{append(s.order, "")[0]}
		return
	}
	w.lasts(s.span)
	w.goes.Go(func() {
		time.Sleep(s.span)
		w.judgeRound(s, s.who)
		w.sim.SetState(s.who, azsim.Well)
		if s.verb == "gone" {
			w.countAll("met "+simMetGone, met()-before)
		}
	})
}

// simRound is within which time the elected distributors have sent all they have though an account
// takes nothing, in a world where nothing else goes wrong.
const simRound = 3 * time.Minute

// judgeRound judges, before an account is well again, whether the others were sent what it did not
// take.
func (w *simWorld) judgeRound(s simStep, account string) {
	if account == "" || account == w.sim.Accounts()[0] || s.rule.Instance != "" || s.span < simRound || s.at < time.Second || // a workload is made of all its accounts
		!w.plan.calmBut(s.verb) {
		return
	}
	sealed := slices.ContainsFunc(w.runsNow(), func(r workload.Run) bool {
		return r.Mode == "every" && (r.State == workload.RunSealed || r.State == workload.RunClosed)
	})
	if !sealed {
		w.wrongf("stuck: the elected distributors have not sent what they have in %v, for an account that takes nothing (%s)", s.span, s)
	}
}

// runsNow are the runs as they are, whatever befalls accounts.
func (w *simWorld) runsNow() []workload.Run {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := workload.NewRuns(w.sure(w.sim.Accounts()[0]).Table(row.TableName), "work").List(ctx, 1000)
	if err != nil {
		w.wrongf("the world's mistake: the runs cannot be read: %v", err)
	}
	return all
}

// deleteQueues deletes the work queues of an account.
func (w *simWorld) deleteQueues(account string) {
	w.count("account unqueue")
	w.perish(account)
	for i := range w.plan.queues {
		w.sim.DeleteQueues(account, fmt.Sprintf("work-%02d", i))
	}
}

// perish notes the tasks that are in an account's work queues, also in messages that a process has
// in hand: what becomes of a task that is in no other message is a repair's matter.
func (w *simWorld) perish(account string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.plan.queues {
		for _, text := range w.sim.Texts(account, fmt.Sprintf("work-%02d", i)) {
			h, err := codec.ReadHeader(text)
			if err != nil {
				continue // another judge tells
			}
			for n := range h.Tasks.All() {
				w.perished[simKey{h.Run, h.Segment, n}] = true
			}
		}
	}
}

// perishPoison notes what is in an account's quarantine, which nobody sees again.
func (w *simWorld) perishPoison(account string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.sim.Texts(account, workload.PoisonQueue("work")) {
		h, err := codec.ReadHeader(text)
		if err != nil || h.Cause == nil {
			continue
		}
		for n := range h.Tasks.All() {
			key := simKey{h.Run, h.Segment, n}
			w.poisonLost[key] = append(w.poisonLost[key], h.Cause.Reason)
		}
	}
}

// simLoser is the operator who gives up accounts that are gone for good.
const simLoser = "x96"

// losesAccounts has an operator do what the runbook says of accounts that are gone for good: drain,
// remove. The repair comes when the rest is done (remembers).
func (w *simWorld) losesAccounts() {
	if len(w.lost) > 0 {
		w.start(simLoser, simLoses)
	}
}

// simLoses is the order to that operator, and simGivingUp how long each command of it may take.
const (
	simLoses    = "lose"
	simGivingUp = 15 * time.Minute
)

// loses carries it out, however often it takes.
func (p *simProcess) loses(ctx context.Context, cfg pump.Config) error {
	w := p.world
	for name, lost := range w.lost {
		tries := func(what string, do func() error) error {
			for began := time.Now(); ; time.Sleep(5 * time.Second) {
				err := do()
				if err == nil || ctx.Err() != nil {
					return err
				}
				if time.Since(began) > simGivingUp {
					w.wrongf("stuck: %s cannot %s %s, which is gone for good: %v", p, what, name, err)
					return err
				}
			}
		}
		err := tries("drain", func() error { _, err := accounts.Drain(ctx, cfg, name); return err })
		if err != nil {
			return err
		}
		if err := tries("remove", func() error {
			_, err := accounts.Remove(ctx, cfg, name, accounts.RemoveOptions{Lost: true, Wait: true})
			return err
		}); err != nil {
			return err
		}
		w.perish(name)
		w.countAll("met "+simMetGone, int(w.sim.Stats().Blackouts[name]))
		if lost.back == "" {
			continue
		}
		if lost.back == "empty" {
			w.perishPoison(name)
			w.sim.Reset(name)
		}
		w.sim.SetState(name, azsim.Well)
		if err := tries("add", func() error { _, err := accounts.Add(ctx, cfg, name); return err }); err != nil {
			return err
		}
	}
	return nil
}

// simAnswered is how many requests had an answer of this code.
func simAnswered(s azsim.Stats, code string) (n int) {
	for _, r := range s.Requests {
		if r.Code == code {
			n += int(r.Count)
		}
	}
	return n
}

// meetLocked counts the requests that met what kinds are about.
func (w *simWorld) meetLocked(s azsim.Stats) {
	for _, f := range w.faults {
		switch {
		case f.rule.Partition != "":
			w.counts["met "+simMetPartition] += int(f.Hits())
		case f.rule.Account != "" && slices.Contains(simRefusals, f.rule.Code):
			w.counts["met "+simMetRefusal] += int(f.Hits())
		}
	}
	w.counts["met "+simMetSenders] = w.counts["Senders that lived on"] / 50
	w.counts["met "+simMetDisabled] += simAnswered(s, "AccountIsDisabled")
	if w.counts["account unqueue"] > 0 {
		w.counts["met "+simMetNoQueue] += simAnswered(s, "QueueNotFound")
	}
}

// unmet names the kinds of which ten worlds or more were played and less than nine of ten have met
// what they are about: those are not what they are called.
func (sum *simSum) unmet() (list []string) {
	for i := range simKinds {
		k := sum.Kinds[simKinds[i].name]
		if simKinds[i].met != "" && k != nil && k.Worlds >= 10 && 10*k.Met < 9*k.Worlds {
			list = append(list, fmt.Sprintf("in %d of %d worlds of kind %q a request met %s, want nine of ten",
				k.Met, k.Worlds, simKinds[i].name, simKinds[i].met))
		}
	}
	return list
}

// calmBut reports whether nothing goes wrong but by steps of a verb.
func (p *simPlan) calmBut(verb string) bool {
	return p.limit == 0 && !slices.ContainsFunc(p.steps, func(s simStep) bool {
		return s.verb != "start" && s.verb != verb
	})
}
