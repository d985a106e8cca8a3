package worlds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// simRoll is a partition of the ledger that came back as it was.
type simRoll struct {
	rows *azsim.Snapshot
	from uint32          // the first of its segments; there are 64
	done map[simKey]bool // what had an effect in it by then
}

// checkBuried judges the runs that ended as never begun.
func (w *simWorld) checkBuried(runs []workload.Run) {
	for _, r := range runs {
		if r.State != workload.RunBroken || r.Note != neverBegun {
			continue
		}
		for key := range w.tasks {
			if key.run == r.ID {
				w.wrongf("run %v was ended as one that never began, and tasks of it were put", r.ID)
				break
			}
		}
	}
}

// rollBack does to rows what a fail-over to another region or a restore does.
func (w *simWorld) rollBack(s simStep) {
	account, n := w.sim.Accounts()[0], 0
	switch s.verb {
	case "keep":
		w.kept[s.who] = w.sim.Snapshot(account, row.TableName, s.who)
		return
	case "back":
		kept := w.kept[s.who]
		if kept == nil {
			return
		}
		was := w.sim.Snapshot(account, row.TableName, s.who)
		n = kept.Restore()
		if s.who == "work.runs" {
			w.noteRuns(was)
		}
		var partition uint32
		if _, number, is := strings.Cut(s.who, ".ledger."); is {
			if _, err := fmt.Sscanf(number, "%d", &partition); err != nil {
				panic(err) // the plan's own
			}
			w.rolled(kept, 64*partition)
		}
	case "lose":
		partition, of := "work", s.who
		if strings.HasPrefix(of, "work.") {
			partition, of, _ = strings.Cut(of, "/")
		}
		was := w.sim.Snapshot(account, row.TableName, partition)
		if s.who == simNamedRow {
			w.mu.Lock()
			of = cmp.Or(w.namedRow, "not yet there")
			w.mu.Unlock()
		}
		n = w.sim.DropRows(account, row.TableName, partition, func(row string) bool { return strings.HasPrefix(row, of) })
		if s.who == simNamedRow && n > 0 {
			w.noteRuns(was)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[simWent+s.who] += n; s.who == simClaims {
		w.coordinated.doubts(0)
	}
	w.counts["met "+simMetRows] += n
}

func (w *simWorld) rolled(rows *azsim.Snapshot, from uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &simRoll{rows, from, map[simKey]bool{}}
	for key, task := range w.tasks {
		if task.effects > 0 && key.segment >= from && key.segment < from+64 {
			r.done[key] = true
		}
	}
	w.rolls = append(w.rolls, r)
}

// remembers has put again what was forgotten, as people are told to do then: by a repair if the
// ledger forgot it, and by a redrive of tasks in quarantine as of unknown runs if the rows of these
// were gone.
func (w *simWorld) remembers(ctx context.Context) bool {
	order := "repair"
	switch {
	case w.runsAreBack():
		order = "redrive"
	case len(w.rolls)+len(w.perished)+len(w.lost) == 0:
		return true
	}
	waits.Wait(ctx, simClosing) // what is in hand is recorded, or is not
	w.start("x97", order)
	recovery := w.recovery
	defer func() { w.recovery = recovery }()
	return w.recovers(ctx)
}

// findForgotten learns which tasks the ledger forgot: those that were done when rows came back, and
// that these rows do not have. It is the end of the world's ledger, which has no other reader left.
func (w *simWorld) findForgotten(ctx context.Context, v *simVerdict) {
	v.forgotten = map[simKey]bool{}
	for _, roll := range w.rolls {
		roll.rows.Restore()
		for r, err := range ledger.ReadRecord(ctx, w.openTable(), "work", w.plan.segments) {
			if err != nil {
				w.wrongf("the rows that came back cannot be read: %v", err)
				return
			}
			for key := range roll.done {
				if key.segment == r.Segment && !r.Settled(key.run, key.n) {
					v.forgotten[key] = true
				}
			}
		}
	}
	w.countAll("tasks that the ledger forgot", len(v.forgotten))
}

// again is how often tasks were done again that the ledger had forgotten.
func (w *simWorld) again(v *simVerdict) (n int) {
	for key := range v.forgotten {
		n += max(0, w.tasks[key].effects-1)
	}
	return n
}

// sameSums compares the state of a segment with the sum of its tasks, of which some may be in it:
// those of closed runs that the ledger has forgotten.
func sameSums(got, want simSums, maybe map[string][]int64) bool {
	for key := range got {
		if _, is := want[key]; !is {
			return false
		}
	}
	for key, all := range want {
		lack := simAmount{all.Count - got[key].Count, all.Sum - got[key].Sum}
		var least, most int64
		for _, sum := range maybe[key] {
			least, most = least+min(sum, 0), most+max(sum, 0)
		}
		switch {
		case lack.Count < 0 || lack.Count > int64(len(maybe[key])), lack.Sum < least || lack.Sum > most, lack.Count == 0 && lack.Sum != 0:
			return false
		}
	}
	return true
}

// noteRuns remembers the runs as they were when their rows came back as they had been. A run whose
// distributor has died stays open until the next distribution ends it, and its tasks are done all
// the same. A run that was made since is gone. A simulator of its own reads the rows. In the
// world's the reading would take time and meet the world's faults: a run that is sealed after its
// row was read, and before the rows come back, would be known as open.
func (w *simWorld) noteRuns(rows *azsim.Snapshot) {
	still := azsim.New(azsim.Config{})
	account := still.Accounts()[0]
	table := openSim(still, account, still.Transport()).Table(row.TableName)
	ctx := context.Background()
	if err := table.Create(ctx); err != nil {
		w.wrongf("the runs cannot be read: %v", err)
		return
	}
	rows.In(still, account, row.TableName).Restore()
	runs, err := workload.NewRuns(table, "work").List(ctx, 1000+w.plan.runs)
	if err != nil {
		w.wrongf("the runs cannot be read: %v", err)
		return
	}
	for i, r := range runs {
		runs[i] = w.asSealed(r) // they may have come back before
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runsWentBack = true
	for _, r := range runs {
		w.before[r.ID] = r
	}
}

// withGone adds the runs whose rows are gone.
func (w *simWorld) withGone(runs []workload.Run) []workload.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, was := range w.before {
		if !slices.ContainsFunc(runs, func(r workload.Run) bool { return r.ID == id }) {
			runs = append(runs, was)
		}
	}
	return runs
}

func (w *simWorld) runsAreBack() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runsWentBack
}

// asSealed gives a run as it was before its row came back. The ledger may have forgotten everything
// of a closed run, whatever the row says now.
func (w *simWorld) asSealed(r workload.Run) workload.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := func(r workload.Run) bool { return r.State == workload.RunSealed || r.State == workload.RunClosed }
	if was := w.before[r.ID]; was.State == workload.RunClosed || over(was) && !over(r) {
		return was
	}
	return r
}

// simUnproven is the time within which a run ends of which the ledger has forgotten everything. It
// is a quarter of the quiet time until a process looks for what was noted of the run, the quiet
// time, half of it in which the queues must be read, and the time for which an operator or a lost
// process may have hidden messages.
const simUnproven = 2*closing.OverAfter + 10*time.Minute

// unprovenEnd waits until no closed run is sealed because its row came back, where processors have
// noted that they did tasks of it and the ledger knows of none. Others may wait for a repair for
// the retention.
func (w *simWorld) unprovenEnd(ctx context.Context) bool {
	if w.plan.delivery != pump.Once || !w.runsAreBack() {
		return true
	}
	for began, first := w.now(), true; ; first = false {
		left, err := w.unproven(ctx)
		switch {
		case err != nil:
			w.wrongf("what is sealed again cannot be learned: %v", err)
			return false
		case len(left) == 0:
			return true
		case w.now()-began > simUnproven:
			w.wrongf("stuck: run %v was closed, is sealed as its row came back, and nothing ends it", left[0])
			return false
		}
		if first {
			w.countAll("runs that were closed and are sealed again", len(left))
		}
		waits.Wait(ctx, 5*time.Minute)
	}
}

func (w *simWorld) unproven(ctx context.Context) (left []codec.RunID, err error) {
	runs, err := w.runs(ctx)
	if err != nil {
		return nil, err
	}
	done := map[codec.RunID]uint64{}
	for r, err := range ledger.ReadRecord(ctx, w.openTable(), "work", w.plan.segments) {
		if err != nil {
			return nil, err
		}
		for _, run := range runs {
			n, _ := r.Counts(run.ID)
			done[run.ID] += n
		}
	}
	for _, r := range runs {
		if r.State != workload.RunSealed || w.asSealed(r).State != workload.RunClosed || done[r.ID] > 0 {
			continue
		}
		tallies, err := workload.Tallies(ctx, w.openTable(), "work", r.ID)
		if err != nil {
			return nil, err
		}
		for _, t := range tallies {
			if t.Handled > 0 {
				left = append(left, r.ID)
				break
			}
		}
	}
	return left, nil
}
