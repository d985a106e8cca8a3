package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/workloads"
)

// Worlds in which operators pause the workload. In each of them nothing is lost or doubled. Where
// nothing goes wrong, no task begins later than two beats after a pause.

// pauses are those worlds. In half of them nothing else happens. In the others an operator may die
// of it, and another one may pause what the first lets go on.
func (g *simSeeded) pauses() {
	calm := g.pausing()
	at := g.seconds(1, 20)
	for range 1 + g.roll(3) {
		by := g.operate(at, "pause")
		if !calm && g.roll(4) == 0 {
			g.step(simStep{at: at, verb: "crash", who: by, after: g.roll(2) == 0, point: "write", nth: 1})
		}
		if g.roll(3) == 0 {
			g.operate(at+g.seconds(0, 2), "pause")
		}
		at += g.seconds(1, 150)
		g.operate(at, "resume")
		at += g.seconds(1, 40)
	}
	if g.roll(2) == 0 {
		g.operate(at, "pause") // which the end of the world takes back
	}
}

// pausing has the work last while something is paused. In half of the worlds nothing else happens.
func (g *simSeeded) pausing() (calm bool) {
	p := g.plan
	p.tasks, p.work, p.pace = max(p.tasks, 200), max(p.work, 2*time.Second), max(p.pace, 20*time.Second)
	if calm = g.roll(2) == 0; calm {
		p.bad, p.limit, p.live, p.tables, p.entities, g.events = 0, 0, false, 0, false, -1
	}
	return calm
}

// simPauses is what is known of pauses. It is guarded by world.mu.
type simPauses struct {
	since    time.Time // a command that paused has returned then, and none has resumed since
	resumed  int       // commands that have begun to resume
	resuming int       // of them, those that may have an effect yet
	// parts are the runs and keys that are paused by themselves, as since.
	parts map[string]time.Time
}

// pauses carries out an operator's pause or resume.
func (p *simProcess) pauses(ctx context.Context, cfg pump.Config, order string) error {
	w := p.world
	if p.name == simResumer { // the last pause may be under way yet
		for _, o := range w.operators(p) {
			<-o.ended
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(p.asked, simPatience)
		defer cancel()
	}
	w.mu.Lock()
	known := w.paused
	if order == "resume" {
		w.paused.since = time.Time{}
		w.paused.resumed++
		w.paused.resuming++
	}
	w.mu.Unlock()
	if order == "resume" {
		_, err := workloads.Resume(ctx, cfg)
		if p.name == simResumer {
			err = errors.Join(err, p.resumesPart(ctx, cfg, true))
		}
		if err == nil {
			w.mu.Lock()
			w.paused.resuming--
			w.mu.Unlock()
		}
		return err
	}
	c, err := workloads.Pause(ctx, cfg, p.name, workloads.PauseOptions{})
	if err != nil || p.over() {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Paused && known.resuming == 0 && known.resumed == w.paused.resumed && w.paused.since.IsZero() {
		w.paused.since = time.Now()
	}
	return nil
}

// judgePauseLocked says what is wrong with a task that is begun now.
func (w *simWorld) judgePauseLocked(p *simProcess, task *simTask) {
	w.judgePartLocked(p, task)
	switch since := w.paused.since; {
	case since.IsZero() || !w.plan.calm():
	case time.Since(since) > 2*w.plan.beat:
		w.wrong = append(w.wrong, fmt.Sprintf("%s begins %v %v after the workload was paused", p, task, time.Since(since)))
	}
}

// calm reports whether nothing goes wrong in a world but what operators do.
func (p *simPlan) calm() bool {
	return p.limit == 0 && p.tables == 0 && !p.entities &&
		!slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb != "start" && s.verb != "operate" })
}

// operators are all that there have been but one.
func (w *simWorld) operators(but *simProcess) (all []*simProcess) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		if p.name[0] == 'x' && p != but {
			all = append(all, p)
		}
	}
	return all
}

// simResumer is the operator who lets a workload go on in the end of a world.
const simResumer = "x97"

// pausing reports whether operators of a plan pause the workload.
func (p *simPlan) pausing() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb == "operate" && s.order[0] == "pause" })
}
