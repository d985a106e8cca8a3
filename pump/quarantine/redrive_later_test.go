package quarantine_test

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/status"
)

// A task that was given up after its budget of "not now" has one again when it is redriven: an
// endpoint that is back refuses some of what comes at once.
func TestARedrivenTaskHasABudgetOfNotNowAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		away, poison := time.Now().Add(4*time.Hour), workload.PoisonQueue("work")
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
			if time.Now().Before(away) {
				return pump.Busy(time.Minute, testworld.ErrFlop)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Retry: pump.RetryPolicy{MaxBusy: 2 * time.Hour}})
		time.Sleep(3 * time.Hour)
		proof.Same(t, w.Count("accounta", poison), 1, "messages in quarantine")
		redrive(w, quarantine.Filter{}, quarantine.Options{})
		time.Sleep(90 * time.Minute)
		if s := p.End(); s.Handled != 1 || s.Quarantined != 1 || w.Count("accounta", poison) != 0 {
			t.Errorf("%d are in quarantine, %+v", w.Count("accounta", poison), s)
		}
	})
}

// A task that comes after its run has ended is not lost: it is in quarantine, and redriven it is
// done, once.
func TestALateTaskOfAnEndedRunIsQuarantinedAndDoneOnceWhenItIsRedriven(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.PutTasks(3, 0, 1)
		w.Within(time.Minute, "they are done", func() bool { return h.Tasks() == 2 })
		proof.Must(t, w.AllRuns().End(t.Context(), w.Run, false, "by hand"))
		time.Sleep(time.Minute)
		w.PutTasks(3, 0, 1)    // copies of what is done
		w.PutTasks(3, 1, 2, 3) // one copy among what is not
		w.Within(time.Minute, "what is not done is in quarantine", func() bool { return len(w.Condemned()) == 2 && w.Left() == 0 })
		for _, m := range listed(w, quarantine.Filter{}) {
			if m.Reason != codec.ReasonRunEnded || m.Tasks != 2 || m.Problem != "" {
				t.Errorf("%+v", m)
			}
		}
		time.Sleep(2 * time.Hour) // it is over by now
		if row := w.RunRow(w.Run); !row.Over {
			t.Errorf("%+v", row)
		}
		redrive(w, quarantine.Filter{}, quarantine.Options{})
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

// A run that only has quarantine left closes; redrive and drop go on as before.
func TestARunWithTasksInQuarantineClosesAndTheyAreRedrivenAndDroppedAsBefore(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		good := false
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N >= 2 && !good {
				return pump.Reject(testworld.ErrFlop)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.PutTasks(3, 0, 1, 2)
		w.PutTasks(3, 3)
		counts := make([]uint64, w.Segments())
		counts[3] = 4
		proof.Must(t, w.AllRuns().Seal(t.Context(), w.Run, counts))
		time.Sleep(2 * time.Minute)
		if row := w.RunRow(w.Run); row.State != workload.RunClosed || row.Rest != 2 {
			t.Fatalf("%+v", row)
		}
		exact := func(done, quarantined uint64) {
			t.Helper()
			all := w.Status(status.Options{}).Runs
			if e := all[0].Exact; len(all) != 1 || e.Done != done || e.Quarantined != quarantined || *e.Remaining != 0 {
				t.Errorf("%+v of %+v", e, all)
			}
		}
		exact(2, 2)
		if live, err := w.AllRuns().Live(t.Context()); err != nil || len(live) != 0 {
			t.Errorf("%+v live, %v", live, err)
		}
		w.PutTasks(3, 0, 1, 2, 3) // copies
		good = true
		redrive(w, quarantine.Filter{Limit: 1}, quarantine.Options{})
		time.Sleep(time.Minute)
		exact(3, 1)
		drop(w, quarantine.Filter{})
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
