package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/tombstone"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestP3OnceHandlesAndRecordsEachTask(t *testing.T) {
	inOnceWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		n := w.spread(10, 20)
		h := &seen{}
		s := w.drain(h, ProcessorOptions{UntilIdle: 10 * time.Second})
		h.expect(t, n, n)
		w.expectEmpty()
		w.expectBook(n, 0)
		if s.Recorded != int64(n) || s.Commits == 0 || s.Duplicates != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The scenario of P3.4: copies in envelopes of different cut reach one healthy owner.
func TestP34CopiesOfDifferentCutRunOnce(t *testing.T) {
	for _, batch := range []bool{false, true} {
		for name, first := range map[string][]uint64{"{0} first": {0}, "{0,1} first": {0, 1}} {
			t.Run(name, func(t *testing.T) {
				onceWorld(t, func(t *testing.T, w *world) {
					second := []uint64{0, 1}
					if len(first) == 2 {
						second = []uint64{0}
					}
					w.putTasks(someSegment, first...)
					w.putTasks(someSegment, second...)
					w.putTasks(someSegment, 0, 1, 2)
					h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, 5*time.Second) }}
					var handler pump.Handler = h
					if batch {
						handler = batchOf{h}
					}
					s := w.drain(handler, ProcessorOptions{})
					h.expect(t, 3, 3)
					w.expectEmpty()
					w.expectBook(3, 0)
					if s.Duplicates != 3 {
						t.Errorf("%d duplicates recognised, want 3: %+v", s.Duplicates, s)
					}
				})
			})
		}
	}
}

// batchOf hands a batch to a handler, task by task.
type batchOf struct{ *seen }

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
		onceWorld(t, func(t *testing.T, w *world) {
			h := &seen{}
			var handler pump.Handler = h
			if batch {
				handler = batchOf{h}
			}
			w.putTasks(someSegment, 1, 3, 5, 1000)
			w.drain(handler, ProcessorOptions{UntilIdle: 5 * time.Second})
			w.putTasks(someSegment, 0, 1, 2, 3, 4, 5, 6, 999, 1000, 1001)
			s := w.drain(handler, ProcessorOptions{UntilIdle: 5 * time.Second})
			h.expect(t, 10, 10)
			w.expectEmpty()
			w.expectBook(10, 0)
			if s.Duplicates != 4 || s.Handled != 6 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A message of which some tasks are recorded, some fail and some are in hand goes on as an
// envelope of those that are left, in ascending order.
func TestP41TheRestOfAMessageIsRewrittenWithoutWhatIsRecorded(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putTasks(someSegment, 1, 4)
		w.drain(&seen{}, ProcessorOptions{UntilIdle: 3 * time.Second})
		account, queue := w.home(someSegment)
		failing := true
		h := &seen{work: func(ctx context.Context, task *pump.Task) error {
			if task.N == 6 {
				return pause(ctx, 20*time.Second)
			}
			if failing && task.N%2 == 0 {
				return pump.RetryAfter(30*time.Second, errFlop)
			}
			return nil
		}}
		w.putTasks(someSegment, 6)
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(5 * time.Second)
		w.putTasks(someSegment, 0, 1, 2, 3, 4, 5, 6)
		time.Sleep(5 * time.Second)
		w.expectBook(4, 0) // 1, 4, 3, 5
		var left []uint64
		for _, d := range []string{queue} {
			if w.count(account, d) != 3 {
				t.Errorf("%d messages, want the one in hand, one of what failed and one of what is in hand", w.count(account, d))
			}
		}
		failing = false
		w.within(2*time.Minute, "all is done", func() bool { return w.left() == 0 })
		s := p.end()
		for n := range uint64(7) {
			if !w.book().records[someSegment].Done(w.run, n) {
				left = append(left, n)
			}
		}
		if len(left) > 0 || s.Duplicates < 2 {
			t.Errorf("%v are not recorded, %+v", left, s)
		}
		for _, task := range h.order {
			if task.N == 6 && task.Attempt != 1 {
				t.Errorf("a task that was in hand was blamed for it: attempt %d", task.Attempt)
			}
		}
		if h.times[identity(&pump.Task{Run: w.run, Segment: someSegment, N: 6})] != 1 {
			t.Error("the task that was in hand ran twice")
		}
	})
}

func TestP33QuarantinedTasksAreRecordedWithTheirGeneration(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putTasks(someSegment, 0, 1, 2, 3)
		bad := true
		h := &seen{work: func(_ context.Context, task *pump.Task) error {
			if bad && task.N%2 == 1 {
				return pump.Reject(errFlop)
			}
			return nil
		}}
		s := w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		w.expectBook(2, 2)
		w.expectEmpty()
		if s.Quarantined != 2 || s.Recorded != 4 {
			t.Errorf("%+v", s)
		}
		// A copy of the same generation is a duplicate; the next generation reopens (P4.4).
		bad = false
		account, queue := w.home(someSegment)
		w.putTasks(someSegment, 0, 1)
		w.putText(account, queue, w.text(someSegment, func(h *codec.Header) { h.Generation = 1 }, 1))
		s = w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		w.expectBook(3, 1)
		if s.Handled != 1 || s.Duplicates != 2 {
			t.Errorf("after the redrive: %+v", s)
		}
		// And again: it is done, so whoever puts it back once more is told so.
		w.putText(account, queue, w.text(someSegment, func(h *codec.Header) { h.Generation = 2 }, 1))
		if s = w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second}); s.Handled != 0 || s.Duplicates != 1 {
			t.Errorf("what was done was done again: %+v", s)
		}
	})
}

func TestP44ATombstoneIsRecordedAndNotHandled(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putTasks(someSegment, 0, 1, 2)
		h := &seen{work: func(_ context.Context, task *pump.Task) error {
			if task.N == 1 {
				return pump.Reject(errFlop)
			}
			return nil
		}}
		w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		w.expectBook(2, 1)
		header, _ := w.cause(w.cfg.Accounts[0].Name)
		text, err := tombstone.New(header, "test", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		account, queue := w.home(someSegment)
		for range 2 { // its put may have been lost and repeated
			w.putText(account, queue, text)
		}
		s := w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		w.expectBook(3, 0)
		w.expectEmpty()
		h.expect(t, 3, 3)
		if s.Handled != 0 || s.Recorded != 1 || s.Quarantined != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestP14AForeignMessageIsRecordedByItsIdentity(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		for range 5 {
			w.putText("accounta", "work-00", []byte("hello"))
		}
		// The delete of the first is answered late, so it is delivered again.
		lost := w.fault(azsim.Rule{Fault: azsim.FailBefore, First: 3}, "DeleteMessage")
		h := &seen{work: func(_ context.Context, task *pump.Task) error { return nil }}
		s := w.drain(h, ProcessorOptions{Visibility: 6 * time.Second})
		h.expect(t, 5, 5)
		w.expectEmpty()
		if lost.Hits() != 3 || s.Recorded != 5 {
			t.Errorf("%v, %+v", lost, s)
		}
	})
}

func TestP14AForeignMessageThatIsDeliveredTwiceIsHandledOnce(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putText("accounta", "work-00", []byte("hello"))
		w.fault(azsim.Rule{Fault: azsim.DeliverTwice, First: 4}, "GetMessages")
		h := &seen{work: func(ctx context.Context, task *pump.Task) error { return pause(ctx, 3*time.Second) }}
		s := w.drain(h, ProcessorOptions{})
		h.expect(t, 1, 1)
		w.expectEmpty()
		if s.Envelopes < 2 || s.Recorded != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestP13AnUnknownRunIsQuarantinedAndAClosedOneIsADuplicate(t *testing.T) {
	verify.Only(t)
	onceWorld(t, func(t *testing.T, w *world) {
		account, queue := w.home(someSegment)
		w.putText(account, queue, w.text(someSegment, func(h *codec.Header) { h.Run = codec.RunID{7} }, 0, 1))
		h := &seen{}
		s := w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		if _, cause := w.cause(account); cause.Reason != pump.ReasonUnknownRun || s.Quarantined != 2 || s.Recorded != 0 {
			t.Errorf("%v, %+v", cause, s)
		}
		// All of a run is done; it is sealed, closed and pruned. A copy comes a day later (P1.3).
		w.putTasks(someSegment, 0, 1, 2)
		p := w.start(w.processor(h, ProcessorOptions{}))
		w.within(time.Minute, "the tasks are done", func() bool { return w.book().done == 3 })
		w.closeRun(someSegment, 3)
		w.within(5*time.Minute, "the run is pruned", func() bool { return len(w.book().records[someSegment].Runs()) == 0 })
		w.putTasks(someSegment, 0, 1)
		w.within(time.Minute, "the copy is gone", func() bool { return w.left() == 0 })
		if s := p.end(); s.Duplicates != 2 {
			t.Errorf("%+v", s)
		}
		w.putTasks(someSegment, 1, 2)
		s = w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		h.expect(t, 3, 3)
		if s.Duplicates != 2 || w.left() != 0 || len(w.book().records[someSegment].Runs()) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// closeRun seals the world's run with so many tasks of a segment, and closes it.
func (w *world) closeRun(segment uint32, tasks uint64) {
	w.t.Helper()
	sealed := make([]uint64, w.shardMap().Segments)
	sealed[segment] = tasks
	runs := workload.NewRuns(w.table(), w.cfg.Workload)
	if err := errors.Join(runs.Seal(w.t.Context(), w.run, sealed), runs.Close(w.t.Context(), w.run)); err != nil {
		w.t.Fatal(err)
	}
}

// P1.3: an owner that knows a run as open from before it owned the segment must not go by that.
func TestP13ARunIsAskedAboutAgainOnceASegmentIsFenced(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		// q knows the run as open from a segment of its own; p owns another, finishes the
		// run there, and it is closed and pruned. Then p leaves, and q inherits it.
		var hp, hq seen
		p, q := w.join("p", &hp, ProcessorOptions{}), w.join("q", &hq, ProcessorOptions{})
		v := w.settled(2)
		ofP, ofQ := owns(v, "p")[0], owns(v, "q")[0]
		w.putTasks(ofQ, 0)
		w.putTasks(ofP, 0)
		w.within(time.Minute, "both are done", func() bool { return w.book().done == 2 })
		sealed := make([]uint64, w.shardMap().Segments)
		sealed[ofP], sealed[ofQ] = 1, 1
		runs := workload.NewRuns(w.table(), w.cfg.Workload)
		if err := errors.Join(runs.Seal(t.Context(), w.run, sealed), runs.Close(t.Context(), w.run)); err != nil {
			t.Fatal(err)
		}
		w.within(3*time.Minute, "p has pruned its segment", func() bool { return len(w.book().records[ofP].Runs()) == 0 })
		p.end()
		w.settled(1)
		w.putTasks(ofP, 0)
		w.within(time.Minute, "the copy is gone", func() bool { return w.left() == 0 })
		q.end()
		if hq.tasks() != 1 {
			t.Errorf("a copy of a task of a closed run was done again: %v", hq.times)
		}
	})
}

func TestP13AnUnreadableRunRowPutsTasksBackInOnce(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(5 * time.Second)
		dark := w.fault(azsim.Rule{Fault: azsim.Answer, Service: "table", Status: 500, Code: "InternalError"}, "QueryEntities", "GetEntity")
		w.putTasks(someSegment, 0, 1)
		time.Sleep(8 * time.Second)
		if h.tasks() != 0 || w.left() != 1 || len(w.poisoned("accounta")) != 0 {
			t.Errorf("%d tasks were started without their run's row, %d messages left", h.tasks(), w.left())
		}
		dark.Remove()
		w.within(time.Minute, "it is done", func() bool { return w.left() == 0 })
		p.end()
		h.expect(t, 2, 2)
		w.expectBook(2, 0)
	})
}

func TestDiscardingRecordsInOnce(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putTasks(someSegment, 0, 1, 2)
		w.putTasks(someSegment, 1, 2, 3)
		w.putText("accounta", "work-00", []byte("foreign"))
		s := w.drain(nil, ProcessorOptions{Discard: true})
		w.expectBook(4, 0)
		w.expectEmpty()
		if s.Handled != 5 || s.Recorded != 5 || s.Quarantined != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// P3.2: nothing is got of what is not fenced.
func TestP32NothingIsGotBeforeItsSegmentIsFenced(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putTasks(someSegment, 0)
		hold := w.fault(azsim.Rule{Fault: azsim.Answer, Status: 503}, "Batch")
		h := &seen{}
		p := w.processor(h, ProcessorOptions{})
		run := w.start(p)
		time.Sleep(15 * time.Second)
		state := p.State()
		if n := w.requests("GetMessages"); n != 0 || hold.Hits() == 0 || state.Unfenced != 64 || state.Ready ||
			!slices.Contains(state.Reasons, "the ledger of 64 of its segments is not its own yet") {
			t.Errorf("%d gets, %v, %d unfenced, %q", n, hold, state.Unfenced, state.Reasons)
		}
		hold.Remove()
		w.within(30*time.Second, "it is done", func() bool { return w.left() == 0 })
		if state := p.State(); !state.Ready || state.Unfenced != 0 {
			t.Errorf("%d unfenced, %q", state.Unfenced, state.Reasons)
		}
		run.end()
	})
}

// A processor that waits to be idle names a damaged ledger instead of waiting for it.
func TestADamagedLedgerIsNamedAndDelaysNoOtherSegment(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.putTasks(someSegment, 0, 1)
		w.drain(&seen{}, ProcessorOptions{UntilIdle: 3 * time.Second})
		other := (someSegment + 1) % 64
		e, err := w.table().Read(t.Context(), "work.ledger.00", fmt.Sprintf("head.%04d", someSegment))
		if err != nil {
			t.Fatal(err)
		}
		e.Properties = map[string]any{"Epoch": "no number"}
		if _, err := w.table().Write(t.Context(), storage.Write{Mode: storage.Merge, Entity: e}); err != nil {
			t.Fatal(err)
		}
		w.putTasks(someSegment, 2)
		w.putTasks(other, 0)
		h := &seen{}
		s, err := w.processor(h, ProcessorOptions{UntilIdle: 5 * time.Second}).Run(t.Context())
		if err == nil || s.Handled != 1 || w.left() != 1 {
			t.Errorf("%v, %+v, %d left", err, s, w.left())
		}
		t.Log(err)
	})
}

func TestAtLeastOnceHasNoLedger(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 3, 5)
		// The run's row was made in a transaction. The processor makes none.
		before := w.requests("Batch")
		h := &seen{}
		s := w.drain(h, ProcessorOptions{UntilIdle: 3 * time.Second})
		if n := w.requests("Batch") - before; n != 0 || s.Commits+s.Recorded != 0 {
			t.Errorf("%d transactions, %+v", n, s)
		}
		w.expectBook(0, 0)
	})
}
