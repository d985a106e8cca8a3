package pump

import (
	"context"
	"maps"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/control"
)

// readRecords reads the ledger as it stands in the control table.
func (w *simWorld) readRecords(ctx context.Context, v *simVerdict) bool {
	v.records = make([]*control.SegmentRecord, simSegments)
	for r, err := range control.ReadRecord(ctx, w.openTable(), "work", simSegments) {
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
func (w *simWorld) checkHands(runs []control.Run) {
	if w.plan.delivery != Once {
		return
	}
	for _, p := range w.all {
		if p.processor == nil || p.over() {
			continue
		}
		r := p.processor.running.Load()
		if r == nil || r.recorder == nil || r.member.Load() == nil {
			continue
		}
		for _, run := range runs {
			if run.State == control.RunSealed {
				w.checkHand(p, r, run)
			}
		}
	}
}

func (w *simWorld) checkHand(p *simProcess, r *processing, run control.Run) {
	ledger := r.recorder.ledger
	for segment, n := range run.Sealed {
		h, held := r.member.Load().hold(uint32(segment))
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

// checkRecord judges what the ledger says of a task of a sealed run. Of a closed run it may have forgotten it.
func (w *simWorld) checkRecord(r control.Run, key simKey, v *simVerdict) {
	record := v.records[key.segment]
	if record == nil {
		w.wrongf("lost: segment %d has no ledger", key.segment)
		return
	}
	if done, quarantined := record.Counts(r.ID); r.State == control.RunClosed && done+quarantined == 0 {
		return
	}
	task := w.tasks[key]
	switch {
	case task == nil: // said already
	case !record.Settled(r.ID, key.n):
		w.wrongf("lost: %v is not recorded; it was begun %d times and done %d times", key, task.begun, task.effects)
	case record.Done(r.ID, key.n) == (len(v.poison[key]) > 0):
		w.wrongf("%v is recorded as done: %v; in quarantine it is for %v", key, record.Done(r.ID, key.n), v.poison[key])
	}
}

// checkRecords judges the ledger by what was done, and by nothing else: it holds no task of a run that
// is none, none that its source does not have, and none that was not done.
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
			for n := range source.tasks[record.Segment] {
				key := simKey{id, record.Segment, uint64(n)}
				task := w.tasks[key]
				switch {
				case record.Done(id, key.n):
					done--
					if task == nil || task.effects == 0 {
						w.wrongf("lost: %v is recorded as done and never was", key)
					}
				case record.Settled(id, key.n):
					quarantined--
					if len(v.poison[key]) == 0 {
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
func (w *simWorld) checkStates(runs []control.Run, v *simVerdict) {
	reducer := (&simProcess{world: w}).reducer().(reducing).state()
	for segment := range uint32(simSegments) {
		want := simSums{}
		for _, r := range runs {
			w.addDone(want, r, segment, v)
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
		got := *loaded.(*simSums)
		if w.plan.delivery == Once {
			if !maps.Equal(got, want) {
				w.wrongf("the state of segment %d is %v and not %v", segment, got, want)
			}
			continue
		}
		for key, s := range want {
			if got[key].Count < s.Count {
				w.wrongf("lost: the state of segment %d has %d of key %q and not %d", segment, got[key].Count, key, s.Count)
			}
		}
	}
}

// addDone adds what the tasks of a run that are done come to.
func (w *simWorld) addDone(sums simSums, r control.Run, segment uint32, v *simVerdict) {
	source := v.runs[r.ID]
	for n, i := range source.tasks[segment] {
		sealed := r.State == control.RunSealed || r.State == control.RunClosed
		done := sealed && !source.condemned(i) && len(v.poison[simKey{r.ID, segment, uint64(n)}]) == 0
		if record := v.records[segment]; w.plan.delivery == Once && record != nil && r.State != control.RunClosed {
			done = record.Done(r.ID, uint64(n))
		}
		if done {
			s := sums[source.key(i)]
			sums[source.key(i)] = simAmount{s.Count + 1, s.Sum + source.sum(i)}
		}
	}
}
