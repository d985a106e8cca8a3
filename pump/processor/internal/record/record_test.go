package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
)

// soon ends a processor that has nothing to do.
var soon = processor.Options{UntilIdle: 3 * time.Second}

func TestP3OnceHandlesAndRecordsEachTask(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		n := w.Spread(10, 20)
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 10 * time.Second})
		h.Expect(t, n, n)
		w.ExpectEmpty()
		w.ExpectBook(n, 0)
		if s.Recorded != int64(n) || s.Commits == 0 || s.Duplicates != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// At the end of a run results of every partition of the ledger wait, and none that could share
// their commits will come: they are recorded at once. *Of 64 partitions the last waited for a
// sixth of their lease: half the time of a run of ten seconds.*
func TestTheLastResultsOfARunAreRecordedAtOnceInEveryPartition(t *testing.T) {
	sizes := []int{64, 1024, 4096}
	if proof.Less(t) {
		sizes = sizes[:2]
	}
	for _, segments := range sizes {
		t.Run(fmt.Sprint(segments), func(t *testing.T) {
			spec := workload.Spec{Delivery: string(pump.Once), Segments: segments}
			slow := func(c *azsim.Config) { c.Latency = 5 * time.Millisecond }
			testworld.In(t, spec, 2, 1, slow, func(t *testing.T, w *testworld.World) {
				w.PutHome(w.EverySegment(), 2)
				n := 2 * segments
				h := &testworld.Seen{}
				run := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				w.Within(time.Minute, "all are handled", func() bool { return h.Tasks() == n })
				w.Within(time.Second, "all are recorded", func() bool { return w.Left() == 0 })
				run.End()
				h.Expect(t, n, n)
				w.ExpectBook(n, 0)
			})
		})
	}
}

// The scenario of P3.4: copies in envelopes of different cut reach one healthy owner.
func TestP34CopiesOfDifferentCutRunOnce(t *testing.T) {
	for _, batch := range []bool{false, true} {
		for name, first := range map[string][]uint64{"{0} first": {0}, "{0,1} first": {0, 1}} {
			t.Run(name, func(t *testing.T) {
				testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
					second := []uint64{0, 1}
					if len(first) == 2 {
						second = []uint64{0}
					}
					w.PutTasks(testworld.SomeSegment, first...)
					w.PutTasks(testworld.SomeSegment, second...)
					w.PutTasks(testworld.SomeSegment, 0, 1, 2)
					h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 5*time.Second) }}
					var handler pump.Handler = h
					if batch {
						handler = batchOf{h}
					}
					s := testworld.Ran(w, processor.New, "p", handler, processor.Options{UntilIdle: 2 * time.Minute})
					h.Expect(t, 3, 3)
					w.ExpectEmpty()
					w.ExpectBook(3, 0)
					proof.Same(t, s.Duplicates, 3, "duplicates recognised", s)
				})
			})
		}
	}
}

// batchOf hands a batch to a handler, task by task.
type batchOf struct{ *testworld.Seen }

func (b batchOf) HandleBatch(ctx context.Context, tasks []*pump.Task) []error {
	errs := make([]error, len(tasks))
	var g sync.WaitGroup
	for i, task := range tasks {
		g.Go(func() { errs[i] = b.Handle(ctx, task) })
	}
	g.Wait()
	return errs
}

func TestP34WhatIsKnownOfAMessageIsNeverStartedAndTheRestIs(t *testing.T) {
	for _, batch := range []bool{false, true} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			h := &testworld.Seen{}
			var handler pump.Handler = h
			if batch {
				handler = batchOf{h}
			}
			w.PutTasks(testworld.SomeSegment, 1, 3, 5, 1000)
			testworld.Ran(w, processor.New, "p", handler, processor.Options{UntilIdle: 5 * time.Second})
			w.PutTasks(testworld.SomeSegment, 0, 1, 2, 3, 4, 5, 6, 999, 1000, 1001)
			s := testworld.Ran(w, processor.New, "p", handler, processor.Options{UntilIdle: 5 * time.Second})
			h.Expect(t, 10, 10)
			w.ExpectEmpty()
			w.ExpectBook(10, 0)
			if s.Duplicates != 4 || s.Handled != 6 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A message of which some tasks are recorded, some fail and some are in hand goes on as an
// envelope of those that are left, in ascending order.
func TestP41TheRestOfAMessageIsRewrittenWithoutWhatIsRecorded(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 1, 4)
		testworld.Ran(w, processor.New, "p", &testworld.Seen{}, soon)
		account, queue := w.Home(testworld.SomeSegment)
		failing := true
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
			if task.N == 6 {
				return testworld.Pause(ctx, 20*time.Second)
			}
			if failing && task.N%2 == 0 {
				return pump.RetryAfter(30*time.Second, testworld.ErrFlop)
			}
			return nil
		}}
		w.PutTasks(testworld.SomeSegment, 6)
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(5 * time.Second)
		w.PutTasks(testworld.SomeSegment, 0, 1, 2, 3, 4, 5, 6)
		time.Sleep(5 * time.Second)
		w.ExpectBook(4, 0) // 1, 4, 3, 5
		proof.Same(t, w.Count(account, queue), 3, "messages")
		failing = false
		w.Within(2*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		s := p.End()
		for n := range uint64(7) {
			if !w.Book().Records[testworld.SomeSegment].Done(w.Run, n) {
				t.Errorf("%d is not recorded", n)
			}
		}
		if s.Duplicates < 2 {
			t.Errorf("%+v", s)
		}
		for _, task := range h.Order {
			if task.N == 6 && task.Attempt != 1 {
				t.Errorf("a task that was in hand was blamed for it: attempt %d", task.Attempt)
			}
		}
		if h.Times[testworld.Identity(&pump.Task{Run: w.Run, Segment: testworld.SomeSegment, N: 6})] != 1 {
			t.Error("the task that was in hand ran twice")
		}
	})
}

func TestP33QuarantinedTasksAreRecordedWithTheirGeneration(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0, 1, 2, 3)
		bad := true
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if bad && task.N%2 == 1 {
				return pump.Reject(testworld.ErrFlop)
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, soon)
		w.ExpectBook(2, 2)
		w.ExpectEmpty()
		if s.Quarantined != 2 || s.Recorded != 4 {
			t.Errorf("%+v", s)
		}
		// A copy of the same generation is a duplicate; the next generation reopens (P4.4).
		bad = false
		account, queue := w.Home(testworld.SomeSegment)
		w.PutTasks(testworld.SomeSegment, 0, 1)
		w.PutText(account, queue, w.Text(testworld.SomeSegment, func(h *codec.Header) { h.Generation = 1 }, 1))
		s = testworld.Ran(w, processor.New, "p", h, soon)
		w.ExpectBook(3, 1)
		if s.Handled != 1 || s.Duplicates != 2 {
			t.Errorf("after the redrive: %+v", s)
		}
		// And again: it is done, so a second redrive is told so.
		w.PutText(account, queue, w.Text(testworld.SomeSegment, func(h *codec.Header) { h.Generation = 2 }, 1))
		s = testworld.Ran(w, processor.New, "p", h, soon)
		if s.Handled != 0 || s.Duplicates != 1 {
			t.Errorf("what was done was done again: %+v", s)
		}
	})
}

func TestP44ATombstoneIsRecordedAndNotHandled(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0, 1, 2)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N == 1 {
				return pump.Reject(testworld.ErrFlop)
			}
			return nil
		}}
		testworld.Ran(w, processor.New, "p", h, soon)
		w.ExpectBook(2, 1)
		header, _ := w.Cause(w.Cfg.Accounts[0].Name)
		text, err := row.NewTombstone(header, "test", time.Now())
		proof.Must(t, err)
		account, queue := w.Home(testworld.SomeSegment)
		for range 2 { // its put may have been lost and repeated
			w.PutText(account, queue, text)
		}
		s := testworld.Ran(w, processor.New, "p", h, soon)
		w.ExpectBook(3, 0)
		w.ExpectEmpty()
		h.Expect(t, 3, 3)
		if s.Handled != 0 || s.Recorded != 1 || s.Quarantined != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestP14AForeignMessageIsRecordedByItsIdentity(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		for range 5 {
			w.PutText("accounta", "work-00", []byte("hello"))
		}
		// The delete of the first is answered late, so it is delivered again.
		lost := w.Fault(azsim.Rule{Fault: azsim.FailBefore, First: 3}, "DeleteMessage")
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error { return nil }}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, Visibility: 6 * time.Second})
		h.Expect(t, 5, 5)
		w.ExpectEmpty()
		if lost.Hits() != 3 || s.Recorded != 5 {
			t.Errorf("%v, %+v", lost, s)
		}
	})
}

func TestP14AForeignMessageThatIsDeliveredTwiceIsHandledOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutText("accounta", "work-00", []byte("hello"))
		w.Fault(azsim.Rule{Fault: azsim.DeliverTwice, First: 4}, "GetMessages")
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error { return testworld.Pause(ctx, 3*time.Second) }}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 1, 1)
		w.ExpectEmpty()
		if s.Envelopes < 2 || s.Recorded != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestP13AnUnknownRunIsQuarantinedAndAClosedOneIsADuplicate(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(testworld.SomeSegment)
		w.PutText(account, queue, w.Text(testworld.SomeSegment, func(h *codec.Header) { h.Run = codec.RunID{7} }, 0, 1))
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, soon)
		if _, cause := w.Cause(account); cause.Reason != codec.ReasonUnknownRun || s.Quarantined != 2 || s.Recorded != 0 {
			t.Errorf("%v, %+v", cause, s)
		}
		// All of a run is done; it is sealed, closed and pruned. A copy comes a day later (P1.3).
		w.PutTasks(testworld.SomeSegment, 0, 1, 2)
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(time.Minute, "the tasks are done", func() bool { return w.Book().Done == 3 })
		closeRun(w, 3, testworld.SomeSegment)
		w.Within(5*time.Minute, "the run is pruned", func() bool { return len(w.Book().Records[testworld.SomeSegment].Runs()) == 0 })
		w.PutTasks(testworld.SomeSegment, 0, 1)
		w.Within(time.Minute, "the copy is gone", func() bool { return w.Left() == 0 })
		if s := p.End(); s.Duplicates != 2 {
			t.Errorf("%+v", s)
		}
		w.PutTasks(testworld.SomeSegment, 1, 2)
		s = testworld.Ran(w, processor.New, "p", h, soon)
		h.Expect(t, 3, 3)
		if s.Duplicates != 2 || w.Left() != 0 || len(w.Book().Records[testworld.SomeSegment].Runs()) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// closeRun seals the world's run with so many tasks of each of some segments, and closes it.
func closeRun(w *testworld.World, tasks uint64, segments ...uint32) {
	w.T.Helper()
	sealed, of, ctx := make([]uint64, w.ShardMap().Segments), w.AllRuns(), w.T.Context()
	for _, s := range segments {
		sealed[s] = tasks
	}
	proof.Must(w.T, errors.Join(of.Seal(ctx, w.Run, sealed), of.Close(ctx, w.Run)))
}

// P1.3: an owner that knows a run as open from before it owned the segment must not go by that.
func TestP13ARunIsAskedAboutAgainOnceASegmentIsFenced(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		// q knows the run as open from a segment of its own; p owns another, finishes the
		// run there, and it is closed and pruned. Then p leaves, and q inherits it.
		var hp, hq testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &hp, processor.Options{})
		q := testworld.Begun(w, processor.New, "q", &hq, processor.Options{})
		v := w.Settled(2)
		ofP, ofQ := testworld.Owns(v, "p")[0], testworld.Owns(v, "q")[0]
		w.PutTasks(ofQ, 0)
		w.PutTasks(ofP, 0)
		w.Within(time.Minute, "both are done", func() bool { return w.Book().Done == 2 })
		closeRun(w, 1, ofP, ofQ)
		w.Within(3*time.Minute, "p has pruned its segment", func() bool { return len(w.Book().Records[ofP].Runs()) == 0 })
		p.End()
		w.Settled(1)
		w.PutTasks(ofP, 0)
		w.Within(time.Minute, "the copy is gone", func() bool { return w.Left() == 0 })
		q.End()
		proof.Same(t, hq.Tasks(), 1, "a copy of a task of a closed run was done again", hq.Times)
	})
}

func TestP13AnUnreadableRunRowPutsTasksBackInOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(5 * time.Second)
		dark := w.Fault(azsim.Rule{Fault: azsim.Answer, Service: "table", Status: 500, Code: "InternalError"}, "QueryEntities", "GetEntity")
		w.PutTasks(testworld.SomeSegment, 0, 1)
		time.Sleep(8 * time.Second)
		if h.Tasks() != 0 || w.Left() != 1 || len(w.Poisoned("accounta")) != 0 {
			t.Errorf("%d tasks were started without their run's row, %d messages left", h.Tasks(), w.Left())
		}
		dark.Remove()
		w.Within(time.Minute, "it is done", func() bool { return w.Left() == 0 })
		p.End()
		h.Expect(t, 2, 2)
		w.ExpectBook(2, 0)
	})
}

func TestDiscardingRecordsInOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0, 1, 2)
		w.PutTasks(testworld.SomeSegment, 1, 2, 3)
		w.PutText("accounta", "work-00", []byte("foreign"))
		s := testworld.Ran(w, processor.New, "p", nil, processor.Options{UntilIdle: 2 * time.Minute, Discard: true})
		w.ExpectBook(4, 0)
		w.ExpectEmpty()
		if s.Handled != 5 || s.Recorded != 5 || s.Quarantined != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// P3.2: nothing is got of what is not fenced.
func TestP32NothingIsGotBeforeItsSegmentIsFenced(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0)
		hold := w.Fault(azsim.Rule{Fault: azsim.Answer, Status: 503}, "Batch")
		h := &testworld.Seen{}
		p := testworld.Made(w, processor.New, "p", h, processor.Options{})
		run := testworld.Start(w.T, p)
		time.Sleep(15 * time.Second)
		state := p.State()
		if n := w.Requests("GetMessages"); n != 0 || hold.Hits() == 0 || state.Unfenced != 64 || state.Ready ||
			!slices.Contains(state.Reasons, "the ledger of 64 of its segments is not its own yet") {
			t.Errorf("%d gets, %v, %d unfenced, %q", n, hold, state.Unfenced, state.Reasons)
		}
		hold.Remove()
		w.Within(30*time.Second, "it is done", func() bool { return w.Left() == 0 })
		if state := p.State(); !state.Ready || state.Unfenced != 0 {
			t.Errorf("%d unfenced, %q", state.Unfenced, state.Reasons)
		}
		run.End()
	})
}

// A processor that waits to be idle names a damaged ledger instead of waiting for it.
func TestADamagedLedgerIsNamedAndDelaysNoOtherSegment(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0, 1)
		testworld.Ran(w, processor.New, "p", &testworld.Seen{}, soon)
		other := (testworld.SomeSegment + 1) % 64
		e, err := w.Table().Read(t.Context(), "work.ledger.00", fmt.Sprintf("head.%04d", testworld.SomeSegment))
		proof.Must(t, err)
		e.Properties = map[string]any{"Epoch": "no number"}
		proof.Must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Merge, Entity: e})))
		w.PutTasks(testworld.SomeSegment, 2)
		w.PutTasks(other, 0)
		h := &testworld.Seen{}
		s, err := testworld.Made(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second}).Run(t.Context())
		if err == nil || s.Handled != 1 || w.Left() != 1 {
			t.Errorf("%v, %+v, %d left", err, s, w.Left())
		}
		t.Log(err)
	})
}

func TestAtLeastOnceHasNoLedger(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 3, 5)
		// The run's row was made in a transaction. The processor makes none.
		before := w.Requests("Batch")
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, soon)
		if n := w.Requests("Batch") - before; n != 0 || s.Commits+s.Recorded != 0 {
			t.Errorf("%d transactions, %+v", n, s)
		}
		w.ExpectBook(0, 0)
	})
}

// What fails again and again while the control account refuses is told at once, then more and more
// seldom, and when it is over. *That runs could not be forgotten was told every 15 s, that the ledger
// could not be written with each transaction.*
func TestWhatTheControlAccountRefusesIsToldMoreAndMoreSeldom(t *testing.T) {
	writes := []string{"InsertEntity", "UpdateEntity", "MergeEntity", "DeleteEntity", "Batch"}
	for name, tt := range map[string]struct {
		rule  azsim.Rule
		lines [][2]string // while it goes on, and when it is over
	}{
		"all": {azsim.Rule{Code: "AccountIsDisabled"}, [][2]string{
			{"runs that are done with could not be forgotten yet", "runs that are done with are forgotten"},
			{"how far the run is could not be learned", "how far the run is can be learned again"},
			{"pauses that are done with could not all be end", "pauses that are done with are ended"},
		}},
		"writes": {azsim.Rule{Code: "AuthorizationPermissionMismatch", Operations: writes}, [][2]string{
			{"the ledger cannot be written", "the ledger can be written again"},
			{"a dead member could not be evicted", "a member is dead: evicted"},
			{"owners could not be changed"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				run := w.SealedRun(1000)
				w.Spread(20, 10)
				work := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
					return testworld.Pause(ctx, 10*time.Second)
				}}
				p := testworld.Begun(w, processor.New, "p", work, processor.Options{Concurrency: 1})
				q := testworld.Begun(w, processor.New, "q", work, processor.Options{Concurrency: 1})
				time.Sleep(30 * time.Second)
				go runs.Wait(t.Context(), w.Operator(), run.ID, pump.WaitOptions{StuckAfter: time.Hour})
				time.Sleep(time.Second)
				tt.rule.Account, tt.rule.Service = "accounta", "table"
				tt.rule.Fault, tt.rule.Status = azsim.Answer, 403
				refuses, crashed := w.Sim.Inject(tt.rule), w.Crash("q")
				time.Sleep(10 * time.Minute)
				refuses.Remove()
				time.Sleep(2 * time.Minute)
				crashed.Remove()
				for _, line := range tt.lines {
					// At 0, 1, 2, 4 and 8 minutes in each process.
					if n := w.Logged(line[0]); n < 4 || n > 11 || w.Logged(line[1]) == 0 {
						t.Errorf("%q is told %d times", line, n)
					}
				}
				testworld.StopAll([]*testworld.Started[*processor.Processor, processor.Summary]{p, q})
			})
		})
	}
}
