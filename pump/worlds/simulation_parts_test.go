package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/workloads"
)

// Worlds in which operators pause runs and keys by themselves. In each of them nothing is lost or
// doubled, all is done after the resume, and the marks go. Where nothing goes wrong, no paused task
// begins later than two beats after.

// simPausesPart are the commands that pause a run or a key.
var simPausesPart = []string{"pause-run", "pause-key"}

// pausedParts are those worlds: in half of them nothing else happens.
func (g *simSeeded) pausedParts() {
	calm := g.pausing()
	at := g.seconds(1, 30)
	for range 1 + g.roll(4) {
		by := g.operate(at, simPausesPart[g.roll(2)])
		if !calm && g.roll(4) == 0 {
			g.step(simStep{at: at, verb: "crash", who: by, after: g.roll(2) == 0, point: "write", nth: 1 + g.roll(2)})
		}
		at += g.seconds(1, 60)
		switch g.roll(4) {
		case 0:
			if g.plan.accounts > 1 {
				g.operate(at, []string{"drain", "add", "remove"}[g.roll(3)], g.other())
				at += g.seconds(1, 60)
			}
		case 1:
			g.operate(at, "end-drop")
			at += g.seconds(1, 20)
		}
		if g.roll(3) > 0 {
			g.operate(at, "resume-part")
		}
		at += g.seconds(1, 40)
	}
}

// pausesPart carries out one of the commands.
func (p *simProcess) pausesPart(ctx context.Context, cfg pump.Config, order string) error {
	if order == "resume-part" {
		return p.resumesPart(ctx, cfg, false)
	}
	w := p.world
	part := workloads.Part{Key: []byte("key " + strconv.Itoa(int(p.roll(uint64(w.plan.keys), "pauses part", "", 0))))}
	what := string(part.Key)
	if order == "pause-run" {
		all, err := operatedRuns(ctx, cfg)
		all = slices.DeleteFunc(all, func(r workload.Run) bool {
			return r.State == workload.RunClosed || r.State == workload.RunEnded
		})
		if err != nil || len(all) == 0 {
			return err
		}
		what = all[p.roll(uint64(len(all)), "pauses part", "", 0)].ID.String()
		part = workloads.Part{Run: what}
	}
	w.mu.Lock()
	known := w.paused
	w.mu.Unlock()
	c, err := workloads.PausePart(ctx, cfg, part, p.name)
	if _, refused := errors.AsType[*workloads.Error](err); refused {
		return nil // it was closed or ended meanwhile
	}
	if err != nil || p.over() {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Paused && known.resuming == 0 && known.resumed == w.paused.resumed && w.paused.parts[what].IsZero() {
		if w.paused.parts == nil {
			w.paused.parts = map[string]time.Time{}
		}
		w.paused.parts[what] = time.Now()
	}
	return nil
}

// resumesPart resumes one of what is paused, or all.
func (p *simProcess) resumesPart(ctx context.Context, cfg pump.Config, all bool) error {
	w := p.world
	work, err := workload.Load(ctx, w.openTable(), "work")
	if err != nil || len(work.PausedParts) == 0 {
		return err
	}
	marks := work.PausedParts
	if !all {
		at := p.roll(uint64(len(marks)), "resumes part", "", 0)
		marks = marks[at : at+1]
	}
	for _, m := range marks {
		part, what := workloads.Part{Key: m.Key}, string(m.Key)
		if !m.Run.IsZero() {
			part, what = workloads.Part{Run: m.Run.String()}, m.Run.String()
		}
		w.mu.Lock()
		delete(w.paused.parts, what)
		w.paused.resumed++
		w.paused.resuming++
		w.mu.Unlock()
		if _, failed := workloads.ResumePart(ctx, cfg, part); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		w.mu.Lock()
		w.paused.resuming--
		w.mu.Unlock()
	}
	return err
}

// judgePartLocked says what is wrong with a task that is begun now.
func (w *simWorld) judgePartLocked(p *simProcess, task *simTask) {
	for _, what := range []string{task.run.String(), task.source.key(task.record)} {
		since := w.paused.parts[what]
		if !since.IsZero() && w.plan.calm() && time.Since(since) > 2*w.plan.beat {
			w.wrong = append(w.wrong, fmt.Sprintf("%s begins %v %v after %s was paused", p, task, time.Since(since), what))
		}
	}
}

// pausingParts reports whether operators of a plan pause runs or keys.
func (p *simPlan) pausingParts() bool {
	return slices.ContainsFunc(p.steps, func(s simStep) bool {
		return s.verb == "operate" && slices.Contains(simPausesPart, s.order[0])
	})
}

// stillPaused says what has its mark yet; empty: nothing.
func (w *simWorld) stillPaused(ctx context.Context) string {
	if !w.plan.pausingParts() {
		return ""
	}
	work, err := workload.Load(ctx, w.openTable(), "work")
	switch {
	case err != nil:
		return err.Error()
	case len(work.PausedParts) > 0:
		return work.PausedParts[0].String() + " has its mark"
	}
	return ""
}
