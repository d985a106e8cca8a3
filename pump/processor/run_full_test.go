package processor_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// crowdBeat is how often those of a crowd beat: at a beat a minute the test would last for minutes.
const crowdBeat = 3 * time.Minute

// crowd makes as many runs as a segment may have. Each has a client that beats for as long as alive
// has the run.
func crowd(w *testworld.World, segment uint32, most int) (ids []pump.RunID, alive *sync.Map) {
	w.T.Helper()
	s := w.Scribe()
	alive = &sync.Map{}
	const beat = crowdBeat
	var entries []*ledger.Entry
	for range most {
		id := w.ManyRun()
		proof.Must(w.T, w.AllRuns().Beat(w.T.Context(), id, workload.Pulse{Every: beat}))
		entries = append(entries, &ledger.Entry{Segment: segment, Epoch: 1, Run: id, Done: codec.MakeNSet(0)})
		alive.Store(id, true)
		ids = append(ids, id)
	}
	s.Ledger.Commit(w.T.Context(), entries)
	for _, e := range entries {
		if e.Err != nil {
			w.T.Fatal(e.Err)
		}
	}
	runs := w.AllRuns()
	go func() {
		for waits.Wait(w.T.Context(), beat) {
			alive.Range(func(id, _ any) bool {
				if runs.Beat(w.T.Context(), id.(pump.RunID), workload.Pulse{Every: beat}) != nil {
					alive.Delete(id)
				}
				return true
			})
		}
	}()
	return ids, alive
}

// putOf puts tasks of a run.
func putOf(w *testworld.World, run pump.RunID, segment uint32, ns ...uint64) {
	w.T.Helper()
	account, queue := w.Home(segment)
	w.PutText(account, queue, w.Text(segment, func(h *codec.Header) { h.Run = run }, ns...))
}

// A1: the bound on live runs is back-pressure. Tasks of further runs wait, those of live runs and
// of other segments go on, and the log and the status say what to do. `runs end` makes room for
// one. When the clients are gone the segment heals by itself.
func TestASegmentWithAllTheRunsThatItMayHaveHoldsFurtherOnesBackSaysSoAndHeals(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const segment = 3
		ids, alive := crowd(w, segment, ledger.MaxLiveRuns)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.OneTask(segment)
		w.OneTask(segment)
		putOf(w, ids[0], segment, 0, 1) // 0 is recorded
		w.OneTask(segment + 1)
		w.Within(time.Minute, "what lives goes on, and so do other segments", func() bool { return h.Tasks() == 2 })
		updates := w.Requests("UpdateMessage")
		time.Sleep(3 * time.Minute)
		if h.Tasks() != 2 || w.Left() != 2 {
			t.Errorf("%d tasks are handled and %d messages wait, want 2 and 2", h.Tasks(), w.Left())
		}
		if n := w.Requests("UpdateMessage") - updates; n > 3*2*60/6 {
			t.Errorf("two messages were put back %d times in three minutes", n)
		}
		saysThatItIsFull(w, p, segment)

		proof.Must(t, proof.ErrOf(runs.End(t.Context(), w.Operator(), ids[1].String(), false, "by hand")))
		w.Within(2*closing.OverPressed, "both have room, one after the other", func() bool { return h.Tasks() == 4 && w.Left() == 0 })

		last := w.ManyRun() // fills it again
		proof.Must(t, w.AllRuns().Beat(t.Context(), last, workload.Pulse{Every: crowdBeat}))
		alive.Store(last, true)
		putOf(w, last, segment, 0)
		w.Within(time.Minute, "the last that has room is done", func() bool { return h.Tasks() == 5 && w.Left() == 0 })
		w.OneTask(segment)
		time.Sleep(time.Minute)
		proof.Same(t, h.Tasks(), 5, "the bound does not hold")
		alive.Clear()
		w.Within(closing.SilentBeats*crowdBeat+closing.AbandonPressed+2*closing.OverPressed, "it has room", func() bool { return h.Tasks() == 6 && w.Left() == 0 })
		time.Sleep(3 * closing.OverPressed)
		if s := w.Status(status.Options{}); s.Ledger.Used >= closing.Pressure || len(s.Problems) != 0 {
			t.Errorf("it is healed, and says %+v, %q", s.Ledger, s.Problems)
		}
		if s := p.End(); s.Split != 0 || s.Quarantined != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func saysThatItIsFull(w *testworld.World, p *started, segment uint32) {
	w.T.Helper()
	text := fmt.Sprintf("has %d of %[1]d live runs", ledger.MaxLiveRuns)
	s := w.Status(status.Options{})
	said := strings.Join(s.Problems, "\n")
	if !strings.Contains(said, text) || !strings.Contains(said, "distributor runs list") {
		w.T.Errorf("the status says %q", said)
	}
	if s.Ledger == nil || s.Ledger.Used != 1 || s.Ledger.Segment != segment || s.Ledger.Runs != ledger.MaxLiveRuns {
		w.T.Errorf("the status says %+v", s.Ledger)
	}
	if l := p.Of.State().Ledger; l.Used != 1 || l.Runs != l.RunsMost || l.Segment != segment {
		w.T.Errorf("the processor says %+v", l)
	}
	if n := w.Logged("distributor runs end RUN"); n < 2 || n > 8 {
		w.T.Errorf("the log says %d times in four minutes what to do", n)
	}
}

// A13 in at-least-once, where only a reducer's state fills a segment's ledger: the same holds.
func TestAFullStateHoldsItsTasksBackInAtLeastOnceTooAndOthersGoOn(t *testing.T) {
	proof.Only(t)
	testworld.In(t, workload.Spec{Delivery: string(pump.AtLeastOnce)}, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 1, 2, 3) // 900 KiB
		var calls sync.Map
		p := testworld.Begun(w, processor.New, "p", hoarder(testworld.SomeSegment, &calls).Handler(), processor.Options{})
		w.Within(time.Minute, "three are done", func() bool { return w.Left() == 0 })
		for n := range uint64(4) {
			w.PutTasks(testworld.SomeSegment, 10+n)
		}
		time.Sleep(30 * time.Minute)
		proof.Same(t, w.Left(), 4, "messages wait")
		if s := p.Of.State(); s.StatesFull != 1 || s.StateUsed < 0.8 || !strings.Contains(strings.Join(s.Reasons, "; "), "keep less of each key, or use more segments") {
			t.Errorf("%d full, %.2f used: %q", s.StatesFull, s.StateUsed, s.Reasons)
		}
		w.PutTasks(testworld.SomeSegment, 0) // fits
		w.PutTasks(testworld.SomeSegment+1, 1)
		handled := func(segment uint32, n uint64) bool {
			_, ok := calls.Load(testworld.Identity(&pump.Task{Run: w.Run, Segment: segment, N: n}))
			return ok
		}
		w.Within(time.Minute, "other segments go on", func() bool { return handled(testworld.SomeSegment+1, 1) })
		// Which message is tried at the end of a pause is chance. When the patience is over, each
		// is tried by itself.
		w.Within(statePatience, "what fits is done", func() bool { return handled(testworld.SomeSegment, 0) })
		time.Sleep(time.Hour)
		if s := p.End(); w.Left() != 0 || s.Quarantined != 4 || s.Split != 0 {
			t.Errorf("%d messages left: %+v", w.Left(), s)
		}
		n := 0
		calls.Range(func(_, c any) bool { n += *c.(*int); return true })
		if most := 5 + 12*4; n > most {
			t.Errorf("%d calls of the handler, want %d at most", n, most)
		}
	})
}

// A segment has more rests than half of its bound, and the rows of some of their runs went early (a
// restored table), or came back as they were before the runs were closed. The others go all the
// same.
func TestOldRestsGoThoughARowOfARunIsGone(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		const stay = 300
		const rests = 1200 + stay + 2 // so many more than may stay
		var entries []*ledger.Entry
		var ids []pump.RunID
		for i := range rests {
			id := pump.RunID{0xdd, 14: byte(i >> 8), 15: byte(i)}
			ids = append(ids, id)
			entries = append(entries, &ledger.Entry{Segment: 3, Epoch: 1, Run: id, Quarantined: codec.MakeNSet(0)})
		}
		counts := make([]uint64, w.Segments())
		counts[3] = 1
		for i, id := range ids[1 : stay+2] { // of the first there is no row
			all := w.AllRuns()
			proof.Must(t, all.Create(t.Context(), workload.Run{ID: id}))
			proof.Must(t, all.Seal(t.Context(), id, counts))
			if i < stay {
				continue // it came back
			}
			sum := workload.RunSum{Quarantined: 1, Print: workload.PrintOf(counts)}
			proof.Must(t, all.CloseSummed(t.Context(), id, sum))
		}
		s.Ledger.Commit(t.Context(), entries)
		proof.Must(t, s.Ledger.Prune(t.Context(), ids))
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		time.Sleep(25 * time.Minute)
		p.End()
		for r, err := range ledger.ReadRecord(t.Context(), w.Table(), w.Cfg.Workload, w.Segments()) {
			proof.Must(t, err)
			left := len(r.Rests())
			kept := slices.Contains(r.Rests(), ids[0]) || slices.Contains(r.Rests(), ids[stay+1])
			if r.Segment == 3 && (left != rests-2 || kept) {
				t.Errorf("%d rests are left of %d", left, rests)
			}
		}
		if row := w.RunRow(ids[stay+1]); !row.Over {
			t.Errorf("%+v", row)
		}
	})
}

// A segment has hundreds of rests that are old and hundreds more than it may, and all of them stay.
// Both kinds have their turn in parts. When one of them is through it waits until it is due again,
// though the other one is not: else the two would begin each other anew for hours.
func TestOldRestsThatStayAreLookedForOnceInTenMinutes(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		rests := func(kind byte, n, stay int) {
			var ids []pump.RunID
			var entries []*ledger.Entry
			var rows []storage.Write
			for i := range n {
				id := pump.RunID{kind, 14: byte(i >> 8), 15: byte(i)}
				ids = append(ids, id)
				entries = append(entries, &ledger.Entry{
					Segment: 3, Epoch: 1, Run: id, Quarantined: codec.MakeNSet(0),
				})
				rows = append(rows, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
					Partition: w.Cfg.Workload + ".runs", Row: id.String(),
					Properties: map[string]any{row.FormatProperty: int64(row.Format), "State": 1.5}, // damaged
				}})
			}
			s.Ledger.Commit(t.Context(), entries)
			proof.Must(t, s.Ledger.Prune(t.Context(), ids))
			for batch := range slices.Chunk(rows[:stay], storage.MaxBatch) {
				proof.Must(t, proof.ErrOf(w.Table().Transact(t.Context(), batch)))
				time.Sleep(time.Second) // of a partition's rows in a second
			}
		}
		const aged, crowded = 7 * 64, 8 * 64
		rests(0xaa, aged, aged)
		time.Sleep(8 * 24 * time.Hour)
		rests(0xbb, 1200+crowded, crowded)
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		time.Sleep(9 * time.Minute)
		if n := w.Sim.Stats().Count("", "GetEntity"); n < aged+crowded || n > aged+crowded+200 {
			t.Errorf("%d rows are read one by one, of which %d are of runs that stay", n, aged+crowded)
		}
		p.End()
	})
}
