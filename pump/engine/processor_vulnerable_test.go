package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// Each test hits one window of vulnerability (docs/protocols.md) on the real code over
// the real wire protocol.

func TestWindow3AGetThatIsLostIsMadeAgain(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(3, 5)
		lost := w.fault(azsim.Rule{Fault: azsim.FailBefore, First: 10}, "GetMessages")
		h := &seen{}
		w.drain(h, ProcessorOptions{})
		h.expect(t, tasks, tasks)
		if lost.Hits() != 10 {
			t.Errorf("%v", lost)
		}
	})
}

func TestWindow4AnAnswerToAGetThatIsLostOrCutIsNotEmptiness(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.AnswerLost, azsim.CutBody, azsim.AnswerAfter} {
		t.Run(string(fault), func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.put("accounta", "work-00", 20, 5)
				lost := w.fault(azsim.Rule{Fault: fault, First: 3}, "GetMessages")
				h := &seen{}
				began := time.Now()
				// Idle for less than a visibility, and yet it must not leave before
				// it has an answer; then it may, for the messages are hidden.
				s := w.drain(h, ProcessorOptions{UntilIdle: 90 * time.Second})
				h.expect(t, 100, 100)
				if lost.Hits() != 3 || time.Since(began) < time.Minute {
					t.Errorf("%v after %v", lost, time.Since(began))
				}
				for _, task := range h.order {
					if task.Attempt != 1 {
						t.Errorf("a delivery that nobody saw was counted as an attempt: %d", task.Attempt)
					}
				}
				if s.Failed+s.Quarantined+s.Retried != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestWindow5AMessageThatWasTakenByAProcessThatDiedComesBack(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 32, 3)
		if ms, err := w.queue("accounta", "work-00").Get(t.Context(), 32, time.Minute); err != nil || len(ms) != 32 {
			t.Fatal(len(ms), err)
		}
		h := &seen{}
		w.drain(h, ProcessorOptions{})
		h.expect(t, 96, 96)
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
		err := pause(ctx, d)
		iv.end, iv.cause = time.Now(), context.Cause(ctx)
		is.mu.Lock()
		is.all = append(is.all, iv)
		is.mu.Unlock()
		return err
	})
}

func TestWindow6And11AHandlerEndsBeforeAnotherProcessCanGetItsTask(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 1)
		var is intervals
		began := time.Now()
		p := w.start(w.processorOf("p", is.handler("p", time.Hour), ProcessorOptions{}))
		time.Sleep(5 * time.Second)
		// p is cut off: nothing it sends arrives, as if it had died; but it has not.
		dead := w.fault(azsim.Rule{Fault: azsim.FailBefore})
		time.Sleep(time.Second)
		q := w.start(w.processorOf("q", is.handler("q", 10*time.Second), ProcessorOptions{}))
		time.Sleep(3 * time.Minute)
		dead.Remove()
		time.Sleep(time.Minute)
		q.end()
		s := p.end()

		if len(is.all) != 2 || is.all[0].instance != "p" || is.all[1].instance != "q" {
			t.Fatalf("%+v", is.all)
		}
		first, second := is.all[0], is.all[1]
		if !errors.Is(first.cause, ErrLeaseEnded) || first.end.Sub(began) > 50*time.Second+100*time.Millisecond {
			t.Errorf("p's handler ended with %v after %v; its lease less the margin is 50 s from the get", first.cause, first.end.Sub(began))
		}
		if !first.end.Before(second.began) {
			t.Errorf("both handled it: p until %v, q from %v", first.end, second.began)
		}
		if second.cause != nil || w.left() != 0 {
			t.Errorf("q ended with %v; %d messages left", second.cause, w.left())
		}
		if s.Lost != 1 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestWindow7WhatWasDoneAndNotDeletedIsDeliveredAgain(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(4, 5)
		dead := w.fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage", "UpdateMessage")
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{Grace: time.Second}))
		time.Sleep(time.Second)
		h.expect(t, tasks, tasks)
		p.end()
		dead.Remove()
		w.drain(h, ProcessorOptions{})
		h.expect(t, tasks, 2*tasks)
		if w.left() != 0 {
			t.Errorf("%d messages left", w.left())
		}
	})
}

func TestWindows8And9ADeleteThatIsLostEitherWayIsMadeAgain(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost, azsim.AnswerAfter, azsim.Answer, azsim.HangAfter} {
		t.Run(string(fault), func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				tasks := w.spread(4, 5)
				lost := w.fault(azsim.Rule{Fault: fault, First: 12}, "DeleteMessage")
				h := &seen{}
				s := w.drain(h, ProcessorOptions{})
				h.expect(t, tasks, tasks)
				if lost.Hits() != 12 || w.left() != 0 || s.Lost != 0 {
					t.Errorf("%v, %d left, %+v", lost, w.left(), s)
				}
			})
		})
	}
}

func TestWindow10AReceiptIsGoodAfterItsLeaseWhileNobodyElseGetsTheMessage(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 5, 2)
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		dark := w.fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage", "UpdateMessage")
		time.Sleep(2 * time.Second)
		closed := w.fault(azsim.Rule{Fault: azsim.Answer}, "GetMessages")
		time.Sleep(2 * time.Minute) // twice the lease
		if w.left() != 5 {
			t.Fatalf("%d messages, want all 5 undeleted", w.left())
		}
		dark.Remove()
		time.Sleep(30 * time.Second)
		closed.Remove()
		time.Sleep(time.Minute)
		p.end()
		h.expect(t, 10, 10)
		if w.left() != 0 {
			t.Errorf("%d messages left", w.left())
		}
	})
}

func TestWindow12AMessageThatIsBackEarlyLosesNothing(t *testing.T) {
	twice := 0 // in how many worlds it was back before it was renewed
	for seed := range uint64(8) {
		inSharedWorldOf(t, 1, 1, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *world) {
			w.put("accounta", "work-00", 1, 1)
			var is intervals
			early := w.fault(azsim.Rule{Fault: azsim.ReappearEarly, First: 1}, "GetMessages")
			p := w.start(w.processorOf("p", is.handler("p", 5*time.Minute), ProcessorOptions{}))
			time.Sleep(time.Second)
			closed := w.fault(azsim.Rule{Fault: azsim.Answer}, "GetMessages") // p gets nothing more
			q := w.start(w.processorOf("q", is.handler("q", 90*time.Second), ProcessorOptions{}))
			time.Sleep(6 * time.Minute)
			closed.Remove()
			s := p.end()
			q.end()
			if early.Hits() != 1 || w.left() != 0 {
				t.Errorf("seed %d: %v, %d messages left", seed, early, w.left())
			}
			if len(is.all) == 2 {
				twice++
			}
			for _, iv := range is.all {
				// p's next renewal says that it has lost it; that is no failure.
				if iv.instance == "p" && len(is.all) == 2 && (!errors.Is(iv.cause, ErrLeaseEnded) || s.Lost != 1 || s.Failed != 0) {
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
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.put("accounta", "work-00", 3, 2)
				lost := w.fault(azsim.Rule{Fault: fault, First: 6}, "UpdateMessage")
				h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, 5*time.Minute) }}
				s := w.drain(h, ProcessorOptions{})
				h.expect(t, 6, 6)
				if s.Handled != 6 || s.Lost != 0 || lost.Hits() != 6 {
					t.Errorf("%v, %+v", lost, s)
				}
			})
		})
	}
}

func TestWindow14AfterALostAnswerToARenewalTheMessageIsNotDeletedAndComesBack(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 1)
		lost := w.fault(azsim.Rule{Fault: azsim.AnswerLost, First: 1}, "UpdateMessage")
		var is intervals
		began := time.Now()
		first := is.handler("first", 40*time.Second) // done after the lost answer, before the old deadline
		var n atomic.Int64
		s := w.drain(pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
			if n.Add(1) == 1 {
				return first.Handle(ctx, task)
			}
			return nil
		}), ProcessorOptions{})
		if lost.Hits() != 1 || len(is.all) != 1 || n.Load() != 2 {
			t.Fatalf("%v, %v, %d deliveries", lost, is.all, n.Load())
		}
		if is.all[0].cause != nil || is.all[0].end.Sub(began) < 40*time.Second {
			t.Errorf("the handler was ended although the message was still hidden: %+v", is.all[0])
		}
		if got := s.Requests["accounta"]["delete"]; got != 1 || w.left() != 0 {
			t.Errorf("%d deletes, %d left; the first delivery has no receipt to delete with", got, w.left())
		}
	})
}

func TestWindow14HandlersEndAtTheOldDeadlineAfterALostAnswerToARenewal(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 4)
		w.fault(azsim.Rule{Fault: azsim.AnswerLost, First: 1}, "UpdateMessage")
		var is intervals
		began := time.Now()
		h := is.handler("p", 5*time.Minute)
		p := w.start(w.processor(h, ProcessorOptions{Concurrency: 2}))
		time.Sleep(59 * time.Second)
		ended := is.get()
		if len(ended) != 2 {
			t.Fatalf("%d handlers have ended, want the two that ran; the other tasks must not be started", len(ended))
		}
		for _, iv := range ended {
			if d := iv.end.Sub(began); !errors.Is(iv.cause, ErrLeaseEnded) || d < 49*time.Second || d > 51*time.Second {
				t.Errorf("ended with %v after %v", iv.cause, d)
			}
		}
		p.stop()
		<-p.done
	})
}

func TestWindow15RenewalAndDeleteOfAMessageNeverCross(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(60, 1)
		slow := w.fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 3 * time.Second}, "UpdateMessage")
		var i atomic.Int64
		h := &seen{work: func(ctx context.Context, _ *pump.Task) error {
			// Handlers end all through the seconds in which the renewals are under way.
			return pause(ctx, 15*time.Second+time.Duration(i.Add(1)%120)*100*time.Millisecond)
		}}
		s := w.drain(h, ProcessorOptions{Concurrency: tasks})
		h.expect(t, tasks, tasks)
		if slow.Hits() < 20 {
			t.Errorf("%v: the test needs renewals", slow)
		}
		for _, r := range w.sim.Stats().Requests {
			if (r.Operation == "DeleteMessage" || r.Operation == "UpdateMessage") && r.Status >= 400 {
				t.Errorf("a dead receipt was used: %+v", r)
			}
		}
		if s.Lost != 0 || w.left() != 0 {
			t.Errorf("%d left, %+v", w.left(), s)
		}
	})
}

func TestWindow16NothingThatIsPutBackOrQuarantinedExpires(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 3)
		h := &seen{work: func(_ context.Context, task *pump.Task) error {
			switch task.N {
			case 0:
				return pump.Reject(errFlop)
			case 1:
				return pump.RetryAfter(30*24*time.Hour, nil) // cut to a week
			}
			return pump.RetryAfter(time.Hour, nil)
		}}
		w.drain(h, ProcessorOptions{UntilIdle: time.Second})
		time.Sleep(30 * 24 * time.Hour)
		if got := len(w.poisoned("accounta")); got != 1 {
			t.Errorf("%d messages in quarantine after a month, want 1", got)
		}
		if got := w.visible("accounta", "work-00"); got != 2 {
			t.Errorf("%d messages came back, want 2", got)
		}
		windowHit(t, len(w.poisoned("accounta"))+w.visible("accounta", "work-00"))
	})
}

func TestWindow17ATaskIsQuarantinedBeforeItsMessageIsDeleted(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 1)
		closed := w.fault(azsim.Rule{Fault: azsim.FailBefore, Object: "work-poison"}, "PutMessage")
		h := &seen{work: func(context.Context, *pump.Task) error { return pump.Reject(errFlop) }}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(5 * time.Second)
		if closed.Hits() == 0 || w.left() != 1 {
			t.Errorf("%v, %d left: deleted before it was in quarantine", closed, w.left())
		}
		closed.Remove()
		// A copy whose answer is lost is put again, rather than not at all.
		lost := w.fault(azsim.Rule{Fault: azsim.AnswerLost, Object: "work-poison", First: 1}, "PutMessage")
		time.Sleep(time.Minute)
		p.end()
		if lost.Hits() != 1 || len(w.poisoned("accounta")) != 2 || w.left() != 0 {
			t.Errorf("%v, %d in quarantine, %d left", lost, len(w.poisoned("accounta")), w.left())
		}
	})
}

func TestWindow17AMessageWhosePoisonQueueIsMissingAndMayNotBeMadeIsKept(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 1)
		poison := w.queue("accounta", "work-poison")
		if err := poison.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.fault(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"}, "CreateQueue")
		h := &seen{work: func(context.Context, *pump.Task) error { return pump.Reject(errFlop) }}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(5 * time.Minute)
		if w.left() != 1 || w.logged("cannot quarantine") == 0 {
			t.Errorf("%d messages left, want 1, and an alarm", w.left())
		}
		if n := h.deliveries(); n > 8 {
			t.Errorf("%d deliveries in 5 minutes of trouble", n)
		}
		if err := poison.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		p.end()
		if w.left() != 0 || len(w.poisoned("accounta")) != 1 {
			t.Errorf("%d left, %d in quarantine", w.left(), len(w.poisoned("accounta")))
		}
	})
}

func TestWindow18ADequeueCountAloneNeverQuarantines(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 2)
		for range 2000 {
			if _, err := w.queue("accounta", "work-00").Get(t.Context(), 1, time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		h := &seen{}
		s := w.drain(h, ProcessorOptions{})
		h.expect(t, 2, 2)
		if s.Quarantined != 0 || h.order[0].Attempt != 1 {
			t.Errorf("%+v, attempt %d", s, h.order[0].Attempt)
		}
		windowHit(t, w.requests("GetMessages")-int(s.Requests["accounta"]["get"]))
	})
}

func TestWindow33AMissingQueueStopsItsShardWithAnAlarmAndIsNotMade(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		gone := w.queue("accountb", "work-01")
		if err := gone.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(10 * time.Minute)
		if _, err := gone.Count(t.Context()); !storage.Is(err, storage.Missing) {
			t.Errorf("the queue was made: %v", err)
		}
		if n := w.logged("queue is missing"); n != 1 {
			t.Errorf("%d alarms in 10 minutes, want 1", n)
		}
		windowHit(t, w.logged("queue is missing"))
		if n := w.sim.Stats().Count("accountb", "CreateQueue"); n != 3 {
			t.Errorf("%d queues made, want those of the distributor", n)
		}
		w.put("accounta", "work-00", 2, 2)
		time.Sleep(10 * time.Second)
		h.expect(t, 4, 4)
		if err := gone.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.put("accountb", "work-01", 2, 2)
		time.Sleep(2 * time.Minute)
		h.expect(t, 8, 8)
		p.end()
	})
}

func TestWindow38ARefusedCredentialPausesAndBurnsNoAttempt(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var refused atomic.Bool
		h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, 30*time.Second) }}
		p := w.start(w.processor(h, ProcessorOptions{}))
		tasks := w.spread(2, 3)
		time.Sleep(10 * time.Second)
		before := w.requests("")
		auth := w.fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		refused.Store(true)
		time.Sleep(30 * time.Second) // the handlers end; deletes are refused
		if n := auth.Hits(); n > 60 {
			t.Errorf("%d requests to an account that refuses, %d in all", n, w.requests("")-before)
		}
		if w.logged("refuses the credential") == 0 {
			t.Error("no alarm")
		}
		auth.Remove()
		time.Sleep(5 * time.Minute)
		s := p.end()
		h.expect(t, tasks, tasks)
		if s.Failed+s.Retried+s.Quarantined+s.Lost != 0 || w.left() != 0 {
			t.Errorf("%d left, %+v", w.left(), s)
		}
	})
}
