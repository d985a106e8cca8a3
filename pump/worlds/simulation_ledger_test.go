package worlds

import (
	"context"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// readRecords reads the ledger as it stands in the control table.
func (w *simWorld) readRecords(ctx context.Context, v *simVerdict) bool {
	v.records = make([]*ledger.SegmentRecord, w.plan.segments)
	for r, err := range ledger.ReadRecord(ctx, w.openTable(), "work", w.plan.segments) {
		if err != nil {
			w.wrongf("the ledger cannot be read: %v", err)
			return false
		}
		v.records[r.Segment] = r
	}
	return true
}

// checkHands looks, while the processors still work and nothing is left to do, whether
// the owner of each segment knows of all tasks that they are recorded, and has none in hand (P3.4).
func (w *simWorld) checkHands(runs []workload.Run) {
	if w.plan.delivery != pump.Once {
		return
	}
	for _, p := range w.all {
		hands := p.inHand.Load()
		if p.processor == nil || p.over() || hands == nil {
			continue
		}
		for _, run := range runs {
			if run.State == workload.RunSealed {
				w.checkHand(p, hands, run)
			}
		}
	}
}

// simHands is what a processor knows of the tasks that it has in hand.
type simHands struct {
	ledger *ledger.Ledger
	hold   func(segment uint32) (cluster.Hold, bool)
}

func (w *simWorld) checkHand(p *simProcess, hands *simHands, run workload.Run) {
	ledger := hands.ledger
	for segment, n := range run.Sealed {
		h, held := hands.hold(uint32(segment))
		if !held || n == 0 || !ledger.Fenced(uint32(segment), h.Epoch) {
			continue
		}
		var all codec.NSet
		all.AddRange(0, n)
		b, err := ledger.Begin(uint32(segment), h.Epoch, run.ID, 0, all)
		if err != nil {
			w.wrongf("%s cannot say what it has in hand of segment %d: %v", p, segment, err)
			continue
		}
		ledger.End(uint32(segment), h.Epoch, run.ID, b.Fresh)
		// Closed in this moment, it may have been forgotten already.
		if b.InHand.Len() > 0 || b.Fresh.Len() > 0 && b.Recorded.Len() > 0 {
			w.wrongf("%s has tasks %v of segment %d of run %v in hand at the end, and knows %v as not recorded", p, b.InHand, segment, run.ID, b.Fresh)
		}
	}
}

// checkRecord judges what the ledger says of a task of a sealed run. It may have forgotten the task
// of a closed one.
func (w *simWorld) checkRecord(r workload.Run, key simKey, v *simVerdict) {
	record := v.records[key.segment]
	if record == nil {
		w.wrongf("lost: segment %d has no ledger", key.segment)
		return
	}
	if done, quarantined := record.Counts(r.ID); (r.State == workload.RunClosed || v.gone[r.ID]) && done+quarantined == 0 {
		return // one without a row is forgotten after an hour
	}
	task := w.tasks[key]
	switch {
	case task == nil: // said already
	// It was forgotten in part, and of a closed run nothing is missing.
	case (len(w.rolls) > 0 || w.runsAreBack()) && r.State == workload.RunClosed:
	case !record.Settled(r.ID, key.n):
		w.wrongf("lost: %v is not recorded; it was begun %d times and done %d times", key, task.begun, task.effects)
	case record.Done(r.ID, key.n) && w.touched[key] != "": // a copy may have stayed in quarantine
	case record.Done(r.ID, key.n) == (len(v.poison[key]) > 0):
		w.wrongf("%v is recorded as done: %v; in quarantine it is for %v", key, record.Done(r.ID, key.n), v.poison[key])
	}
}

// checkRecords judges the ledger by what was done, and by nothing else. It holds no task of a run
// that is none, none that its source does not have, and none that was not done.
func (w *simWorld) checkRecords(v *simVerdict) {
	for _, record := range v.records {
		if record == nil {
			continue
		}
		for _, id := range record.Runs() {
			source := v.runs[id]
			if source == nil {
				w.wrongf("the ledger of segment %d has tasks of run %v, which is none", record.Segment, id)
				continue
			}
			done, quarantined := record.Counts(id)
			for n := range w.tasksOf(source, simKey{id, record.Segment, 0}, 0) {
				key := simKey{id, record.Segment, uint64(n)}
				task := w.tasks[key]
				switch {
				case record.Done(id, key.n):
					done--
					if (task == nil || task.effects == 0) && w.touched[key] != "drop" {
						w.wrongf("lost: %v is recorded as done and never was", key)
					}
				case record.Settled(id, key.n):
					quarantined--
					if len(v.poison[key]) == 0 && !(v.ended[id] && w.touched[key] != "") {
						w.wrongf("lost: %v is recorded as in quarantine and is in no poison queue", key)
					}
				}
			}
			if done != 0 || quarantined != 0 {
				w.wrongf("the ledger of segment %d of run %v counts %d and %d tasks more as done and in quarantine than it has", record.Segment, id, int64(done), int64(quarantined))
			}
		}
	}
}

// checkStates compares the reducer's states with what they come to when computed directly: by
// the ledger each task that is done is in it once; without one, once at least.
func (w *simWorld) checkStates(runs []workload.Run, v *simVerdict) {
	reducer := (&simProcess{world: w}).reducer().(ledger.Reducing)
	for segment := range uint32(w.plan.segments) {
		want, maybe := simSums{}, map[string][]int64{}
		for _, r := range runs {
			w.addDone(want, maybe, r, segment, v)
		}
		var stored []byte
		if v.records[segment] != nil {
			stored = v.records[segment].State()
		}
		loaded, err := reducer.Load(stored)
		if err != nil {
			w.wrongf("the state of segment %d: %v", segment, err)
			continue
		}
		got := loaded.(*simState).Sums
		if w.plan.delivery == pump.Once {
			if !sameSums(got, want, maybe) {
				w.wrongf("the state of segment %d is %v and not %v, less what was forgotten of %v", segment, got, want, maybe)
			}
			continue
		}
		for key, s := range want {
			if got[key].Count < s.Count-int64(len(maybe[key])) { // of a run that was ended copies are dropped
				w.wrongf("lost: the state of segment %d has %d of key %q and not %d", segment, got[key].Count, key, s.Count)
			}
		}
	}
}

// letGo reports whether the ledger of a segment says nothing of a run any more.
func (v *simVerdict) letGo(id codec.RunID, segment uint32) bool {
	record := v.records[segment]
	if record == nil {
		return true
	}
	done, quarantined := record.Counts(id)
	return done+quarantined == 0
}

// addDone adds up the done tasks of a run. It adds to maybe those of a closed run that the ledger
// has forgotten and no process has done again.
func (w *simWorld) addDone(sums simSums, maybe map[string][]int64, r workload.Run, segment uint32, v *simVerdict) {
	source := v.runs[r.ID]
	r = w.asSealed(r) // its ledger may have been forgotten since
	for n, i := range w.tasksOf(source, simKey{r.ID, segment, 0}, 0) {
		if i < 0 {
			continue // said already
		}
		sealed := r.State == workload.RunSealed || r.State == workload.RunClosed
		key := simKey{r.ID, segment, uint64(n)}
		done := sealed && !source.condemned(i) && (len(v.poison[key]) == 0 || w.touched[key] != "")
		lost := v.gone[r.ID] && v.letGo(r.ID, segment) // without a row, and forgotten after an hour
		if record := v.records[segment]; w.plan.delivery == pump.Once && record != nil && r.State != workload.RunClosed && !lost {
			done = record.Done(r.ID, uint64(n)) && !source.condemned(i) // a dropped one is done, and nothing came of it
		}
		t := w.tasks[key]
		had := r.State == workload.RunEnded && t != nil && t.effects > 0
		if had && w.touched[key] == "redrive" {
			done = len(v.poison[key]) == 0 // under the identity of a foreign message
		}
		// It ended hours ago; or another copy of a task that is done was dropped, or kept.
		copied := w.plan.delivery == pump.Once && (w.touched[key] != "" || w.judge.left[key])
		over := had && !done && (copied || len(v.poison[key]) == 0 && v.letGo(r.ID, segment))
		if done || over {
			s := sums[source.key(i)]
			sums[source.key(i)] = simAmount{s.Count + 1, s.Sum + source.sum(i)}
			if over || lost || r.State == workload.RunClosed && v.forgotten[key] {
				maybe[source.key(i)] = append(maybe[source.key(i)], source.sum(i))
			}
		}
	}
}
