package closing_test

import (
	"flag"
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
	"github.com/queuepump/queuepump/pump/status"
)

// fullRuns makes tests of thousands of runs as large as they are meant.
var fullRuns = flag.Bool("runs.full", false, "thousands of runs in the tests of their life")

// A1: 2,400 runs of one task with one key, as fast as they come. Every task is handled within a
// minute of the last, because runs that are done with make room.
func TestThousandsOfRunsOfOneTaskWithOneKeyAreAllHandled(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
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
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		const each = ledger.MaxLiveRuns / 4 // open and broken ones, together half of the bound
		for i := range 2 * each {
			id := w.ManyRun()
			s.Record(id, map[uint32]codec.NSet{3: codec.MakeNSet(0)}, nil)
			if i%2 == 0 {
				proof.Must(t, w.AllRuns().Break(t.Context(), id, "x"))
			}
		}
		c := w.Closer("c")
		began := time.Now()
		for len(s.Ledger.LiveRuns()) > each && time.Since(began) < time.Hour {
			testworld.MustPass(t, c)
			list, err := c.Runs.Prunable(t.Context())
			proof.Must(t, err)
			proof.Must(t, s.Ledger.Prune(t.Context(), list.Closed, list.Over...))
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
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		runs := w.AllRuns()
		gone, there := pump.RunID{1}, pump.RunID{2}
		for _, id := range []pump.RunID{gone, there} {
			proof.Must(t, runs.Create(t.Context(), workload.Run{ID: id, Mode: "client", Beat: 15 * time.Second}))
			s.Record(id, testworld.Below([]uint64{1}), nil)
		}
		c := w.Closer("c")
		after := func(d time.Duration) workload.RunState {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(closing.Every) {
				proof.Is(t, runs.Beat(t.Context(), there, workload.Pulse{Every: 15 * time.Second}), nil)
				testworld.MustPass(t, c)
			}
			return w.RunRow(gone).State
		}
		proof.Same(t, after(9*time.Minute), workload.RunOpen, "after nine minutes it is")
		proof.Same(t, after(4*time.Minute), workload.RunAbandoned, "after thirteen minutes it is")
		proof.Same(t, after(50*time.Minute), workload.RunAbandoned, "within the quiet time it is")
		after(30 * time.Minute)
		if row := w.RunRow(gone); row.State != workload.RunEnded || !row.Over {
			t.Errorf("after the quiet time: %+v", row)
		}
		proof.Same(t, w.RunRow(there).State, workload.RunOpen, "the run of a client that beats")
		if list, err := runs.Prunable(t.Context()); err != nil || len(list.Over) != 1 || list.Over[0] != gone {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestTasksOfARunThatIsEndedWithDropAreDroppedAndCounted(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		proof.Must(t, w.AllRuns().End(t.Context(), w.Run, true, "by hand"))
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.PutTasks(3, 0, 1, 2)
		time.Sleep(time.Minute)
		if s := w.Status(status.Options{}); len(s.Runs) != 1 || s.Runs[0].Dropped != 3 || s.Runs[0].State != "ended" {
			t.Errorf("%+v", s.Runs)
		}
		p.End()
		h.Expect(t, 0, 0)
		if len(w.Condemned()) != 0 || w.Left() != 0 {
			t.Errorf("%d in quarantine, %d left", len(w.Condemned()), w.Left())
		}
	})
}

// Rows, tallies and rests go after the retention, by the server's clock. From then on a copy has a
// defined end.
func TestAfterTheRetentionNothingIsLeftOfARun(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		var ids []pump.RunID
		for range 20 {
			ids = append(ids, w.OneTask(3))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		for _, id := range ids {
			proof.Same(t, w.RunRow(id).State, workload.RunClosed, "a run")
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
		q, err := quarantine.Open(t.Context(), w.Operator())
		proof.Must(t, err)
		listed := 0
		proof.Must(t, q.List(t.Context(), quarantine.Filter{}, func(m *quarantine.Message) bool {
			listed++
			proof.Same(t, m.Problem, "", m)
			return true
		}))
		proof.Same(t, listed, 1, "messages are in quarantine")
		p.End()
		h.Expect(t, 20, 20)
	})
}

// Where no ledger records what is done no run closes. Rows of sealed and broken runs go all the
// same when no process has met any of their tasks for the retention, and tasks that come later are
// done.
func TestRowsOfRunsGoInAtLeastOnceDeliveryToo(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		late, retried := w.OneTask(3), pump.RunID{}
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 })
		var ids []pump.RunID
		for range 5 {
			ids = append(ids, w.OneTask(3))
		}
		broken, ended := w.ManyRun(), w.ManyRun()
		proof.Must(t, w.AllRuns().Break(t.Context(), broken, "x"))
		proof.Must(t, w.AllRuns().End(t.Context(), ended, true, "by hand"))
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
		p = testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		if h.Times[testworld.Identity(&pump.Task{Run: late, Segment: 3, N: 9})] != 1 || len(w.Condemned()) != 1 {
			t.Errorf("%v; %d in quarantine", h.Times, len(w.Condemned()))
		}
	})
}
