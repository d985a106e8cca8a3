package worlds

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

// fullRuns makes tests of thousands of runs as large as they are meant.
var fullRuns = flag.Bool("runs.full", false, "thousands of runs in the tests of their life")

// A1: 2,400 runs of one task with one key, as fast as they come. Every task is handled within a
// minute of the last, because runs that are done with make room.
func TestThousandsOfRunsOfOneTaskWithOneKeyAreAllHandled(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		runs := 300
		if *fullRuns {
			runs = 2400
		}
		for range runs {
			w.OneTask(7)
			time.Sleep(10 * time.Millisecond)
		}
		w.Within(time.Minute, "all are handled", func() bool { return h.Tasks() >= runs })
		time.Sleep(2 * time.Minute)
		p.End()
		h.Expect(t, runs, runs)
		live, err := w.AllRuns().Live(t.Context())
		if err != nil || len(live) != 1 { // the world's own
			t.Errorf("%d runs live, %v", len(live), err)
		}
		for r, err := range ledger.ReadRecord(t.Context(), w.Table(), w.Cfg.Workload, w.Segments()) {
			if err != nil || len(r.Runs()) > 0 {
				t.Errorf("segment %d keeps %d runs, %v", r.Segment, len(r.Runs()), err)
			}
		}
	})
}

// A1: runs that no process continues never fill a segment for good: under pressure they end within
// minutes.
func TestRunsThatNobodyContinuesMakeRoomInTheirSegment(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.Scribe()
		const each = ledger.MaxLiveRuns / 4 // open and broken ones, together half of the bound
		for i := range 2 * each {
			id := w.ManyRun()
			s.Record(id, map[uint32]codec.NSet{3: codec.MakeNSet(0)}, nil)
			if i%2 == 0 {
				must(t, w.AllRuns().Break(t.Context(), id, "x"))
			}
		}
		c := w.Closer("c")
		began := time.Now()
		for len(s.Ledger.LiveRuns()) > each && time.Since(began) < time.Hour {
			testworld.MustPass(t, c)
			list, err := c.Runs.Prunable(t.Context())
			must(t, err)
			must(t, s.Ledger.Prune(t.Context(), list.Closed, list.Over...))
			time.Sleep(closing.Every)
		}
		if took := time.Since(began); took > 20*time.Minute {
			t.Errorf("it took %v, and %d runs live", took, len(s.Ledger.LiveRuns()))
		}
		if w.Logged("half full or more") == 0 {
			t.Error("nothing is said of the pressure")
		}
	})
}

// The life cycle, seen by the closer: a client that is silent for its patience is taken for gone,
// and after a quiet time its run is over; one that beats is not.
func TestARunWhoseClientIsGoneIsAbandonedAndThenOver(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.Scribe()
		runs := w.AllRuns()
		gone, there := pump.RunID{1}, pump.RunID{2}
		for _, id := range []pump.RunID{gone, there} {
			must(t, runs.Create(t.Context(), workload.Run{ID: id, Mode: "client", Beat: 15 * time.Second}))
			s.Record(id, testworld.Below([]uint64{1}), nil)
		}
		c := w.Closer("c")
		after := func(d time.Duration) workload.RunState {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(closing.Every) {
				if err := runs.Beat(t.Context(), there, workload.Pulse{Every: 15 * time.Second}); err != nil {
					t.Error(err)
				}
				testworld.MustPass(t, c)
			}
			return w.RunRow(gone).State
		}
		if state := after(9 * time.Minute); state != workload.RunOpen {
			t.Errorf("after nine minutes it is %s", state)
		}
		if state := after(4 * time.Minute); state != workload.RunAbandoned {
			t.Errorf("after thirteen minutes it is %s", state)
		}
		if state := after(50 * time.Minute); state != workload.RunAbandoned {
			t.Errorf("within the quiet time it is %s", state)
		}
		after(30 * time.Minute)
		if row := w.RunRow(gone); row.State != workload.RunEnded || !row.Over {
			t.Errorf("after the quiet time: %+v", row)
		}
		if row := w.RunRow(there); row.State != workload.RunOpen {
			t.Errorf("the run of a client that beats is %s", row.State)
		}
		if list, err := runs.Prunable(t.Context()); err != nil || len(list.Over) != 1 || list.Over[0] != gone {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// A task that comes after its run has ended is not lost: it is in quarantine, and redriven it is
// done, once.
func TestALateTaskOfAnEndedRunIsQuarantinedAndDoneOnceWhenItIsRedriven(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		w.PutTasks(3, 0, 1)
		w.Within(time.Minute, "they are done", func() bool { return h.Tasks() == 2 })
		must(t, w.AllRuns().End(t.Context(), w.Run, false, "by hand"))
		time.Sleep(time.Minute)
		w.PutTasks(3, 0, 1)    // copies of what is done
		w.PutTasks(3, 1, 2, 3) // one copy among what is not
		w.Within(time.Minute, "what is not done is in quarantine", func() bool { return len(w.Condemned()) == 2 && w.Left() == 0 })
		for _, m := range w.listed(quarantine.Filter{}) {
			if m.Reason != codec.ReasonRunEnded || m.Tasks != 2 || m.Problem != "" {
				t.Errorf("%+v", m)
			}
		}
		time.Sleep(2 * time.Hour) // it is over by now
		if row := w.RunRow(w.Run); !row.Over {
			t.Errorf("%+v", row)
		}
		w.redrive(quarantine.Filter{}, quarantine.Options{})
		w.Within(time.Minute, "they are done", func() bool { return h.Tasks() == 4 })
		again := func(h *codec.Header) { h.Generation = 1 }
		account, queue := w.Home(3)
		w.PutText(account, queue, w.Text(3, again, 2, 3)) // a copy of what was redriven
		time.Sleep(time.Minute)
		w.PutTasks(3, 0) // and a copy of what was done, of which nothing is known any more
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, 4, 4)
		if n := len(w.Condemned()); n != 1 || w.Left() != 0 {
			t.Errorf("%d in quarantine, %d left", n, w.Left())
		}
	})
}

func TestTasksOfARunThatIsEndedWithDropAreDroppedAndCounted(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		must(t, w.AllRuns().End(t.Context(), w.Run, true, "by hand"))
		p := w.start(w.processor(h, processor.Options{}))
		w.PutTasks(3, 0, 1, 2)
		time.Sleep(time.Minute)
		if s := w.status(status.Options{}); len(s.Runs) != 1 || s.Runs[0].Dropped != 3 || s.Runs[0].State != "ended" {
			t.Errorf("%+v", s.Runs)
		}
		p.End()
		h.Expect(t, 0, 0)
		if len(w.Condemned()) != 0 || w.Left() != 0 {
			t.Errorf("%d in quarantine, %d left", len(w.Condemned()), w.Left())
		}
	})
}

// A run that only has quarantine left closes; redrive and drop go on as before.
func TestARunWithTasksInQuarantineClosesAndTheyAreRedrivenAndDroppedAsBefore(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		good := false
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N >= 2 && !good {
				return pump.Reject(testworld.ErrFlop)
			}
			return nil
		}}
		p := w.start(w.processor(h, processor.Options{}))
		w.PutTasks(3, 0, 1, 2)
		w.PutTasks(3, 3)
		counts := make([]uint64, w.Segments())
		counts[3] = 4
		must(t, w.AllRuns().Seal(t.Context(), w.Run, counts))
		time.Sleep(2 * time.Minute)
		if row := w.RunRow(w.Run); row.State != workload.RunClosed || row.Rest != 2 {
			t.Fatalf("%+v", row)
		}
		exact := func(done, quarantined uint64) {
			t.Helper()
			if e := exactOf(t, w.status(status.Options{}), w.Run); e.Done != done || e.Quarantined != quarantined || *e.Remaining != 0 {
				t.Errorf("%+v", e)
			}
		}
		exact(2, 2)
		if live, err := w.AllRuns().Live(t.Context()); err != nil || len(live) != 0 {
			t.Errorf("%+v live, %v", live, err)
		}
		w.PutTasks(3, 0, 1, 2, 3) // copies
		good = true
		w.redrive(quarantine.Filter{Limit: 1}, quarantine.Options{})
		time.Sleep(time.Minute)
		exact(3, 1)
		w.drop(quarantine.Filter{})
		time.Sleep(time.Minute)
		exact(4, 0)
		p.End()
		h.Expect(t, 4, 5)
		for r, err := range ledger.ReadRecord(t.Context(), w.Table(), w.Cfg.Workload, w.Segments()) {
			if err != nil || len(r.Runs()) > 0 {
				t.Errorf("segment %d keeps %d runs, %v", r.Segment, len(r.Runs()), err)
			}
		}
	})
}

// newest is the run that was begun last.
func (w *world) newest() pump.RunID {
	w.T.Helper()
	all, err := w.AllRuns().List(w.T.Context(), 1)
	if err != nil || len(all) == 0 {
		w.T.Fatal(all, err)
	}
	return all[0].ID
}

// Rows, tallies and rests go after the retention, by the server's clock. From then on a copy has a
// defined end.
func TestAfterTheRetentionNothingIsLeftOfARun(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		var ids []pump.RunID
		for range 20 {
			ids = append(ids, w.OneTask(3))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		for _, id := range ids {
			if row := w.RunRow(id); row.State != workload.RunClosed {
				t.Errorf("a run is %s", row.State)
			}
		}
		time.Sleep(90 * time.Minute)
		all, err := w.AllRuns().List(t.Context(), 100)
		if err != nil || len(all) != 1 {
			t.Errorf("%d runs are left, %v", len(all), err)
		}
		tallies, err := workload.Tallies(t.Context(), w.Table(), w.Cfg.Workload, ids[0])
		if err != nil || len(tallies) != 0 {
			t.Errorf("%v, %v", tallies, err)
		}
		w.Run = ids[0]
		w.PutTasks(3, 0)
		time.Sleep(time.Minute)
		if m := w.listed(quarantine.Filter{}); len(m) != 1 || m[0].Problem != "" {
			t.Errorf("%+v", m)
		}
		p.End()
		h.Expect(t, 20, 20)
	})
}

func TestAnOperatorListsShowsAndEndsRunsByTheBeginningOfTheirIDs(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s, cfg := w.Scribe(), w.Config("operator", 2)
		sealed := w.SealedRun(3)
		s.Record(sealed.ID, testworld.Below([]uint64{2}), nil)
		many := w.ManyRun()
		list, err := runs.List(t.Context(), cfg, "sealed", 10)
		if err != nil || len(list) != 1 || list[0].ID != sealed.ID.String() || *list[0].Tasks != 3 {
			t.Errorf("%+v, %v", list, err)
		}
		if all, err := runs.List(t.Context(), cfg, "", 10); err != nil || len(all) != 3 {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err := runs.List(t.Context(), cfg, "finished", 10); err == nil || !strings.Contains(err.Error(), "is not a state") {
			t.Error(err)
		}
		if i, err := runs.Show(t.Context(), cfg, sealed.ID.String()); err != nil || *i.Done != 2 || i.State != "sealed" {
			t.Errorf("%+v, %v", i, err)
		}
		ids := map[string]string{
			"ab12": "no such run", "xyzw": "0-9 and a-f", "": "4 digits or more", "eE0": "4 digits or more",
			strings.Repeat("0", 32): "is not the id", strings.Repeat("a", 33): "0-9 and a-f",
		}
		for id, want := range ids {
			if _, err := runs.Show(t.Context(), cfg, id); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", id, err)
			}
		}
		i, err := runs.End(t.Context(), cfg, " EE00", true, "ended by me")
		if err != nil || i.State != "ended" || !i.Drop || i.ID != many.String() || i.Note != "ended by me" {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// C12: an id that several runs begin with is refused, and they are named.
func TestABeginningThatSeveralRunsShareNamesThem(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		cfg := w.Config("operator", 2)
		var ids []pump.RunID
		const named = 8
		for range named + 1 {
			ids = append(ids, w.ManyRun())
		}
		_, err := runs.Find(t.Context(), cfg, "ee00")
		ce, ok := errors.AsType[*pump.ConfigError](err)
		if !ok || ce.Field != "run" || !strings.Contains(ce.Problem, ids[0].String()+", "+ids[1].String()) || !strings.Contains(ce.Problem, "and others") {
			t.Errorf("%v", err)
		}
		if strings.Contains(err.Error(), ids[named].String()) {
			t.Errorf("more than %d are named: %v", named, err)
		}
		for _, digits := range []string{ids[3].String(), strings.ToUpper(ids[3].String()) + " "} {
			if id, err := runs.Find(t.Context(), cfg, digits); err != nil || id != ids[3] {
				t.Errorf("%v, %v", id, err)
			}
		}
	})
}

// Where no ledger records what is done no run closes. Rows of sealed and broken runs go all the
// same when no process has met any of their tasks for the retention, and tasks that come later are
// done.
func TestRowsOfRunsGoInAtLeastOnceDeliveryToo(t *testing.T) {
	proof.Only(t)
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		late, retried := w.OneTask(3), pump.RunID{}
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 })
		var ids []pump.RunID
		for range 5 {
			ids = append(ids, w.OneTask(3))
		}
		broken, ended := w.ManyRun(), w.ManyRun()
		must(t, w.AllRuns().Break(t.Context(), broken, "x"))
		must(t, w.AllRuns().End(t.Context(), ended, true, "by hand"))
		retried = w.OneTask(4)
		for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(30 * time.Minute) {
			w.Run = retried
			w.PutTasks(4, 0) // a copy now and then
		}
		left := map[pump.RunID]bool{}
		all, err := w.AllRuns().List(t.Context(), 100)
		for _, r := range all {
			left[r.ID] = true
		}
		if err != nil || len(all) != 3 || !left[ended] || !left[retried] || left[broken] || left[late] || left[ids[0]] {
			t.Errorf("%d runs are left: %+v, %v", len(all), all, err)
		}
		if tallies, err := workload.Tallies(t.Context(), w.Table(), w.Cfg.Workload, late); err != nil || len(tallies) != 0 {
			t.Errorf("%v, %v", tallies, err)
		}
		if live, err := w.AllRuns().Live(t.Context()); err != nil || len(live) != 0 { // the world's own is abandoned
			t.Errorf("%+v live, %v", live, err)
		}
		p.End()

		// One that waited longer than that is done, and a young message of no run is none of ours.
		w.Run = late
		w.PutTasks(3, 9)
		time.Sleep(w.Cfg.Retention + time.Minute)
		w.PutTasks(3, 10)
		p = w.start(w.processor(h, processor.Options{}))
		w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		if h.Times[testworld.Identity(&pump.Task{Run: late, Segment: 3, N: 9})] != 1 || len(w.Condemned()) != 1 {
			t.Errorf("%v; %d in quarantine", h.Times, len(w.Condemned()))
		}
	})
}
