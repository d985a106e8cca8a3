package trial_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// headers reads the headers of what is visible in a queue.
func headers(w *testworld.World, account, queue string) (hs []codec.Header) {
	w.T.Helper()
	ms, err := w.Queue(account, queue).Peek(w.T.Context(), storage.MaxGet)
	proof.Must(w.T, err)
	for _, m := range ms {
		h, err := codec.ReadHeader(m.Text)
		proof.Must(w.T, err)
		hs = append(hs, h)
	}
	return hs
}

// P4.2: a single task that is suspicious is marked before it is started, and the mark
// is taken back if it is not.
func TestP42AMarkIsTakenBackWhenTheTaskWasNotTried(t *testing.T) {
	for _, how := range []string{"released by the handler", "stopped before it began", "stopped while it ran"} {
		t.Run(how, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 1, 1)
				w.PassAround("accounta", "work-00", suspectAfter)
				var attempt atomic.Int64
				entered := make(chan struct{}, 100)
				h := pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
					attempt.Store(int64(task.Attempt))
					entered <- struct{}{}
					if how == "released by the handler" {
						return pump.Release(testworld.ErrFlop)
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
				before := w.Requests("UpdateMessage")
				if how == "stopped before it began" {
					// The mark takes two seconds, and the stop comes in between.
					w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 2 * time.Second, First: 1}, "UpdateMessage")
				}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{Grace: -1})
				if how == "stopped before it began" {
					for w.Requests("UpdateMessage") == before {
						time.Sleep(10 * time.Millisecond)
					}
				} else {
					<-entered
				}
				s := p.End()
				hs := headers(w, "accounta", "work-00")
				if len(hs) != 1 || hs[0].Attempt != 0 || hs[0].Tasks.Len() != 1 {
					t.Errorf("what is in the queue: %+v", hs)
				}
				if begun := int64(len(entered)); how == "stopped before it began" && begun != 0 || attempt.Load() > 1 || s.Failed+s.Retried != 0 {
					t.Errorf("attempt %d, begun %d times, %+v", attempt.Load(), begun, s)
				}
				if n := w.Logged("was written down before it begins"); n == 0 {
					t.Error("it was not marked")
				}
			})
		})
	}
}

// P4.2: an attempt that was marked and then fails counts once; one that is done is done.
func TestP42AMarkedAttemptThatFailsCountsOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 2, 1)
		w.PassAround("accounta", "work-00", suspectAfter)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt < 3 || task.N == 1 {
				return testworld.ErrFlop
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, Retry: pump.RetryPolicy{MaxAttempts: 4, Max: 5 * time.Second}})
		_, cause := w.Cause("accounta")
		if cause.Reason != codec.ReasonAttempts || cause.Attempts != 4 || s.Quarantined != 1 || s.Handled != 1 || s.Failed != 2+4 {
			t.Errorf("%+v, cause %+v", s, cause)
		}
		for _, task := range h.Order {
			if task.Attempt > 4 {
				t.Errorf("attempt %d", task.Attempt)
			}
		}
	})
}

// P4.2, window 17: a crash between the pieces and the delete of what they were cut from
// loses nothing; everything is there twice and is settled twice.
func TestP42ACrashBetweenThePiecesAndTheDeleteOnlyMakesCopies(t *testing.T) {
	for puts := range 5 {
		t.Run(fmt.Sprintf("after %d pieces", puts), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 1, 100)
				w.PassAround("accounta", "work-00", suspectAfter)
				dying := &testworld.Seen{}
				crash := w.Fault(azsim.Rule{Fault: azsim.FailBefore, Skip: puts}, "PutMessage", "DeleteMessage")
				p := testworld.Begun(w, processor.New, "p", dying, processor.Options{Grace: -1})
				for crash.Hits() == 0 {
					time.Sleep(time.Millisecond)
				}
				w.Crash("p")
				p.Stop()
				<-p.Done
				proof.Same(t, dying.Tasks(), 0, "tasks were handled before the message was split")
				proof.Same(t, w.Count("accounta", "work-00"), puts+1, "messages are there")
				h := &testworld.Seen{}
				q := testworld.Begun(w, processor.New, "q", h, processor.Options{})
				for w.Left() > 0 {
					time.Sleep(time.Second)
				}
				s := q.End()
				h.Expect(t, 100, 100+25*puts)
				if len(w.Condemned()) != 0 || s.Split != 1 {
					t.Errorf("condemned: %v; %+v", w.Condemned(), s)
				}
			})
		})
	}
}

// P4.2: the last attempts are made with nothing else started in the process, so that
// no other task pays for what it does, nor it for what others do.
func TestP42ASuspectsLastAttemptsAreMadeAlone(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.PutText("accounta", "work-00", w.Sealed(
			codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: 3, Attempt: 5},
			codec.Task{N: 1 << 20, Body: []byte("suspect")}))
		w.PassAround("accounta", "work-00", 5+suspectAfter)
		w.PutHome(w.EverySegment(), 20)
		var others, alone atomic.Int64
		var company atomic.Int64
		h := pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
			if string(task.Body) == "suspect" {
				alone.Store(1)
				time.Sleep(3 * time.Second)
				company.Add(others.Load())
				alone.Store(0)
				return nil
			}
			others.Add(1)
			defer others.Add(-1)
			company.Add(alone.Load())
			return testworld.Pause(ctx, 500*time.Millisecond)
		})
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		if s.Handled != 64*20+1 || company.Load() != 0 || s.Lost != 0 {
			t.Errorf("in company %d times, %+v", company.Load(), s)
		}
		proof.Same(t, w.Logged("alone=true"), 1, "it was not tried alone")
	})
}

// A handler that gives its tasks back at once is no death: the messages are not cut
// into single tasks by it.
func TestP42WhatIsReleasedAgainAndAgainIsNotSplit(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 3, 50)
		until := time.Now().Add(10 * time.Second)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			if time.Now().Before(until) {
				return pump.Release(testworld.ErrFlop)
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		if s.Handled != 150 || s.Split != 0 || s.Released < 1000 {
			t.Errorf("%+v", s)
		}
	})
}

// These are figures of the code under test, which no caller can name.
const (
	suspectAfter = 3
)

// P4.2, P3.5: fencing is no attempt. A task that came through its trial and whose result is
// dropped, because its segment has another owner by now, has its mark taken back.
func TestP42TheMarkOfATrialWhoseResultIsDroppedIsTakenBack(t *testing.T) {
	const attempts = 5
	random := rand.New(rand.NewPCG(1, 2)) // so that it cannot be compressed into an envelope
	full := make([]byte, storage.MaxText)
	for i := range full {
		full[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:;!?'()[]{}=+-*/%$#@_|~^"[random.IntN(88)]
	}
	for _, where := range []string{"message", "row"} {
		t.Run("in a "+where, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				segment, id := testworld.SomeSegment, ""
				if where == "message" {
					w.PutSuspects(testworld.SomeSegment, 1, attempts)
				} else {
					segment = shardmap.Segment(full, w.Segments())
					id = w.PutText("accounta", "work-00", full)
					w.PassAround("accounta", "work-00", attempts+suspectAfter)
					proof.Must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
						Partition: "work.attempts", Row: "accounta.work-00." + id, Properties: map[string]any{"Attempts": int64(attempts)},
					}})))
				}
				var tried atomic.Int64
				p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
					tried.Add(1)
					proof.Same(t, task.Attempt, attempts+1, "attempt")
					w.FenceAt(segment, 1<<53)
					return nil
				}), processor.Options{})
				w.Within(time.Minute, "its result is dropped", func() bool { return w.Logged("results came after another owner") > 0 })
				w.Within(time.Minute, "it is put back", func() bool { return w.Count("accounta", "work-00") == 1 && p.Of.State().Messages == 0 })
				p.End()
				if n := tried.Load(); n != 1 || w.Logged("was written down before it begins") != 1 {
					t.Errorf("it was tried %d times", n)
				}
				if where == "message" {
					w.Within(time.Minute, "it can be seen", func() bool { return len(headers(w, "accounta", "work-00")) == 1 })
					if hs := headers(w, "accounta", "work-00"); len(hs) != 1 || hs[0].Attempt != attempts {
						t.Errorf("what is in the queue: %+v", hs)
					}
					return
				}
				e, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id)
				if err != nil || e.Properties["Attempts"] != int64(attempts) {
					t.Errorf("the row: %v, %v", e.Properties, err)
				}
			})
		})
	}
}
