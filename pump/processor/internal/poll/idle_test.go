package poll_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

func TestUntilIdleLeavesOnlyWhenEveryQueueHasSaidThatItIsEmpty(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(2, 2)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 7*time.Second) }}
		began := time.Now()
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second})
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
			testworld.In(t, testworld.Plain, 1, 3, nil, func(t *testing.T, w *testworld.World) {
				tasks := w.Spread(1, 2)
				h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
					if task.Attempt == 1 && task.N == 0 {
						return pump.RetryAfter(delay, nil) // a whole number of seconds, rounded up
					}
					return nil
				}}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second})
				h.Expect(t, tasks, tasks+3)
				proof.Same(t, w.Left(), 0, "messages left", s)
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
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				tasks := w.Spread(3, 2)
				lost := w.Fault(trouble, trouble.Operations...)
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 30*time.Second) }}
				began := time.Now()
				testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second})
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return pump.RetryAfter(time.Hour, nil) }}
		began := time.Now()
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second})
		if d := time.Since(began); d > 10*time.Second || s.Retried != 1 || w.Left() != 1 {
			t.Errorf("after %v: %+v", d, s)
		}
		proof.Same(t, w.Logged("tasks that were put back come back later"), 1,
			"nothing says that a task is left")
	})
}

func TestUntilIdleNamesTheQueuesThatDidNotAnswer(t *testing.T) {
	for name, trouble := range map[string]func(w *testworld.World){
		"dark": func(w *testworld.World) { w.Sim.Blackout("accountb", true) },
		"forbidden": func(w *testworld.World) {
			w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		},
		"missing": func(w *testworld.World) {
			for _, q := range []string{"work-00", "work-01"} {
				proof.Must(w.T, w.Queue("accountb", q).Drop(w.T.Context()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 3, 3)
				trouble(w)
				h := &testworld.Seen{}
				began := time.Now()
				s, err := testworld.Made(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second}).Run(t.Context())
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

// A get that waits for a token until its time is over is never sent, and is trouble of its queue.
func TestUntilIdleNamesTheQueuesForWhichNoTokenComes(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 3, 3)
		cfg := w.Config("p", 2)
		w.WithoutToken(&cfg, 1)
		h := &testworld.Seen{}
		p, err := processor.New(cfg, h, processor.Options{UntilIdle: 5 * time.Second})
		proof.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		s, err := p.Run(ctx)
		if s.Handled != 9 || ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "accountb/work-00") {
			t.Errorf("%v: %+v", err, s)
		}
		proof.Same(t, w.Logged("work-00: canceled: it waited for a token") > 0, true, "the log says it")
		for _, a := range p.State().Accounts {
			proof.Same(t, a.DownSeconds > 20, a.Name == "accountb", "is silent:", a.Name)
		}
	})
}

// What it has been given while it waited at the gate shows with the first look
// afterwards, however long that takes.
func TestUntilIdleWaitsForTheSegmentsOfAProcessorThatHasPassedItsGate(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Gate: "go", UntilIdle: 2 * time.Second})
		time.Sleep(10 * time.Second)
		tasks := w.PutHome(w.EverySegment()[:8], 1)
		// The gate opens, and then the table does not answer for a while.
		slow := w.Fault(azsim.Rule{Service: "table", Fault: azsim.DelayBefore, Delay: 6 * time.Second}, "UpdateEntity", "MergeEntity")
		release(w)
		time.Sleep(15 * time.Second)
		slow.Remove()
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

func TestUntilIdleNamesTheQueuesThatItHasNoCredentialsFor(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard { return shards[:1] }) // only accounta
		cfg := w.Config("p", 1)
		cfg.Accounts = cfg.Accounts[:1]
		pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: 20 * time.Second})
		proof.Must(t, err)
		p := testworld.Start(w.T, pr)
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
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		text := w.Envelope(7, 3)
		for range 2 {
			w.PutText("accounta", "work-00", text)
		}
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 100*time.Millisecond) }}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 500 * time.Millisecond})
		h.Expect(t, 3, 3)
		if w.Left() != 0 || s.Duplicates != 3 {
			t.Errorf("%d messages left, %+v", w.Left(), s)
		}
	})
}

func release(w *testworld.World) {
	w.T.Helper()
	proof.Must(w.T, coordination.NewGate(queues.Open(&w.Cfg).Control, "work", "go").Release(w.T.Context(), "test"))
}

// These are figures of the code under test, which no caller can name.
const (
	pollIdleLeast = 5 * time.Second
	pollIdleRate  = 10
)

func TestUntilIdleWaitsForSegmentsThatAreOnTheirWay(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p := testworld.Begun(w, processor.New, "p", hs.Handler("p", 30*time.Second), processor.Options{Concurrency: 256})
		w.Settled(1)
		tasks := w.PutHome(w.EverySegment(), 2)
		time.Sleep(2 * time.Second)
		// p has it all in hand for half a minute; q is to have half of the segments.
		q := testworld.Begun(w, processor.New, "q", hs.Handler("q", 0), processor.Options{UntilIdle: 5 * time.Second})
		time.Sleep(10 * time.Second)
		select {
		case <-q.Done:
			t.Errorf("q has left while segments were on their way to it: %+v", q.Summary)
		default:
		}
		p.Stop()
		<-p.Done
		more := w.PutHome(w.EverySegment(), 1)
		<-q.Done
		if hs.Tasks() != tasks+more || w.Left() != 0 || q.Err != nil {
			t.Errorf("%d of %d tasks, %d messages left, %v", hs.Tasks(), tasks+more, w.Left(), q.Err)
		}
		hs.Check(t)
	})
}

func TestUntilIdleAProcessorWithoutSegmentsLeaves(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		w.Settled(1)
		// More processors than segments there are to share.
		var rest []*testworld.Started[*processor.Processor, processor.Summary]
		for i := range 70 {
			rest = append(rest, testworld.Begun(w, processor.New, fmt.Sprintf("q%02d", i), &testworld.Seen{}, processor.Options{UntilIdle: 20 * time.Second}))
		}
		began := time.Now()
		for _, q := range rest {
			<-q.Done
			if q.Err != nil {
				t.Error(q.Err)
			}
		}
		if d := time.Since(began); d > 3*time.Minute {
			t.Errorf("the last has left after %v", d)
		}
		v := w.Settled(1)
		proof.Same(t, len(testworld.Owns(v, "p")), 64, "segments are p's")
		p.End()
	})
}

func TestP82ANudgeMakesAQueueDueAndCostsLittleHoweverManyArrive(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		time.Sleep(5 * time.Minute) // to the longest back-off
		for range 5 {
			w.Put("accounta", "work-02", 1, 1)
			before := h.Deliveries()
			put := time.Now()
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"})
			for h.Deliveries() == before {
				time.Sleep(time.Millisecond)
			}
			if d := time.Since(put); d > 50*time.Millisecond {
				t.Errorf("begun %v after the nudge", d)
			}
			time.Sleep(time.Minute)
		}
		before := w.Requests("GetMessages")
		for range 10_000 {
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"})
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-99"})
			p.Of.Nudged(pump.Nudge{Queue: "elsewhere/work-02"})
			time.Sleep(time.Millisecond)
		}
		if n := w.Requests("GetMessages") - before; n < 20 || n > 60 {
			t.Errorf("%d gets in 10 s of a thousand nudges a second", n)
		}
		// A queue in trouble is left to its back-off.
		dark := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "GetMessages")
		time.Sleep(time.Minute)
		hits := dark.Hits()
		for range 10_000 {
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"})
			time.Sleep(time.Millisecond)
		}
		if n := dark.Hits() - hits; n > 4*10*2/3 { // four queues, each half of pollTroubled apart or more
			t.Errorf("%d gets in 10 s of queues in trouble", n)
		}
		p.End()
		p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"}) // no process is there
	})
}

func TestAnIdleFleetCostsABoundedNumberOfGetsTogether(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct{ accounts, queues, processors int }{{8, 4, 10}, {1, 1, 16}, {1, 4, 40}} {
		t.Run(fmt.Sprintf("%d queues, %d processors", c.accounts*c.queues, c.processors), func(t *testing.T) {
			testworld.In(t, testworld.Plain, c.accounts, c.queues, nil, func(t *testing.T, w *testworld.World) {
				var all []*testworld.Started[*processor.Processor, processor.Summary]
				for i := range c.processors {
					all = append(all, testworld.Begun(w, processor.New, fmt.Sprintf("p%02d", i), &testworld.Seen{}, processor.Options{}))
				}
				w.Settled(c.processors)
				time.Sleep(3 * time.Minute)
				before := w.Requests("GetMessages")
				time.Sleep(5 * time.Minute)
				rate := float64(w.Requests("GetMessages")-before) / 300
				if rate > 1.2*pollIdleRate || rate < 0.1 {
					t.Errorf("%.1f gets a second", rate)
				}
				t.Logf("%.1f gets a second", rate)
				testworld.StopAll(all)
			})
		})
	}
}
