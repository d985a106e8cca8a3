package closing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// P3.7: what is in quarantine may come back, and an open run may get more.
func TestOnlyRunsThatAreDoneAreClosed(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		done, poisoned, behind, divided, open := w.SealedRun(3, 2), w.SealedRun(3, 2), w.SealedRun(3, 2), w.SealedRun(3, 2), w.NewRun()
		sets := func(a, b uint64) map[uint32]codec.NSet { return testworld.Below([]uint64{a, b}) }
		s.Record(done.ID, sets(3, 2), nil)
		s.Record(poisoned.ID, sets(2, 2), map[uint32]codec.NSet{0: codec.MakeNSet(2)})
		s.Record(behind.ID, sets(3, 1), nil)
		s.Record(divided.ID, sets(2, 3), nil) // as many as were sealed, and others
		s.Record(open, sets(3, 2), nil)
		c := w.Closer("c")
		proof.Same(t, proof.ErrOf(c.Pass(t.Context())) == nil, false, "more is done than sent")
		for what, want := range map[pump.RunID]workload.RunState{
			done.ID: workload.RunClosed, poisoned.ID: workload.RunClosed, behind.ID: workload.RunSealed, divided.ID: workload.RunSealed, open: workload.RunOpen,
		} {
			proof.Same(t, w.RunRow(what).State, want, "a run")
		}
		// The missing tasks are done, and the open run is sealed.
		s.Record(behind.ID, sets(3, 2), nil)
		f := queues.Open(&w.Cfg)
		counts := make([]uint64, w.Segments())
		counts[0], counts[1] = 3, 2
		proof.Must(t, workload.NewRuns(f.Control, "work").Seal(t.Context(), open, counts))
		_, _ = c.Pass(t.Context())
		for _, id := range []pump.RunID{behind.ID, open} {
			proof.Same(t, w.RunRow(id).State, workload.RunClosed, "a run")
		}
	})
}

// A run whose row is not among those that live is found by what the ledger has of it.
func TestARunThatIsNotAmongThoseThatLiveIsClosedToo(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		run := w.SealedRun(2)
		s.Record(run.ID, testworld.Below([]uint64{2}), nil)
		c := w.Closer("c")
		live, err := c.Runs.Live(t.Context())
		proof.Must(t, err)
		proof.Must(t, c.Runs.Forget(t.Context(), live)) // as if they had never been there
		for range 3 {
			testworld.MustPass(t, c)
			time.Sleep(closing.SumsEvery)
		}
		proof.Same(t, w.RunRow(run.ID).State, workload.RunClosed, "the run")
	})
}

func TestARunWithoutTasksIsClosedAtOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Same(t, testworld.Distributed(w, distributor.New, 0).State, workload.RunClosed, "the run")
	})
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		row := testworld.Distributed(w, distributor.New, 0)
		proof.Same(t, row.State, workload.RunSealed, "at-least-once, and no row says what is done")
	})
}

// One of several processors does it when the distributor is gone.
func TestTheFirstProcessorClosesRuns(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := testworld.Distributed(w, distributor.New, 500)
		var all []*testworld.Started[*processor.Processor, processor.Summary]
		var h testworld.Seen
		for i := range 3 {
			all = append(all, testworld.Begun(w, processor.New, fmt.Sprintf("p%d", i), &h, processor.Options{}))
		}
		time.Sleep(3 * closing.Every)
		proof.Same(t, w.RunRow(run.ID).State, workload.RunClosed, "the run")
		for _, s := range all {
			s.End()
		}
		h.Expect(t, 500, 500)
		proof.Same(t, w.Logged("runs are done and closed"), 1, "it was closed … times")
	})
}

// While a segment's ledger cannot be read, it is not known whether that knows a closed run. The
// other segments go on forgetting: a list of all runs that were closed since has room for no more
// of them in the end. What the segment knows after all is seen when it can be read again.
func TestADamagedLedgerKeepsNoClosedRunAlive(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		c := w.Closer("c")
		both, one := w.SealedRun(2, 2), w.SealedRun(2)
		s.Record(both.ID, testworld.Below([]uint64{2, 2}), nil)
		s.Record(one.ID, testworld.Below([]uint64{2}), nil)
		testworld.MustPass(t, c)
		testworld.MustPass(t, c)
		head, err := w.Table().Read(t.Context(), "work.ledger.00", "head.0001")
		proof.Must(t, err)
		w.DamageHead("head.0001")
		if err := s.Ledger.Prune(t.Context(), []pump.RunID{both.ID, one.ID}); err == nil {
			t.Fatal("a damaged head was written over")
		}
		listed := func(want int) {
			t.Helper()
			time.Sleep(2 * time.Minute) // the ledger is looked at
			for range 2 {
				_, _ = c.Pass(t.Context())
			}
			list, err := c.Runs.Prunable(t.Context())
			if err != nil || len(list.Closed) != want {
				t.Errorf("%d runs are listed, want %d: %v", len(list.Closed), want, err)
			}
			if live, err := c.Runs.Live(t.Context()); err != nil || len(live) != 1+want { // the world's own
				t.Errorf("%d runs live, want %d: %v", len(live), 1+want, err)
			}
		}
		listed(0)
		head.ETag = ""
		proof.Must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: head})))
		listed(1)
	})
}

// What waits for processors that are not there is looked at as seldom as if there were nothing.
func TestACloserWithoutProcessorsLooksSeldom(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := w.SealedRun(3, 2)
		w.Scribe().Record(run.ID, testworld.Below([]uint64{3, 2}), nil)
		c := w.Closer("c")
		passes, far := 0, c.Far
		c.Far = func(ctx context.Context) (closing.Horizon, error) {
			passes++
			return far(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c.Keep(ctx, waits.Jitter("c"), func(context.Context) bool { return true })
		proof.Same(t, w.RunRow(run.ID).State, workload.RunClosed, "the run")
		if passes < 30 || passes > 60 {
			t.Errorf("%d passes in ten minutes, want one in 15 s", passes)
		}
	})
}

// A1: closing keeps pace with any rate at which runs are made, and a look costs nothing for what
// is done with.
func TestOnePassClosesEveryRunThatIsDone(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		const runs = 200
		var ids []pump.RunID
		for range runs {
			run := w.SealedRun(2)
			ids = append(ids, run.ID)
			s.Record(run.ID, testworld.Below([]uint64{2}), nil)
		}
		open := w.SealedRun(2)
		s.Record(open.ID, testworld.Below([]uint64{1}), nil)
		c := w.Closer("c")
		if !testworld.MustPass(t, c) {
			t.Error("what was closed is still in the ledger, and nothing more is said to be done")
		}
		for _, id := range ids {
			proof.Same(t, w.RunRow(id).State, workload.RunClosed, "a run after one pass")
		}
		testworld.MustPass(t, c) // lists them for the owners of segments
		list, err := c.Runs.Prunable(t.Context())
		if err != nil || len(list.Closed) != runs {
			t.Fatalf("%d runs are listed, %v", len(list.Closed), err)
		}
		proof.Must(t, s.Ledger.Prune(t.Context(), list.Closed))
		testworld.MustPass(t, c)
		testworld.MustPass(t, c)
		// The world's own open run, and the one that lacks a task.
		if live, err := c.Runs.Live(t.Context()); err != nil || len(live) != 2 || len(c.Known) != 2 {
			t.Errorf("%d runs live, %d are known, %v", len(live), len(c.Known), err)
		}
		before := w.Sim.Stats().Count("", "GetEntity")
		testworld.MustPass(t, c)
		proof.Same(t, w.Sim.Stats().Count("", "GetEntity"), before, "reads, though nothing has changed")
	})
}

func TestARunIsStuckWhenTheQueuesAreEmptyAndTasksAreMissing(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 500), w.Scribe()
		lost := fullSegment(t, run.Sealed, 3)
		done := testworld.Below(run.Sealed)
		done[lost] = codec.MakeNSet(1)
		s.Record(run.ID, done, nil)
		began := time.Now()
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		time.Sleep(15 * time.Minute) // its messages are there: somebody may get them yet
		if g.over() {
			t.Fatalf("it gave up while messages were left: %v", g.err)
		}
		if n := w.Logged("messages are left in the queues"); n < 10 || n > 15 {
			t.Errorf("in 15 minutes the log said %d times why nothing happens", n)
		}
		w.Empty()
		emptied := time.Now()
		<-g.done
		stuck, ok := errors.AsType[*pump.StuckError](g.err)
		if !ok || g.State != pump.RunStuck || stuck.Missing != run.Sealed[lost]-1 || len(stuck.Lacking) != 1 || g.Lacking[0] != (pump.SegmentLack{Segment: lost, Tasks: run.Sealed[lost] - 1}) {
			t.Fatalf("%+v, %v", g.Completion, g.err)
		}
		for _, want := range []string{"distributor runs repair " + run.ID.String(), fmt.Sprintf("%d of segment %d", run.Sealed[lost]-1, lost)} {
			proof.Says(t, stuck, want)
		}
		if took := time.Since(emptied); took < closing.StuckAfter || took > 2*closing.StuckAfter {
			t.Errorf("it took %v of %v", took, time.Since(began))
		}
	})
}

// Other programs' queues hold no task of a run, however many messages they put there.
func TestARunIsStuckWhateverWaitsInForeignQueues(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, _ := testworld.Distributed(w, distributor.New, 50), w.Scribe()
		proof.Must(t, w.Queue("accounta", "orders").Create(t.Context()))
		cfg := w.Operator()
		cfg.Accounts[0].Foreign = []string{"orders"}
		proof.Must(t, proof.ErrOf(accounts.Add(t.Context(), cfg, "accounta")))
		w.PutText("accounta", "orders", []byte("{}"))
		w.Empty()
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{Timeout: time.Hour})
		<-g.done
		if _, ok := errors.AsType[*pump.StuckError](g.err); !ok || g.State != pump.RunStuck {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
	})
}

// A processor at work may have what is missing: an approximate count of zero, once, says nothing.
func TestARunIsNotStuckWhileAnythingIsRecordedOrAQueueMayHoldSomething(t *testing.T) {
	t.Run("something is recorded", func(t *testing.T) {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			run, s := testworld.Distributed(w, distributor.New, 500), w.Scribe()
			w.Empty()
			lost := fullSegment(t, run.Sealed, 3)
			g := wait(w, t.Context(), run.ID, pump.WaitOptions{StuckAfter: 30 * time.Second})
			done := testworld.Below(run.Sealed)
			done[lost] = codec.NSet{}
			s.Record(run.ID, done, nil)
			for n := range run.Sealed[lost] {
				time.Sleep(50 * time.Second) // nearly too long, each time
				if g.over() {
					t.Fatalf("it gave up before task %d: %v", n, g.err)
				}
				s.Record(run.ID, map[uint32]codec.NSet{lost: codec.MakeNSet(n)}, nil)
			}
			if <-g.done; g.err != nil || g.Done != 500 {
				t.Errorf("%+v, %v", g.Completion, g.err)
			}
		})
	})
	t.Run("an account is dark", func(t *testing.T) {
		testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			run := testworld.Distributed(w, distributor.New, 100)
			w.Empty()
			w.Fault(azsim.Rule{Instance: "waiter", Account: "accountb", Service: "queue", Fault: azsim.FailBefore})
			g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
			time.Sleep(10 * closing.StuckAfter)
			if g.over() || w.Logged("whether messages are left could not be learned") == 0 {
				t.Errorf("it gave up: %v", g.err)
			}
		})
	})
	t.Run("a queue is not always empty", func(t *testing.T) {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			run := testworld.Distributed(w, distributor.New, 100)
			w.Empty()
			g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
			for range 20 { // another run's, or one that is passed on
				time.Sleep(closing.StuckAfter / 2)
				w.Put("accounta", "work-01", 1, 1)
				time.Sleep(closing.StuckAfter / 2)
				w.Empty()
			}
			if g.over() {
				t.Errorf("it gave up: %v", g.err)
			}
		})
	})
}
