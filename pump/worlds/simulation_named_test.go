package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Worlds with an operator who gives one command, that of a run with a name, at random moments, on
// several machines, while the processes that it starts die, stand still and are stopped.

const (
	simName      = "nightly"
	simNamedLast = "n99" // gives the command in the end, until no other sends the run
	// The rows of the named run: its own, and that of its election.
	simNamedRow      = "work.runs/named"
	simNamedElection = "work.election/run."
)

// named are worlds of a named run. In two of three nothing else goes wrong, so that tasks that are
// done twice are the run's fault.
func (g *simSeeded) named() {
	p := g.plan
	p.live, p.tasks, p.pace = g.roll(2) == 0, min(p.tasks, 300), max(p.pace, g.seconds(15, 50))
	p.beat, g.roles = []time.Duration{time.Second, simBeat}[g.roll(2)], "nnpd"
	if g.events = 3 + g.roll(6); g.roll(3) > 0 {
		g.events, p.limit = -1, 0
	}
	at := g.seconds(1, 10)
	who := func() string { return fmt.Sprintf("n%d", 1+g.roll(3)) }
	for range 6 + g.roll(12) {
		s := simStep{at: at, who: who(), verb: []string{"start", "start", "restart", "crash", "stop", "pause"}[g.roll(6)]}
		switch {
		case s.verb == "pause":
			s.span = g.seconds(2, 70)
		case s.verb == "crash" && g.roll(4) > 0:
			s.after, s.point, s.nth = g.roll(2) == 0, []string{"put", "read", "write", "checkpoint", "seal"}[g.roll(5)], 1+g.roll(3)
		}
		g.step(s)
		if g.roll(4) == 0 {
			g.step(simStep{at: at, verb: "fault", span: g.seconds(1, 30), rule: azsim.Rule{
				Fault: simFaultKinds[g.roll(len(simFaultKinds)-4)], Instance: who(), First: 1 + g.roll(5),
				Operations: []string{[]string{"PutMessage", "InsertEntity", "UpdateEntity"}[g.roll(3)]},
			}})
		}
		at += g.seconds(0, 12)
	}
	if g.roll(3) > 0 {
		g.namedRows(at)
	}
}

// namedRows has rows of the run vanish, or come back as they were: about as often before its end as
// after that, and in a third of the worlds when it is closed and forgotten.
func (g *simSeeded) namedRows(end time.Duration) {
	of, back, late := []string{simNamedRow, simNamedElection}[g.roll(2)], g.roll(2) == 0, time.Duration(0)
	if g.roll(3) == 0 {
		late = end + g.plan.pace + g.seconds(60, 300)
	}
	for range 1 + g.roll(2) {
		s := simStep{at: late + g.seconds(5, 9+int((end+g.plan.pace)/time.Second)), verb: "lose", who: of}
		if back {
			s.verb, s.who = "back", strings.Split(of, "/")[0]
			g.step(simStep{at: (s.at - late) * time.Duration(1+g.roll(9)) / 10, verb: "keep", who: s.who})
		}
		g.step(s)
	}
}

// named reports whether a plan has a run with a name.
func (p *simPlan) named() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.who != "" && s.who[0] == 'n' })
}

// namedAlone reports whether nothing goes wrong in a plan but with the processes of a named run, and
// with its rows.
func (p *simPlan) namedAlone() bool {
	return p.limit == 0 && !slices.ContainsFunc(p.steps, func(s simStep) bool {
		return !slices.Contains([]string{"start", "lose", "keep", "back"}, s.verb) &&
			!strings.HasPrefix(s.who, "n") && !strings.HasPrefix(s.rule.Instance, "n")
	})
}

// sendsNamed gives the command once, or in the end until no other sends the run.
func (p *simProcess) sendsNamed(ctx context.Context) error {
	for n := 0; ; n++ {
		d, err := p.newDistributor(p.world.source(p.name))
		if err != nil {
			return err
		}
		p.world.count("named runs given")
		s, err := d.Run(ctx)
		_, taken := errors.AsType[*distributor.TakenError](err)
		wait := time.Second + time.Duration(p.roll(uint64(10*time.Second), "again", "", n))
		if p.name == simNamedLast && taken && waits.Wait(ctx, wait) {
			continue
		}
		if !p.over() {
			p.judgeNamed(ctx, s, err)
		}
		return err
	}
}

// judgeNamed judges how a command ended: nothing is wrong with the source, so no process is told
// that, and only a run whose row went can be one that is not sent any more.
func (p *simProcess) judgeNamed(ctx context.Context, s distributor.Summary, err error) {
	w, what := p.world, "sent to its end"
	var taken *distributor.TakenError
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && s.Again != "":
		what = "sent before"
	case err == nil:
	case s.Completion != nil:
		what = "waited for, and not all done"
	case errors.As(err, &taken) && taken.By[0] == 'n':
		what = "sent by another"
	case ctx.Err() != nil:
		what = "stopped"
	case w.namedWentLocked() && (errors.Is(err, pump.ErrRunState) || errors.Is(err, pump.ErrNoRun)):
		what = "refused as its row went"
	default:
		_, config := errors.AsType[*pump.ConfigError](err)
		what = "not sent, as things went wrong"
		if w.calmed > 0 && p.name == simNamedLast || config || errors.Is(err, pump.ErrRunState) || errors.Is(err, pump.ErrNoRun) {
			w.wrong = append(w.wrong, fmt.Sprintf("%v %s: the named run failed: %v", w.now(), p, err))
		}
	}
	w.counts["named runs "+what]++
}

// namedRun is the named run as the rows say, and whether its row went.
func (w *simWorld) namedRun(runs []workload.Run) (r workload.Run, went bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(runs, func(r workload.Run) bool { return r.Name == simName }); i >= 0 {
		r = runs[i]
	}
	return r, w.namedWentLocked()
}

func (w *simWorld) namedWentLocked() bool {
	return w.counts[simWent+simNamedRow]+w.counts[simWent+"work.runs"] > 0
}

// namedIsLeft says what is still to be done of the named run.
func (w *simWorld) namedIsLeft(runs []workload.Run, all []*simProcess) string {
	if r, went := w.namedRun(runs); r.State == workload.RunSealed && w.plan.delivery == pump.Once && !went {
		return "the named run is not closed"
	}
	left := func(p *simProcess) bool { return p.name[0] == 'n' && !p.over() }
	if i := slices.IndexFunc(all, left); i >= 0 {
		return all[i].String() + " has not ended"
	}
	return ""
}

// checkNamed judges the run of the name: it is sealed, in mode once closed, or it broke because its
// row was gone when it was open. If nothing went wrong with the others, mode once did none of its
// tasks twice, whatever became of its processes and rows. At least once did so only if a process
// died, stood still or was not answered, or a row went.
func (w *simWorld) checkNamed(runs []workload.Run) {
	if !w.plan.named() {
		return
	}
	r, went := w.namedRun(runs)
	last, was := w.latest[simNamedLast], w.before[r.ID].State
	r = w.asSealed(r) // if it was closed, and its row came back
	switch done := r.State == workload.RunSealed || r.State == workload.RunClosed; {
	case done && (last.err == nil || went || w.plan.trouble > 0):
	case went && last.err != nil && (was == workload.RunOpen || was == workload.RunBroken):
		w.count("named runs that broke, stayed away or came back open as their row went")
	default:
		w.wrongf("the named run is %q after %v (its row went: %v, as %q)", r.State, last.err, went, was)
	}
	if !w.plan.namedAlone() {
		return
	}
	harmed := slices.ContainsFunc(w.plan.steps, func(s simStep) bool {
		return slices.Contains([]string{"crash", "restart", "pause", "fault", "lose", "back"}, s.verb)
	})
	if w.plan.delivery != pump.Once && harmed {
		return
	}
	w.count("worlds whose named run may do no task twice")
	done := map[int]int{}
	for _, task := range w.tasks {
		if task.source.name != "named" {
			continue
		}
		if done[task.record] += task.effects; done[task.record] > 1 {
			w.wrongf("record %d of the named run was done %d times", task.record, done[task.record])
		}
	}
}
