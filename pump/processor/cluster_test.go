package processor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestS1EachTaskIsHandledByTheOwnerOfItsSegment(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p, q := testworld.Begun(w, processor.New, "p", hs.Handler("p", 0), processor.Options{}), testworld.Begun(w, processor.New, "q", hs.Handler("q", 0), processor.Options{})
		v := w.Settled(2)
		time.Sleep(10 * time.Second) // both have seen it
		tasks := 0
		for range 20 {
			tasks += w.PutHome(w.EverySegment(), 3)
			time.Sleep(5 * time.Second)
		}
		sp, sq := p.End(), q.End()
		hs.Check(t)
		if hs.Tasks() != tasks || w.Left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.Tasks(), tasks, w.Left())
		}
		for _, h := range hs.Get() {
			if owner, _ := v.OwnerOf(h.Segment); owner.Instance != h.Instance || v.Owners[h.Segment].Epoch != h.Epoch {
				t.Fatalf("segment %d of %s, epoch %d, was handled by %s with epoch %d", h.Segment, owner.Instance, v.Owners[h.Segment].Epoch, h.Instance, h.Epoch)
			}
		}
		for _, s := range []processor.Summary{sp, sq} {
			if s.Handled != int64(tasks/2) || s.Passed+s.Forwarded+s.Released != 0 {
				t.Errorf("with four queues each, %s: %+v", s.Instance, s)
			}
		}
	})
}

func TestJoiningAndLeavingInMidRunHandsOverWithoutDoingAnythingTwice(t *testing.T) {
	proof.Only(t)
	for i := range 8 {
		seed, queues := uint64(i), 1+i%2*3
		t.Run(fmt.Sprintf("%d queues, seed %d", 2*queues, seed), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, queues, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *testworld.World) {
				var hs testworld.Handlings
				o := processor.Options{Concurrency: 40}
				const each = 700 * time.Millisecond
				p := testworld.Begun(w, processor.New, "p", hs.Handler("p", each), o)
				tasks := 0
				put := func() {
					tasks += w.PutHome(w.EverySegment(), 4)
					time.Sleep(3 * time.Second)
				}
				put()
				q := testworld.Begun(w, processor.New, "q", hs.Handler("q", each), o)
				put()
				put()
				r := testworld.Begun(w, processor.New, "r", hs.Handler("r", each), o)
				put()
				sp := p.End()
				put()
				put()
				sq := q.End()
				put()
				time.Sleep(time.Minute)
				sr := r.End()
				hs.Check(t)
				if hs.Tasks() != tasks || w.Left() != 0 {
					t.Errorf("%d of %d tasks, %d messages left", hs.Tasks(), tasks, w.Left())
				}
				for _, s := range []processor.Summary{sp, sq, sr} {
					if s.Handled == 0 || s.Lost != 0 || s.Failed != 0 {
						t.Errorf("%+v", s)
					}
				}
				proof.Same(t, len(w.View().Members), 0, "members after all have left")
			})
		})
	}
}

func TestAHandOverWaitsForWhatRunsAndReturnsWhatWasNotStarted(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p := testworld.Begun(w, processor.New, "p", hs.Handler("p", 8*time.Second), processor.Options{Concurrency: 2})
		w.Settled(1)
		q := testworld.Begun(w, processor.New, "q", &testworld.Seen{}, processor.Options{})
		moves := testworld.Owns(w.Settled(2), "q")
		q.End()
		w.Settled(1)
		// Two tasks run for 8 s, the others of their envelope wait; all of it is to be q's.
		tasks := w.PutHome(moves[:1], 9)
		for len(hs.Get()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		q = testworld.Begun(w, processor.New, "q", hs.Handler("q", time.Second), processor.Options{})
		v := w.Settled(2)
		if d := time.Since(began); d < 7*time.Second || d > 15*time.Second {
			t.Errorf("the hand-over took %v, the tasks in hand 8 s", d)
		}
		if again := testworld.Owns(v, "q"); !slices.Equal(again, moves) {
			t.Fatalf("%v moved, before %v", again, moves)
		}
		time.Sleep(time.Minute)
		sp, sq := p.End(), q.End()
		hs.Check(t)
		if hs.Tasks() != tasks || sp.Failed+sp.Retried+sp.Lost != 0 || sp.Released == 0 || sp.Released != sq.Handled {
			t.Errorf("%d of %d tasks, %+v, %+v", hs.Tasks(), tasks, sp, sq)
		}
	})
}

func TestAHandOverEndsHandlersAfterALeaseWhichIsNoAttempt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var slow, quick testworld.Handlings
		p := testworld.Begun(w, processor.New, "p", slow.Handler("p", 5*time.Minute), processor.Options{})
		w.Settled(1)
		tasks := w.PutHome(w.EverySegment(), 1)
		time.Sleep(5 * time.Second)
		began := time.Now()
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error { return quick.Handler("q", 0).Handle(ctx, task) }}
		q := testworld.Begun(w, processor.New, "q", h, processor.Options{})
		moved := len(testworld.Owns(w.Settled(2), "q"))
		time.Sleep(time.Minute)
		q.End()
		sp := p.End()
		if h.Tasks() != moved || moved != tasks/2 {
			t.Errorf("%d segments moved, q has handled %d tasks of %d", moved, h.Tasks(), tasks)
		}
		for _, task := range h.Order {
			if task.Attempt != 1 || task.Epoch != 2 {
				t.Errorf("attempt %d, epoch %d", task.Attempt, task.Epoch)
			}
		}
		ended := 0
		for _, h := range slow.Get() {
			if errors.Is(h.Cause, processor.ErrSegmentGone) {
				ended++
				if d := h.End.Sub(began); d < 20*time.Second || d > 32*time.Second {
					t.Errorf("a handler was ended after %v; a lease is 20 s", d)
				}
			}
		}
		if ended != moved || sp.Failed+sp.Retried+sp.Lost != 0 {
			t.Errorf("%d handlers of %d were ended, %+v", ended, moved, sp)
		}
	})
}

func TestAStopLetsHandlersFinishWithinGraceThoughALeaseIsShorter(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p := testworld.Begun(w, processor.New, "p", hs.Handler("p", 50*time.Second), processor.Options{Grace: time.Minute})
		q := testworld.Begun(w, processor.New, "q", hs.Handler("q", 0), processor.Options{})
		mine := testworld.Owns(w.Settled(2), "p")
		time.Sleep(10 * time.Second)
		busy, quiet := mine[:2], mine[2:]
		tasks := w.PutHome(busy, 1)
		time.Sleep(8 * time.Second)
		p.Stop()
		time.Sleep(3 * time.Second)
		tasks += w.PutHome(quiet, 1)
		time.Sleep(12 * time.Second)
		proof.Same(t, hs.Tasks(), len(quiet),
			"tasks of segments without work in hand were handled by the other")
		<-p.Done
		if s := p.Summary; s.Handled != 2 || s.Released != 0 {
			t.Errorf("%+v", s)
		}
		tasks += w.PutHome(busy, 1)
		time.Sleep(10 * time.Second)
		q.End()
		hs.Check(t)
		if hs.Tasks() != tasks || w.Left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.Tasks(), tasks, w.Left())
		}
	})
}

func TestAfterACrashTheOthersTakeOverItsSegmentsAndItsTasks(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p := testworld.Begun(w, processor.New, "p", hs.Handler("p", 5*time.Second), processor.Options{})
		q := testworld.Begun(w, processor.New, "q", hs.Handler("q", 100*time.Millisecond), processor.Options{})
		w.Settled(2)
		tasks := w.PutHome(w.EverySegment(), 2)
		time.Sleep(time.Second)
		w.Fault(azsim.Rule{Fault: azsim.FailBefore}) // nothing of p's arrives any more
		began := time.Now()
		v := w.Settled(1)
		// Lease and margin, and as long as a member may need to notice.
		if d := time.Since(began); d > 35*time.Second || len(testworld.Owns(v, "q")) != len(v.Owners) {
			t.Errorf("taken over after %v, %d segments", d, len(testworld.Owns(v, "q")))
		}
		more := w.PutHome(w.EverySegment(), 1)
		// The messages in p's hands are hidden until its leases end.
		time.Sleep(2 * time.Minute)
		q.End()
		if hs.Tasks() != tasks+more || w.Left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.Tasks(), tasks+more, w.Left())
		}
		p.Stop()
		<-p.Done
	})
}

func TestP56HandlingGoesOnWhileTheControlPlaneIsDarkForAMinute(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p, q := testworld.Begun(w, processor.New, "p", hs.Handler("p", 7*time.Second), processor.Options{}), testworld.Begun(w, processor.New, "q", hs.Handler("q", 7*time.Second), processor.Options{})
		before := w.Settled(2)
		dark := w.Sim.Inject(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		began, tasks := time.Now(), 0
		m := before.Workload.Map
		for time.Since(began) < time.Minute {
			for _, s := range []uint32{1, 17, 40, 60} {
				home := m.Shards[m.Home(s)]
				w.PutText(home.Account, home.Queue, w.Envelope(s, 2))
				tasks += 2
			}
			time.Sleep(3 * time.Second)
		}
		if n := hs.Tasks(); n < tasks*8/10 {
			t.Errorf("%d of %d tasks in the dark", n, tasks)
		}
		if trouble := strings.Join(p.Of.State().Reasons, "; "); !strings.Contains(trouble, "control account") {
			t.Errorf("the trouble is %q", trouble)
		}
		dark.Remove()
		time.Sleep(40 * time.Second)
		after := w.Settled(2)
		for s := range uint32(64) {
			a, _ := before.OwnerOf(s)
			b, _ := after.OwnerOf(s)
			proof.Same(t, a.Instance, b.Instance,
				"segment", s, "went from … to … because the control plane was dark")
		}
		proof.Same(t, strings.Join(p.Of.State().Reasons, "; "), "", "the trouble is still")
		sp, sq := p.End(), q.End()
		hs.Check(t)
		if hs.Tasks() != tasks || sp.Failed+sq.Failed+sp.Retried+sq.Retried+sp.Lost+sq.Lost != 0 {
			t.Errorf("%d of %d tasks, %+v, %+v", hs.Tasks(), tasks, sp, sq)
		}
	})
}

func TestLeavingIsBoundedWhileTheControlPlaneIsDark(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		w.Sim.Inject(azsim.Rule{Service: "table", Fault: azsim.HangBefore})
		time.Sleep(10 * time.Second)
		began := time.Now()
		p.End()
		if d := time.Since(began); d > leaveWithin+time.Second {
			t.Errorf("it took %v to leave", d)
		}
	})
}

func TestALoneProcessorWorksAtOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		w.PutHome(w.EverySegment(), 1)
		h := &testworld.Seen{}
		began := time.Now()
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		for h.Tasks() < 64 {
			time.Sleep(time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatal("nothing is done")
			}
		}
		// Eleven requests of 10 ms, one after the other: the workload's row, the member's, whether
		// there is a muster, the view, the claim, the run's row, and a get.
		if d := h.Started().Sub(began); d > 110*time.Millisecond {
			t.Errorf("the first task after %v", d)
		}
		t.Logf("the first task after %v, all after %v", h.Started().Sub(began), time.Since(began))
		if s := p.End(); s.Passed != 0 {
			t.Errorf("%+v", s)
		}
	})
}
