package worlds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Redrives that are interrupted: the put lands and the delete never. In worlds with operators some
// tasks that are done lie in quarantine in the end, as after a redrive during which its operator died.
// All of it is redriven, interrupted, and redriven again when the runs have ended, or are over
// and forgotten. None of those tasks is done again.

// simLeftMost is how many tasks are left in quarantine, simLeftOf how many of one run.
const simLeftMost, simLeftOf = 8, 2

// simInterrupted is the operator whose redrive is interrupted. simLeftFor is the cause for which
// those tasks are in quarantine; no processor of a world says it.
const (
	simInterrupted = "x94"
	simLeftFor     = codec.ReasonAge
)

// redrove notes that a queue has taken a task of that redrive: from here on it is known.
func (w *simWorld) redrove(h codec.Header) {
	for n := range h.Tasks.All() {
		if key := (simKey{h.Run, h.Segment, n}); w.judge.left[key] {
			w.judge.known[key] = true
			w.counts["redrives of done tasks that were interrupted"]++
		}
	}
}

// redrivesAreKnown plays that in the end of a world.
func (w *simWorld) redrivesAreKnown(ctx context.Context) bool {
	if w.plan.delivery != pump.Once || len(w.rolls) > 0 || w.runsAreBack() ||
		!slices.ContainsFunc(w.plan.steps, func(s simStep) bool { return s.verb == "operate" }) {
		return true
	}
	w.mu.Lock()
	clear(w.judge.shut) // what is redriven of a closed run with a rest is handled
	w.mu.Unlock()
	runs, left, err := w.leaves(ctx)
	if err != nil {
		w.wrongf("tasks that are done could not be left in quarantine: %v", err)
		return false
	}
	if left == 0 {
		return true
	}
	w.countAll("tasks left in quarantine that are done", len(w.judge.left))
	recovery := w.recovery
	defer func() { w.recovery = recovery }()
	unanswered := w.sim.Inject(azsim.Rule{
		Operations: []string{"DeleteMessage"}, Object: workload.PoisonQueue("work"), Instance: simInterrupted, Fault: azsim.FailBefore,
	})
	w.start(simInterrupted, "redrive")
	good := w.recovers(ctx)
	unanswered.Remove()
	if !good {
		return false
	}
	if !w.reached() {
		return true // what was never redriven may be done when it is
	}
	over := w.roll(2, "over", 0) == 0
	for _, r := range runs {
		if err := w.endRun(ctx, r, over); err != nil {
			w.wrongf("a run could not be ended: %v", err)
			return false
		}
	}
	waits.Wait(ctx, simClosing)
	w.start("x95", "redrive")
	if !w.recovers(ctx) {
		return false
	}
	w.start("x96", "drop") // what was kept, as it may be done
	return w.recovers(ctx)
}

// reached reports whether a redrive of each task that was left has been interrupted.
func (w *simWorld) reached() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.judge.known) == len(w.judge.left)
}

// leaves puts done tasks of runs that live, or have ended, into quarantine, and gives these runs.
func (w *simWorld) leaves(ctx context.Context) (of []workload.Run, left int, err error) {
	runs, err := w.runs(ctx)
	if err != nil {
		return nil, 0, err
	}
	runs = slices.DeleteFunc(runs, func(r workload.Run) bool {
		return r.State == workload.RunClosed || r.State == workload.RunSealed || r.Over || r.Drop
	})
	slices.SortFunc(runs, func(a, b workload.Run) int { return workload.CompareRuns(a.ID, b.ID) })
	records := make([]*ledger.SegmentRecord, w.plan.segments)
	for r, err := range ledger.ReadRecord(ctx, w.openTable(), "work", w.plan.segments) {
		if err != nil {
			return nil, 0, err
		}
		records[r.Segment] = r
	}
	for _, r := range runs {
		of = append(of, r)
		for _, key := range w.doneOf(r, records) {
			if left == simLeftMost {
				break
			}
			if err := w.leave(ctx, key, left); err != nil {
				return nil, 0, err
			}
			left++
		}
	}
	return of, left, nil
}

// doneOf are some tasks of a run that are done and recorded.
func (w *simWorld) doneOf(r workload.Run, records []*ledger.SegmentRecord) (keys []simKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, task := range w.tasks {
		if key.run == r.ID && task.effects > 0 && records[key.segment] != nil && records[key.segment].Done(r.ID, key.n) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b simKey) int { return strings.Compare(a.String(), b.String()) })
	return keys[:min(len(keys), simLeftOf)]
}

// leave puts a task into quarantine, as it was when it was put there first.
func (w *simWorld) leave(ctx context.Context, key simKey, i int) error {
	w.mu.Lock()
	task := w.tasks[key]
	w.judge.left[key] = true
	w.mu.Unlock()
	b := codec.NewBuilder(0)
	b.Reset(codec.Header{Workload: "work", Run: key.run, Segment: key.segment, MapVersion: 1})
	body := task.source.body(task.record)
	if fits, err := b.Add(codec.Task{N: key.n, Key: []byte(task.source.key(task.record)), ID: []byte(body), Body: []byte(body)}); err != nil || !fits {
		return fmt.Errorf("task %v does not fit: %w", key, err)
	}
	text, _, err := b.Seal(nil)
	if err != nil {
		return err
	}
	cause := codec.Cause{Reason: simLeftFor, Instance: "p1", Attempts: simAttempts, Last: w.began}
	if text, err = codec.Quarantined(text, cause); err != nil {
		return err
	}
	work, err := workload.Load(ctx, w.openTable(), "work")
	if err != nil {
		return err
	}
	accounts := slices.Sorted(maps.Keys(work.Map.Accounts())) // a redrive asks these
	q := w.account(accounts[i%len(accounts)]).Queue(workload.PoisonQueue("work"))
	if _, err = q.Put(ctx, text, 0); storage.Is(err, storage.Missing) {
		w.mu.Lock()
		delete(w.judge.left, key) // the account was removed, or nothing was ever in quarantine there
		w.mu.Unlock()
		return nil
	}
	return err
}

// endRun ends a run, and if it is to be over has it forgotten.
func (w *simWorld) endRun(ctx context.Context, r workload.Run, over bool) error {
	runs := workload.NewRuns(w.openTable(), "work")
	if err := runs.End(ctx, r.ID, false, "by the world"); err != nil {
		return err
	}
	if !over {
		return nil
	}
	w.count("runs that were over when a redrive was made again")
	return runs.Over(ctx, r.ID, "")
}
