package quarantine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// A run of a name has the id of the former one, and its tasks have the same numbers. In these tests all
// tasks of the former one are in quarantine, and those of the later one are sent at the first moment at
// which the name is free.
func sentAgain(t *testing.T, retention time.Duration, meanwhile func(w *testworld.World)) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Retention = retention
		const tasks = 20
		mended, source := false, &testworld.ListSource{Print: "a", N: tasks}
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
			if mended {
				return nil
			}
			return pump.Reject(testworld.ErrFlop)
		}}
		made := func() *distributor.Distributor {
			return testworld.Made(w, distributor.New, "d", source, distributor.Options{Name: "weekly"})
		}
		closed := func(run pump.RunID) {
			w.Within(5*time.Minute, "it is closed", func() bool { return w.RunRow(run).State == workload.RunClosed })
		}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		first, err := made().Run(t.Context())
		proof.Must(t, err)
		closed(first.Run)
		time.Sleep(retention)
		w.Within(time.Hour, "its row goes", func() bool {
			time.Sleep(time.Minute)
			_, err := w.AllRuns().Get(t.Context(), first.Run)
			return err != nil
		})
		mended, source = true, &testworld.ListSource{Print: "b", N: tasks, Pace: time.Second}
		var again distributor.Summary
		w.Within(2*time.Hour, "the name is free", func() bool {
			time.Sleep(time.Minute)
			d := testworld.Start(t, made())
			time.Sleep(3 * time.Second)
			if row, err := w.AllRuns().Get(t.Context(), first.Run); err == nil && row.State == workload.RunOpen {
				meanwhile(w)
			}
			err := d.Wait()
			again = d.Summary
			return err == nil
		})
		proof.Same(t, again.Run, first.Run, "the later run")
		closed(again.Run)
		p.End()
		h.Expect(t, tasks, 2*tasks)
	})
}

// What is left of the former run in quarantine is not taken for a task of the later one: it stays, or is
// dropped alone.
func TestWhatIsLeftOfAFormerRunOfANameSpoilsNoLaterOne(t *testing.T) {
	sentAgain(t, 10*time.Minute, func(w *testworld.World) {
		for _, outcome := range []string{quarantine.Kept, quarantine.Dropped} {
			q, left := quarantineOf(w), w.Count("accounta", workload.PoisonQueue("work"))
			move := q.Redrive
			if outcome == quarantine.Dropped {
				move = q.Drop
			}
			proof.Must(w.T, move(w.T.Context(), quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
				if left--; o.Outcome != outcome || !strings.Contains(o.Problem, "a former run of this name") {
					w.T.Errorf("%s: %q, want %s", o.Outcome, o.Problem, outcome)
				}
				return true
			}))
			proof.Same(w.T, left, 0, "messages were not visited")
		}
	})
}

// No ledger takes tasks of the later run for those in quarantine of the former one.
func TestANameIsTakenAsLongAsTheLedgerKnowsItsRun(t *testing.T) {
	proof.Only(t)
	sentAgain(t, 77*time.Minute, func(*testworld.World) {})
}
