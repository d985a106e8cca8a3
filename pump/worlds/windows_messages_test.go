package worlds

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// Each test hits one window of vulnerability (docs/protocols.md) on the real code over
// the real wire protocol.

func TestWindow3AGetThatIsLostIsMadeAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(3, 5)
		lost := w.Fault(azsim.Rule{Fault: azsim.FailBefore, First: 10}, "GetMessages")
		h := &testworld.Seen{}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, tasks, tasks)
		proof.Same(t, lost.Hits(), 10, lost)
	})
}

func TestWindow4AnAnswerToAGetThatIsLostOrCutIsNotEmptiness(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.AnswerLost, azsim.CutBody, azsim.AnswerAfter} {
		t.Run(string(fault), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 20, 5)
				lost := w.Fault(azsim.Rule{Fault: fault, First: 3}, "GetMessages")
				h := &testworld.Seen{}
				began := time.Now()
				// Idle for less than a visibility, and yet it must not leave before
				// it has an answer; then it may, for the messages are hidden.
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 90 * time.Second})
				h.Expect(t, 100, 100)
				if lost.Hits() != 3 || time.Since(began) < time.Minute {
					t.Errorf("%v after %v", lost, time.Since(began))
				}
				for _, task := range h.Order {
					proof.Same(t, task.Attempt, 1, "a delivery that no processor saw was counted as an attempt")
				}
				proof.Same(t, s.Failed+s.Quarantined+s.Retried, 0, s)
			})
		})
	}
}

func TestWindow5AMessageThatWasTakenByAProcessThatDiedComesBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 32, 3)
		if ms, err := w.Queue("accounta", "work-00").Get(t.Context(), 32, time.Minute); err != nil || len(ms) != 32 {
			t.Fatal(len(ms), err)
		}
		h := &testworld.Seen{}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 96, 96)
	})
}

// interval is one handling of a task by one instance.
type interval struct {
	instance   string
	began, end time.Time
	cause      error
}

// intervals notes who handles the only task of a test, and when.
type intervals struct {
	mu  sync.Mutex
	all []interval
}

func (is *intervals) get() []interval {
	is.mu.Lock()
	defer is.mu.Unlock()
	return slices.Clone(is.all)
}

func (is *intervals) handler(instance string, d time.Duration) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, _ *pump.Task) error {
		iv := interval{instance: instance, began: time.Now()}
		err := testworld.Pause(ctx, d)
		iv.end, iv.cause = time.Now(), context.Cause(ctx)
		is.mu.Lock()
		is.all = append(is.all, iv)
		is.mu.Unlock()
		return err
	})
}

func TestWindow6And11AHandlerEndsBeforeAnotherProcessCanGetItsTask(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		var is intervals
		began := time.Now()
		p := testworld.Begun(w, processor.New, "p", is.handler("p", time.Hour), processor.Options{})
		time.Sleep(5 * time.Second)
		// p is cut off: nothing it sends arrives, as if it had died; but it has not.
		dead := w.Fault(azsim.Rule{Fault: azsim.FailBefore})
		time.Sleep(time.Second)
		q := testworld.Begun(w, processor.New, "q", is.handler("q", 10*time.Second), processor.Options{})
		time.Sleep(3 * time.Minute)
		dead.Remove()
		time.Sleep(time.Minute)
		q.End()
		s := p.End()

		if len(is.all) != 2 || is.all[0].instance != "p" || is.all[1].instance != "q" {
			t.Fatalf("%+v", is.all)
		}
		first, second := is.all[0], is.all[1]
		if !errors.Is(first.cause, processor.ErrLeaseEnded) || first.end.Sub(began) > 50*time.Second+100*time.Millisecond {
			t.Errorf("p's handler ended with %v after %v; its lease less the margin is 50 s from the get", first.cause, first.end.Sub(began))
		}
		if !first.end.Before(second.began) {
			t.Errorf("both handled it: p until %v, q from %v", first.end, second.began)
		}
		if second.cause != nil || w.Left() != 0 {
			t.Errorf("q ended with %v; %d messages left", second.cause, w.Left())
		}
		if s.Lost != 1 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestWindow7WhatWasDoneAndNotDeletedIsDeliveredAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(4, 5)
		dead := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage", "UpdateMessage")
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Grace: time.Second})
		time.Sleep(time.Second)
		h.Expect(t, tasks, tasks)
		p.End()
		dead.Remove()
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, tasks, 2*tasks)
		proof.Same(t, w.Left(), 0, "messages left")
	})
}

func TestWindows8And9ADeleteThatIsLostEitherWayIsMadeAgain(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost, azsim.AnswerAfter, azsim.Answer, azsim.HangAfter} {
		t.Run(string(fault), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				tasks := w.Spread(4, 5)
				lost := w.Fault(azsim.Rule{Fault: fault, First: 12}, "DeleteMessage")
				h := &testworld.Seen{}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
				h.Expect(t, tasks, tasks)
				if lost.Hits() != 12 || w.Left() != 0 || s.Lost != 0 {
					t.Errorf("%v, %d left, %+v", lost, w.Left(), s)
				}
			})
		})
	}
}

func TestWindow10AReceiptIsGoodAfterItsLeaseWhileNobodyElseGetsTheMessage(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 5, 2)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		dark := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage", "UpdateMessage")
		time.Sleep(2 * time.Second)
		closed := w.Fault(azsim.Rule{Fault: azsim.Answer}, "GetMessages")
		time.Sleep(2 * time.Minute) // twice the lease
		proof.Same(t, w.Left(), 5, "messages, all undeleted")
		dark.Remove()
		time.Sleep(30 * time.Second)
		closed.Remove()
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, 10, 10)
		proof.Same(t, w.Left(), 0, "messages left")
	})
}

func TestWindow12AMessageThatIsBackEarlyLosesNothing(t *testing.T) {
	twice := 0 // in how many worlds it was back before it was renewed
	for seed := range uint64(8) {
		testworld.In(t, testworld.Shared, 1, 1, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *testworld.World) {
			w.Put("accounta", "work-00", 1, 1)
			var is intervals
			early := w.Fault(azsim.Rule{Fault: azsim.ReappearEarly, First: 1}, "GetMessages")
			p := testworld.Begun(w, processor.New, "p", is.handler("p", 5*time.Minute), processor.Options{})
			time.Sleep(time.Second)
			closed := w.Fault(azsim.Rule{Fault: azsim.Answer}, "GetMessages") // p gets nothing more
			q := testworld.Begun(w, processor.New, "q", is.handler("q", 90*time.Second), processor.Options{})
			time.Sleep(6 * time.Minute)
			closed.Remove()
			s := p.End()
			q.End()
			if early.Hits() != 1 || w.Left() != 0 {
				t.Errorf("seed %d: %v, %d messages left", seed, early, w.Left())
			}
			if len(is.all) == 2 {
				twice++
			}
			for _, iv := range is.all {
				// p's next renewal says that it has lost it; that is no failure.
				if iv.instance == "p" && len(is.all) == 2 && (!errors.Is(iv.cause, processor.ErrLeaseEnded) || s.Lost != 1 || s.Failed != 0) {
					t.Errorf("seed %d: p: %+v, %+v", seed, iv, s)
				}
				if iv.instance == "q" && iv.cause != nil {
					t.Errorf("seed %d: q: %+v", seed, iv)
				}
			}
		})
	}
	if twice == 0 {
		t.Error("in no world did the message come back before it was renewed")
	}
}

func TestWindow13ARenewalThatIsLostIsMadeAgain(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.Answer, azsim.HangBefore} {
		t.Run(string(fault), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 3, 2)
				lost := w.Fault(azsim.Rule{Fault: fault, First: 6}, "UpdateMessage")
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 5*time.Minute) }}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
				h.Expect(t, 6, 6)
				if s.Handled != 6 || s.Lost != 0 || lost.Hits() != 6 {
					t.Errorf("%v, %+v", lost, s)
				}
			})
		})
	}
}

func TestWindow14AfterALostAnswerToARenewalTheMessageIsNotDeletedAndComesBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		lost := w.Fault(azsim.Rule{Fault: azsim.AnswerLost, First: 1}, "UpdateMessage")
		var is intervals
		began := time.Now()
		first := is.handler("first", 40*time.Second) // done after the lost answer, before the old deadline
		var n atomic.Int64
		s := testworld.Ran(w, processor.New, "p", pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
			if n.Add(1) == 1 {
				return first.Handle(ctx, task)
			}
			return nil
		}), processor.Options{UntilIdle: 2 * time.Minute})
		if lost.Hits() != 1 || len(is.all) != 1 || n.Load() != 2 {
			t.Fatalf("%v, %v, %d deliveries", lost, is.all, n.Load())
		}
		if is.all[0].cause != nil || is.all[0].end.Sub(began) < 40*time.Second {
			t.Errorf("the handler was ended although the message was still hidden: %+v", is.all[0])
		}
		if got := s.Requests["accounta"]["delete"]; got != 1 || w.Left() != 0 {
			t.Errorf("%d deletes, %d left; the first delivery has no receipt to delete with", got, w.Left())
		}
	})
}

func TestWindow14HandlersEndAtTheOldDeadlineAfterALostAnswerToARenewal(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 4)
		w.Fault(azsim.Rule{Fault: azsim.AnswerLost, First: 1}, "UpdateMessage")
		var is intervals
		began := time.Now()
		h := is.handler("p", 5*time.Minute)
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 2})
		time.Sleep(59 * time.Second)
		ended := is.get()
		if len(ended) != 2 {
			t.Fatalf("%d handlers have ended, want the two that ran; the other tasks must not be started", len(ended))
		}
		for _, iv := range ended {
			if d := iv.end.Sub(began); !errors.Is(iv.cause, processor.ErrLeaseEnded) || d < 49*time.Second || d > 51*time.Second {
				t.Errorf("ended with %v after %v", iv.cause, d)
			}
		}
		p.Stop()
		<-p.Done
	})
}

func TestWindow15RenewalAndDeleteOfAMessageNeverCross(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(60, 1)
		slow := w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 3 * time.Second}, "UpdateMessage")
		var i atomic.Int64
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			// Handlers end all through the seconds in which the renewals are under way.
			return testworld.Pause(ctx, 15*time.Second+time.Duration(i.Add(1)%120)*100*time.Millisecond)
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{Concurrency: tasks, UntilIdle: 2 * time.Minute})
		h.Expect(t, tasks, tasks)
		if slow.Hits() < 20 {
			t.Errorf("%v: the test needs renewals", slow)
		}
		for _, r := range w.Sim.Stats().Requests {
			if (r.Operation == "DeleteMessage" || r.Operation == "UpdateMessage") && r.Status >= 400 {
				t.Errorf("a dead receipt was used: %+v", r)
			}
		}
		if s.Lost != 0 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
	})
}

func TestWindow16NothingThatIsPutBackOrQuarantinedExpires(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 3)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			switch task.N {
			case 0:
				return pump.Reject(testworld.ErrFlop)
			case 1:
				return pump.RetryAfter(30*24*time.Hour, nil) // cut to a week
			}
			return pump.RetryAfter(time.Hour, nil)
		}}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: time.Second, Retry: pump.RetryPolicy{Max: 7 * 24 * time.Hour}})
		time.Sleep(30 * 24 * time.Hour)
		proof.Same(t, len(w.Poisoned("accounta")), 1, "messages in quarantine after a month")
		proof.Same(t, w.Visible("accounta", "work-00"), 2, "messages came back")
		windowHit(t, len(w.Poisoned("accounta"))+w.Visible("accounta", "work-00"))
	})
}

func TestWindow17ATaskIsQuarantinedBeforeItsMessageIsDeleted(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		closed := w.Fault(azsim.Rule{Fault: azsim.FailBefore, Object: "work-poison"}, "PutMessage")
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return pump.Reject(testworld.ErrFlop) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(5 * time.Second)
		if closed.Hits() == 0 || w.Left() != 1 {
			t.Errorf("%v, %d left: deleted before it was in quarantine", closed, w.Left())
		}
		closed.Remove()
		// A copy whose answer is lost is put again, rather than not at all.
		lost := w.Fault(azsim.Rule{Fault: azsim.AnswerLost, Object: "work-poison", First: 1}, "PutMessage")
		time.Sleep(time.Minute)
		p.End()
		if lost.Hits() != 1 || len(w.Poisoned("accounta")) != 2 || w.Left() != 0 {
			t.Errorf("%v, %d in quarantine, %d left", lost, len(w.Poisoned("accounta")), w.Left())
		}
	})
}

func TestWindow17AMessageWhosePoisonQueueIsMissingAndMayNotBeMadeIsKept(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		poison := w.Queue("accounta", "work-poison")
		must(t, poison.Drop(t.Context()))
		w.Fault(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"}, "CreateQueue")
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return pump.Reject(testworld.ErrFlop) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(5 * time.Minute)
		if w.Left() != 1 || w.Logged("cannot quarantine") == 0 {
			t.Errorf("%d messages left, want 1, and an alarm", w.Left())
		}
		if n := h.Deliveries(); n > 8 {
			t.Errorf("%d deliveries in 5 minutes of trouble", n)
		}
		must(t, poison.Create(t.Context()))
		time.Sleep(3 * time.Minute)
		p.End()
		if w.Left() != 0 || len(w.Poisoned("accounta")) != 1 {
			t.Errorf("%d left, %d in quarantine", w.Left(), len(w.Poisoned("accounta")))
		}
	})
}

func TestWindow18ADequeueCountAloneNeverQuarantines(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 2)
		for range 2000 {
			must(t, proof.ErrOf(w.Queue("accounta", "work-00").Get(t.Context(), 1, time.Second)))
			time.Sleep(2 * time.Second)
		}
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 2, 2)
		if s.Quarantined != 0 || h.Order[0].Attempt != 1 {
			t.Errorf("%+v, attempt %d", s, h.Order[0].Attempt)
		}
		windowHit(t, w.Requests("GetMessages")-int(s.Requests["accounta"]["get"]))
	})
}

func TestWindow33AMissingQueueStopsItsShardWithAnAlarmAndIsNotMade(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		gone := w.Queue("accountb", "work-01")
		must(t, gone.Drop(t.Context()))
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(10 * time.Minute)
		if _, err := gone.Count(t.Context()); !storage.Is(err, storage.Missing) {
			t.Errorf("the queue was made: %v", err)
		}
		proof.Same(t, w.Logged("queue is missing"), 1, "alarms in 10 minutes")
		windowHit(t, w.Logged("queue is missing"))
		proof.Same(t, w.Sim.Stats().Count("accountb", "CreateQueue"), 3, "queues made")
		w.Put("accounta", "work-00", 2, 2)
		time.Sleep(10 * time.Second)
		h.Expect(t, 4, 4)
		must(t, gone.Create(t.Context()))
		w.Put("accountb", "work-01", 2, 2)
		time.Sleep(2 * time.Minute)
		h.Expect(t, 8, 8)
		p.End()
	})
}

func TestWindow38ARefusedCredentialPausesAndBurnsNoAttempt(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var refused atomic.Bool
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 30*time.Second) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		tasks := w.Spread(2, 3)
		time.Sleep(10 * time.Second)
		before := w.Requests("")
		auth := w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		refused.Store(true)
		time.Sleep(30 * time.Second) // the handlers end; deletes are refused
		if n := auth.Hits(); n > 60 {
			t.Errorf("%d requests to an account that refuses, %d in all", n, w.Requests("")-before)
		}
		if w.Logged("refuses the credential") == 0 {
			t.Error("no alarm")
		}
		auth.Remove()
		time.Sleep(5 * time.Minute)
		s := p.End()
		h.Expect(t, tasks, tasks)
		if s.Failed+s.Retried+s.Quarantined+s.Lost != 0 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
	})
}
