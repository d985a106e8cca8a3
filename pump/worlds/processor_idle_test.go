package worlds

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

func TestUntilIdleLeavesOnlyWhenEveryQueueHasSaidThatItIsEmpty(t *testing.T) {
	inWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(2, 2)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 7*time.Second) }}
		began := time.Now()
		w.drain(h, processor.Options{UntilIdle: 5 * time.Second})
		h.Expect(t, tasks, tasks)
		if d := time.Since(began); d < 12*time.Second || d > 13*time.Second {
			t.Errorf("left after %v, want 7 s of work and 5 s", d)
		}
	})
}

func TestUntilIdleAsksEveryQueueOnceMoreAtTheEnd(t *testing.T) {
	for after := range 10 {
		// Back within UntilIdle, and perhaps just after a queue said that it is empty.
		delay := 2*time.Second + time.Duration(after)*200*time.Millisecond
		t.Run(delay.String(), func(t *testing.T) {
			inWorld(t, 1, 3, nil, func(t *testing.T, w *world) {
				tasks := w.Spread(1, 2)
				h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
					if task.Attempt == 1 && task.N == 0 {
						return pump.RetryAfter(delay, nil) // a whole number of seconds, rounded up
					}
					return nil
				}}
				s := w.drain(h, processor.Options{UntilIdle: 5 * time.Second})
				h.Expect(t, tasks, tasks+3)
				if w.Left() != 0 {
					t.Errorf("%d messages left, %+v", w.Left(), s)
				}
			})
		})
	}
}

func TestUntilIdleWaitsForWhatTheProcessorItselfMayHaveHidden(t *testing.T) {
	for name, trouble := range map[string]azsim.Rule{
		"a get without an answer":     {Fault: azsim.AnswerLost, First: 1, Operations: []string{"GetMessages"}},
		"a get whose answer is cut":   {Fault: azsim.CutBody, First: 2, Operations: []string{"GetMessages"}},
		"a renewal without an answer": {Fault: azsim.AnswerLost, First: 1, Operations: []string{"UpdateMessage"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				tasks := w.Spread(3, 2)
				lost := w.Fault(trouble, trouble.Operations...)
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 30*time.Second) }}
				began := time.Now()
				w.drain(h, processor.Options{UntilIdle: 5 * time.Second})
				if lost.Hits() == 0 || h.Tasks() != tasks || w.Left() != 0 {
					t.Errorf("%v: %d of %d tasks, %d messages left", lost, h.Tasks(), tasks, w.Left())
				}
				if d := time.Since(began); d > 3*time.Minute {
					t.Errorf("left after %v", d)
				}
			})
		})
	}
}

func TestUntilIdleSaysWhatItLeavesForLater(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 1, 1)
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return pump.RetryAfter(time.Hour, nil) }}
		began := time.Now()
		s := w.drain(h, processor.Options{UntilIdle: 5 * time.Second})
		if d := time.Since(began); d > 10*time.Second || s.Retried != 1 || w.Left() != 1 {
			t.Errorf("after %v: %+v", d, s)
		}
		if w.Logged("tasks that were put back come back later") != 1 {
			t.Error("nothing says that a task is left")
		}
	})
}

func TestUntilIdleNamesTheQueuesThatDidNotAnswer(t *testing.T) {
	for name, trouble := range map[string]func(w *world){
		"dark": func(w *world) { w.Sim.Blackout("accountb", true) },
		"forbidden": func(w *world) {
			w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		},
		"missing": func(w *world) {
			for _, q := range []string{"work-00", "work-01"} {
				must(w.T, w.Queue("accountb", q).Drop(w.T.Context()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				w.Put("accounta", "work-00", 3, 3)
				trouble(w)
				h := &testworld.Seen{}
				began := time.Now()
				s, err := w.processor(h, processor.Options{UntilIdle: 5 * time.Second}).Run(t.Context())
				if err == nil || !strings.Contains(err.Error(), "accountb/work-00") || strings.Contains(err.Error(), "accounta") {
					t.Errorf("error %v", err)
				}
				if s.Handled != 9 || time.Since(began) > time.Minute {
					t.Errorf("after %v: %+v", time.Since(began), s)
				}
			})
		})
	}
}

// What it has been given while it waited at the gate shows with the first look
// afterwards, however long that takes.
func TestUntilIdleWaitsForTheSegmentsOfAProcessorThatHasPassedItsGate(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{Gate: "go", UntilIdle: 2 * time.Second})
		time.Sleep(10 * time.Second)
		tasks := w.PutHome(w.EverySegment()[:8], 1)
		// The gate opens, and then the table does not answer for a while.
		slow := w.Fault(azsim.Rule{Service: "table", Fault: azsim.DelayBefore, Delay: 6 * time.Second}, "UpdateEntity", "MergeEntity")
		w.release()
		time.Sleep(15 * time.Second)
		slow.Remove()
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

func TestUntilIdleNamesTheQueuesThatItHasNoCredentialsFor(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard { return shards[:1] }) // only accounta
		cfg := w.Config("p", 1)
		cfg.Accounts = cfg.Accounts[:1]
		pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: 20 * time.Second})
		must(t, err)
		p := w.start(pr)
		w.Settled(1)
		w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard { return append(shards, setup.Shards(w.Cfg)[1:]...) })
		w.PutHome(w.EverySegment(), 1)
		time.Sleep(13 * time.Second)
		if s := pr.State(); s.Ready || !slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.Contains(r, "accountb/work-00") }) {
			t.Errorf("ready %v, %q", s.Ready, s.Reasons)
		}
		if m := w.View().Members[0]; !strings.Contains(m.Trouble, "accountb/work-00") {
			t.Errorf("its beat says %q", m.Trouble)
		}
		<-p.Done
		if p.Err == nil || !strings.Contains(p.Err.Error(), "accountb/work-00") {
			t.Errorf("it has left with %d messages in its queues: %v", w.Left(), p.Err)
		}
	})
}

// A message that the processor put back for a moment, here a copy of one in hand, is its own to
// settle when it comes back. The processor once left without it, when it was to leave after less
// than that moment.
func TestUntilIdleWaitsForWhatTheProcessorPutBackForAMoment(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		text := w.Envelope(7, 3)
		for range 2 {
			w.PutText("accounta", "work-00", text)
		}
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 100*time.Millisecond) }}
		s := w.drain(h, processor.Options{UntilIdle: 500 * time.Millisecond})
		h.Expect(t, 3, 3)
		if w.Left() != 0 || s.Duplicates != 3 {
			t.Errorf("%d messages left, %+v", w.Left(), s)
		}
	})
}
