package worlds

import (
	"context"
	"errors"
	"slices"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/runs"
)

// Runs that an operator ends. Their tasks do not vanish: each is done, or in quarantine for that,
// or, if it is to be so, dropped and counted.

// simEnds are commands that end a run, and whether what is met of it is dropped.
var simEnds = map[string]bool{"end": false, "end-drop": true}

// endsRun ends one of the runs that are not closed.
func (p *simProcess) endsRun(ctx context.Context, cfg pump.Config, drop bool) error {
	w := p.world
	all, err := operatedRuns(ctx, cfg)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r workload.Run) bool { return r.State == workload.RunClosed })
	if len(all) == 0 {
		return nil
	}
	r := all[p.roll(uint64(len(all)), "ends", "", 0)]
	info, err := runs.End(ctx, cfg, r.ID.String(), drop, "ended by "+p.name)
	if errors.Is(err, pump.ErrRunState) {
		return nil // it was closed meanwhile
	}
	if err == nil && !p.over() {
		w.count("runs ended as " + string(r.State))
		if info.State != string(workload.RunEnded) || drop && !info.Drop {
			w.wrongf("%s ended run %v, which is %s then (drop: %v)", p, r.ID, info.State, info.Drop)
		}
	}
	return err
}

// puts notes the messages that a queue has taken of a distributor: from here on each task has an
// outcome.
func (q *simQueue) puts(text []byte) {
	redrives := q.by.name == simInterrupted
	if q.by.processor != nil || q.by.name[0] == 'x' && !redrives {
		return
	}
	h, err := codec.ReadHeader(text)
	if err != nil || h.Cause != nil || h.Run == (codec.RunID{}) {
		return
	}
	w := q.by.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if redrives {
		w.redrove(h)
		return
	}
	for n := range h.Tasks.All() {
		w.put[simKey{h.Run, h.Segment, n}] = true
	}
}

// checkPut judges what became of every task that a queue has taken, of runs in any state.
func (w *simWorld) checkPut(ctx context.Context, runs []workload.Run, v *simVerdict) {
	ended, sealed := map[codec.RunID]workload.Run{}, map[codec.RunID]bool{}
	for _, r := range runs {
		sealed[r.ID] = r.State == workload.RunSealed || r.State == workload.RunClosed
		if r.State == workload.RunEnded {
			ended[r.ID] = r
			w.judge.ended++
		}
	}
	dropped := map[codec.RunID]int{}
	for key := range w.put {
		r, over := ended[key.run]
		task := w.tasks[key]
		poison := v.poison[key]
		switch {
		case over && slices.Contains(poison, codec.ReasonRunEnded):
			w.counts["tasks in quarantine for the end of their run"]++
		case task != nil && task.effects > 0 || len(poison) > 0 || w.touched[key] == "drop":
		case task != nil && w.touched[key] != "" && task.source.condemned(task.record):
		case over && r.Drop:
			dropped[key.run]++
		case w.perished[key] && !sealed[key.run]:
			w.counts["tasks that perished with a queue or an account"]++
		default:
			w.wrongf("lost: %v was put, its run is ended: %v, and it is neither done nor in quarantine", key, over)
		}
	}
	for id, n := range dropped {
		w.countAll("tasks dropped with their run", n)
		w.checkDropped(ctx, id, n)
	}
}

// checkDropped compares the missing tasks of an ended run with those that processors say they
// dropped, unless a processor died with what it had counted.
func (w *simWorld) checkDropped(ctx context.Context, id codec.RunID, missing int) {
	for _, p := range w.all {
		if p.processor != nil && p.dead {
			return
		}
	}
	tallies, err := workload.Tallies(ctx, w.openTable(), "work", id)
	if err != nil {
		w.wrongf("what became of run %v cannot be read: %v", id, err)
		return
	}
	var sum workload.Tally
	for _, t := range tallies {
		sum = sum.Add(t)
	}
	if sum.Dropped < uint64(missing) {
		w.wrongf("lost: %d tasks of run %v are neither done nor in quarantine, and %d are counted as dropped", missing, id, sum.Dropped)
	}
}
