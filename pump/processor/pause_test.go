package processor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/workloads"
)

// twoBeats is within what time nothing more is started.
const twoBeats = 10 * time.Second

// pause pauses the workload as an operator does.
func pause(w *testworld.World) {
	w.T.Helper()
	if c, err := workloads.Pause(w.T.Context(), w.Operator(), "me", workloads.PauseOptions{}); err != nil || !c.Paused || !c.Changed || c.By != "me" {
		w.T.Fatalf("%+v, %v", c, err)
	}
}

// resume lets it go on.
func resume(w *testworld.World) {
	w.T.Helper()
	if c, err := workloads.Resume(w.T.Context(), w.Operator()); err != nil || c.Paused || !c.Changed {
		w.T.Fatalf("%+v, %v", c, err)
	}
}

// begun are when handlers were given tasks, in order.
type begun struct {
	testworld.Seen
	at []time.Time
}

func (b *begun) Handle(ctx context.Context, t *pump.Task) error {
	b.Mu.Lock()
	b.at = append(b.at, time.Now())
	b.Mu.Unlock()
	return b.Seen.Handle(ctx, t)
}

// between counts the tasks that were begun after a time and before another.
func (b *begun) between(from, to time.Time) (n int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for _, at := range b.at {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// At any moment: after two beats nothing is started, what was begun is finished, and after the
// resume each task is done that was not, once and in its first attempt.
func TestAPauseAtAnyMomentLosesAndDoublesNothing(t *testing.T) {
	proof.Only(t)
	ways := []struct {
		name string
		spec workload.Spec
		o    processor.Options
		work time.Duration
	}{
		{"once", workload.Spec{Delivery: string(pump.Once)}, processor.Options{Concurrency: 4}, 700 * time.Millisecond},
		{"at least once", workload.Spec{}, processor.Options{Concurrency: 16}, 3 * time.Second},
		{"without owners", workload.Spec{Shared: true}, processor.Options{Concurrency: 4}, 700 * time.Millisecond},
		{"paced", workload.Spec{Delivery: string(pump.Once)}, processor.Options{Concurrency: 16, MaxRate: 4}, 100 * time.Millisecond},
	}
	for _, way := range ways {
		for _, moment := range []time.Duration{0, 20 * time.Millisecond, 1200 * time.Millisecond, 4 * time.Second, 11300 * time.Millisecond, 25 * time.Second} {
			t.Run(fmt.Sprint(way.name, " ", moment), func(t *testing.T) {
				testworld.In(t, way.spec, 2, 2, nil, func(t *testing.T, w *testworld.World) {
					tasks := w.PutHome(w.EverySegment(), 4)
					h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, way.work) }}}
					a, b := testworld.Begun(w, processor.New, "a", h, way.o), testworld.Begun(w, processor.New, "b", h, way.o)
					time.Sleep(3*time.Second + moment)
					pause(w)
					at := time.Now()
					time.Sleep(3 * time.Minute)
					if n := h.between(at.Add(twoBeats), time.Now()); n > 0 {
						t.Errorf("%d tasks were begun later than two beats after the pause", n)
					}
					done := h.Tasks()
					if done == tasks {
						t.Fatal("all was done before the pause")
					}
					standsStill(w, 2)
					resume(w)
					w.Within(20*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
					time.Sleep(30 * time.Second)
					sa, sb := a.End(), b.End()
					undisturbed(w, h, tasks, sa, sb)
				})
			})
		}
	}
}

// undisturbed checks that each of so many tasks was done once, in its first attempt, and that nothing
// else became of any.
func undisturbed(w *testworld.World, h *begun, tasks int, ended ...processor.Summary) {
	w.T.Helper()
	h.Expect(w.T, tasks, tasks)
	for _, task := range h.Order {
		proof.Same(w.T, task.Attempt, 1, "a pause was counted as an attempt", task)
	}
	for _, s := range ended {
		if s.Failed+s.Quarantined+s.Split+s.Lost > 0 {
			w.T.Errorf("%+v", s)
		}
	}
	w.ExpectEmpty()
}

// standsStill checks that so many processors say that nothing of the workload is at work, and the
// status says since when.
func standsStill(w *testworld.World, processors int) {
	w.T.Helper()
	s, err := status.Read(w.T.Context(), w.Operator(), status.Options{})
	proof.Must(w.T, err)
	if s.PausedSince == nil || s.PausedBy != "me" || time.Since(*s.PausedSince) < 3*time.Minute {
		w.T.Errorf("paused since %v by %q", s.PausedSince, s.PausedBy)
	}
	still := 0
	for _, i := range s.Instances {
		if i.Role == "processor" && i.Paused {
			still++
		}
	}
	proof.Same(w.T, still, processors, "processors stand still")
	if n := w.Left(); n == 0 {
		w.T.Error("nothing waits")
	}
}

// A pause that is told is followed at once. One that stands keeps its mark, and a processor that
// comes then gets nothing and is not idle.
func TestAPausedWorkloadStaysSoForThoseWhoCome(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &begun{}
		push := &switchboard{}
		p := push.join(w, w.Config("a", 2), h, processor.Options{})
		at := testworld.Start(w.T, p)
		time.Sleep(time.Minute + time.Millisecond)
		operator := w.Operator()
		operator.Nudge = push.carry
		first, err := workloads.Pause(t.Context(), operator, "me", workloads.PauseOptions{})
		if err != nil || first.Processors != 1 || first.Nudged != 1 {
			t.Fatalf("%+v, %v", first, err)
		}
		time.Sleep(time.Second)
		if s := p.State(); s.PausedSince == nil || s.PausedBy != "me" || !s.Ready || s.Phase != "working" {
			t.Errorf("%+v", s)
		}
		gets := w.Requests("GetMessages")
		tasks := w.Spread(20, 5)
		again, err := workloads.Pause(t.Context(), operator, "another", workloads.PauseOptions{Wait: true})
		if err != nil || again.Changed || again.By != "me" || !again.Since.Equal(*first.Since) || len(again.Working) > 0 {
			t.Errorf("%+v, %v", again, err)
		}
		comes := testworld.Begun(w, processor.New, "b", h, processor.Options{UntilIdle: 20 * time.Second})
		time.Sleep(10 * time.Minute)
		if n := w.Requests("GetMessages") - gets; n > 0 || h.Tasks() > 0 {
			t.Errorf("%d gets and %d tasks while it is paused", n, h.Tasks())
		}
		resume(w)
		resumed := time.Now()
		w.Within(twoBeats, "all is done", func() bool { return h.Tasks() == tasks })
		<-comes.Done
		if d := time.Since(resumed); d < 20*time.Second || d > time.Minute {
			t.Errorf("the processor that leaves when it is idle left %v after the resume", d)
		}
		if c, err := workloads.Resume(t.Context(), operator); err != nil || c.Changed || c.Paused {
			t.Errorf("%+v, %v", c, err)
		}
		at.End()
		h.Expect(t, tasks, tasks)
	})
}

// Messages that wait in hand go back at once, however many they are.
func TestAPausedProcessorPutsBackWhatItHasNotStarted(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.PutHome([]uint32{3}, 100)
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Second) }}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1})
		time.Sleep(8 * time.Second)
		pause(w)
		at := time.Now()
		time.Sleep(time.Minute)
		if n := h.between(at.Add(twoBeats), time.Now()); n > 0 || h.Tasks() == 0 {
			t.Errorf("%d tasks were begun later than two beats after the pause, %d in all", n, h.Tasks())
		}
		proof.Same(t, w.Visible("accounta", "work-00"), 1, "messages are visible")
		resume(w)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		time.Sleep(10 * time.Second)
		if s := p.End(); s.Failed > 0 || s.Duplicates > 0 {
			t.Errorf("%+v", s)
		}
		h.Expect(t, tasks, tasks)
		w.ExpectEmpty()
	})
}

// A get that is answered after the pause was seen. What it brings is not even opened: else a message
// that is damaged would be in quarantine by then.
func TestWhatAGetBringsOfAPausedWorkloadGoesBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &begun{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Visibility: 5 * time.Minute})
		time.Sleep(4 * time.Second)
		damaged := w.Text(4, nil, 0, 1)
		damaged[len(damaged)-20] ^= 1
		w.PutText("accounta", "work-00", w.Text(3, nil, 0, 1))
		w.PutText("accounta", "work-00", damaged)
		slow := w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 9 * time.Second}, "GetMessages")
		for slow.Hits() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		pause(w)
		time.Sleep(12 * time.Second)
		slow.Remove()
		if n := w.Visible("accounta", "work-00"); n != 2 || h.Tasks() > 0 {
			t.Errorf("%d messages are visible, %d tasks were begun", n, h.Tasks())
		}
		resume(w)
		w.Within(twoBeats, "all is done", func() bool { return h.Tasks() == 2 })
		if s := p.End(); s.Envelopes != 4 || s.Passed > 0 || s.Quarantined != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// A mark is written once, also if its answer is lost, and a change of the map keeps it.
func TestAPauseWhoseAnswerIsLostIsOne(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.AnswerLost, First: 1}, "UpdateEntity", "MergeEntity")
		pause(w)
		w.DrainAccount("accountb")
		if p := w.View().Workload.Paused; !p.Is() || p.By != "me" {
			t.Errorf("%+v", p)
		}
		w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.AnswerLost, First: 1}, "UpdateEntity", "MergeEntity")
		resume(w)
		if p := w.View().Workload.Paused; p.Is() {
			t.Errorf("%+v", p)
		}
	})
}

// While nothing is read no run ends for being quiet.
func TestNoRunEndsForBeingQuietWhileItIsPaused(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &begun{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Minute)
		pause(w)
		time.Sleep(15 * time.Second)
		tasks := w.PutHome(w.EverySegment()[:8], 5)
		proof.Must(t, w.AllRuns().Break(t.Context(), w.Run, "its source is gone"))
		time.Sleep(3 * time.Hour)
		if run := w.RunRow(w.Run); run.Over || run.State != workload.RunBroken {
			t.Errorf("%+v", run)
		}
		resume(w)
		w.Within(time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		p.End()
		if list := w.Condemned(); len(list) > 0 {
			t.Errorf("%v", list)
		}
	})
}

// A suspect whose attempt is just being written down when the pause is seen is not started either.
func TestASuspectIsNotTriedInAPausedWorkload(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutSuspects(testworld.SomeSegment, 1, 1)
		mark := w.Fault(azsim.Rule{Fault: azsim.DelayBefore, Delay: 8 * time.Second, First: 1}, "UpdateMessage")
		h := &begun{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(time.Minute, "the attempt is being written down", func() bool { return mark.Hits() > 0 })
		pause(w)
		w.Within(6*time.Second, "the pause is seen", func() bool { return p.Of.State().PausedSince != nil })
		time.Sleep(3 * time.Minute)
		h.Expect(t, 0, 0)
		resume(w)
		w.Within(time.Minute, "it is done", func() bool { return w.Left() == 0 })
		h.Expect(t, 1, 1)
		proof.Same(t, h.Order[0].Attempt, 2, "the attempt")
		p.End()
	})
}
