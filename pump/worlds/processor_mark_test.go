package worlds

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// headers reads the headers of what is visible in a queue.
func (w *world) headers(account, queue string) (hs []codec.Header) {
	w.T.Helper()
	ms, err := w.Queue(account, queue).Peek(w.T.Context(), storage.MaxGet)
	must(w.T, err)
	for _, m := range ms {
		h, err := codec.ReadHeader(m.Text)
		must(w.T, err)
		hs = append(hs, h)
	}
	return hs
}

// P4.2: a single task that is suspicious is marked before it is started, and the mark
// is taken back if it is not.
func TestP42AMarkIsTakenBackWhenTheTaskWasNotTried(t *testing.T) {
	for _, how := range []string{"released by the handler", "stopped before it began", "stopped while it ran"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
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
				p := w.start(w.processor(h, processor.Options{Grace: -1}))
				if how == "stopped before it began" {
					for w.Requests("UpdateMessage") == before {
						time.Sleep(10 * time.Millisecond)
					}
				} else {
					<-entered
				}
				s := p.End()
				hs := w.headers("accounta", "work-00")
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
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 2, 1)
		w.PassAround("accounta", "work-00", suspectAfter)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt < 3 || task.N == 1 {
				return testworld.ErrFlop
			}
			return nil
		}}
		s := w.drain(h, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 4, Max: 5 * time.Second}})
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
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.Put("accounta", "work-00", 1, 100)
				w.PassAround("accounta", "work-00", suspectAfter)
				dying := &testworld.Seen{}
				crash := w.Fault(azsim.Rule{Fault: azsim.FailBefore, Skip: puts}, "PutMessage", "DeleteMessage")
				p := w.start(w.processor(dying, processor.Options{Grace: -1}))
				for crash.Hits() == 0 {
					time.Sleep(time.Millisecond)
				}
				w.crash("p")
				p.Stop()
				<-p.Done
				if dying.Tasks() != 0 {
					t.Errorf("%d tasks were handled before the message was split", dying.Tasks())
				}
				if n := w.Count("accounta", "work-00"); n != puts+1 {
					t.Errorf("%d messages are there, want %d", n, puts+1)
				}
				h := &testworld.Seen{}
				q := w.start(w.processorOf("q", h, processor.Options{}))
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

// P4.2: a text without room for a mark has its attempts counted in a row, and is
// quarantined by these, never by how often it was delivered.
func TestP42AFullForeignTextHasItsAttemptsInARow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) // so that it cannot be compressed into an envelope
	full := make([]byte, storage.MaxText)
	for i := range full {
		full[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:;!?'()[]{}=+-*/%$#@_|~^"[random.IntN(88)]
	}
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		id := w.PutText("accounta", "work-00", full)
		w.PassAround("accounta", "work-00", 40)
		m := w.mortals(0, processor.Options{Visibility: 10 * time.Second}, func(t *pump.Task) bool { return t.Foreign == "work-00/"+id })
		m.start("p")
		m.until("it is quarantined", func() bool { return w.Left() == 0 })
		m.end()
		texts := w.Poisoned("accounta")
		if m.deaths != 8 || len(texts) != 1 || !bytes.Equal(texts[0], full) {
			t.Errorf("%d deaths, %d messages in quarantine", m.deaths, len(texts))
		}
		e, err := w.Table().Read(t.Context(), "work.quarantine", "accounta.work-00."+id)
		if err != nil || e.Properties["Reason"] != codec.ReasonEndsProcess || e.Properties["Attempts"] != int64(8) {
			t.Errorf("the cause's row: %v, %v", e.Properties, err)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("the row of attempts is still there: %v", err)
		}
	})
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		id := w.PutText("accounta", "work-00", full)
		w.PassAround("accounta", "work-00", 40)
		n := 0
		h := pump.HandlerFunc(func(context.Context, *pump.Task) error {
			if n++; n < 20 {
				return pump.Release(nil)
			}
			return nil
		})
		s := w.drain(h, processor.Options{})
		if s.Handled != 1 || s.Quarantined != 0 || n != 20 {
			t.Errorf("released %d times: %+v", n, s)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("the row of attempts is still there: %v", err)
		}
	})
}

// P4.2: the last attempts are made with nothing else started in the process, so that
// no other task pays for what it does, nor it for what others do.
func TestP42ASuspectsLastAttemptsAreMadeAlone(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
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
		s := w.drain(h, processor.Options{})
		if s.Handled != 64*20+1 || company.Load() != 0 || s.Lost != 0 {
			t.Errorf("in company %d times, %+v", company.Load(), s)
		}
		if w.Logged("alone=true") != 1 {
			t.Error("it was not tried alone")
		}
	})
}

// A handler that gives its tasks back at once is no death: the messages are not cut
// into single tasks by it.
func TestP42WhatIsReleasedAgainAndAgainIsNotSplit(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 3, 50)
		until := time.Now().Add(10 * time.Second)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			if time.Now().Before(until) {
				return pump.Release(testworld.ErrFlop)
			}
			return nil
		}}
		s := w.drain(h, processor.Options{})
		if s.Handled != 150 || s.Split != 0 || s.Released < 1000 {
			t.Errorf("%+v", s)
		}
	})
}

// A19, P4.2: a task that failed under a larger --max-attempts is no task that ended processes.
// After a restart with a smaller one the processor quarantined it as such, without a trial.
func TestP42FewerAttemptsAfterARestartCondemnNobodyWithoutATrial(t *testing.T) {
	for name, attempts := range map[string]uint32{"as many as the attempts that it made": 3, "fewer": 5} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, workload.Spec{}, 1, 1, nil, func(t *testing.T, w *world) {
				w.PutSuspects(testworld.SomeSegment, 1, attempts)
				s := w.drain(&testworld.Seen{}, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3}})
				if s.Handled != 1 || s.Quarantined != 0 || w.Left() != 0 {
					t.Errorf("%+v", s)
				}
				if n := w.Logged("was written down before it begins"); n != 1 {
					t.Errorf("%d trials", n)
				}
			})
		})
	}
}
