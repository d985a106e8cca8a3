package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

func (w *world) join(instance string, h pump.Handler, o ProcessorOptions) *started {
	w.t.Helper()
	return w.start(w.processorOf(instance, h, o))
}

func TestS1EachTaskIsHandledByTheOwnerOfItsSegment(t *testing.T) {
	inWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		var hs handlings
		p, q := w.join("p", hs.handler("p", 0), ProcessorOptions{}), w.join("q", hs.handler("q", 0), ProcessorOptions{})
		v := w.settled(2)
		time.Sleep(10 * time.Second) // both have seen it
		tasks := 0
		for range 20 {
			tasks += w.putHome(w.everySegment(), 3)
			time.Sleep(5 * time.Second)
		}
		sp, sq := p.end(), q.end()
		hs.check(t)
		if hs.tasks() != tasks || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks, w.left())
		}
		for _, h := range hs.get() {
			if owner, _ := v.OwnerOf(h.segment); owner.Instance != h.instance || v.Owners[h.segment].Epoch != h.epoch {
				t.Fatalf("segment %d of %s, epoch %d, was handled by %s with epoch %d", h.segment, owner.Instance, v.Owners[h.segment].Epoch, h.instance, h.epoch)
			}
		}
		for _, s := range []ProcessorSummary{sp, sq} {
			if s.Handled != int64(tasks/2) || s.Passed+s.Forwarded+s.Released != 0 {
				t.Errorf("with four queues each, %s: %+v", s.Instance, s)
			}
		}
	})
}

func TestJoiningAndLeavingInMidRunHandsOverWithoutDoingAnythingTwice(t *testing.T) {
	verify.Only(t)
	for i := range 8 {
		seed, queues := uint64(i), 1+i%2*3
		t.Run(fmt.Sprintf("%d queues, seed %d", 2*queues, seed), func(t *testing.T) {
			inWorld(t, 2, queues, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *world) {
				var hs handlings
				o := ProcessorOptions{Concurrency: 40}
				const each = 700 * time.Millisecond
				p := w.join("p", hs.handler("p", each), o)
				tasks := 0
				put := func() {
					tasks += w.putHome(w.everySegment(), 4)
					time.Sleep(3 * time.Second)
				}
				put()
				q := w.join("q", hs.handler("q", each), o)
				put()
				put()
				r := w.join("r", hs.handler("r", each), o)
				put()
				sp := p.end()
				put()
				put()
				sq := q.end()
				put()
				time.Sleep(time.Minute)
				sr := r.end()
				hs.check(t)
				if hs.tasks() != tasks || w.left() != 0 {
					t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks, w.left())
				}
				for _, s := range []ProcessorSummary{sp, sq, sr} {
					if s.Handled == 0 || s.Lost != 0 || s.Failed != 0 {
						t.Errorf("%+v", s)
					}
				}
				if n := len(w.view().Members); n != 0 {
					t.Errorf("%d members after all have left", n)
				}
			})
		})
	}
}

func TestAHandOverWaitsForWhatRunsAndReturnsWhatWasNotStarted(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p := w.join("p", hs.handler("p", 8*time.Second), ProcessorOptions{Concurrency: 2})
		w.settled(1)
		q := w.join("q", &seen{}, ProcessorOptions{})
		moves := owns(w.settled(2), "q")
		q.end()
		w.settled(1)
		// Two tasks run for 8 s, the others of their envelope wait; all of it is to be q's.
		tasks := w.putHome(moves[:1], 9)
		for len(hs.get()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		q = w.join("q", hs.handler("q", time.Second), ProcessorOptions{})
		v := w.settled(2)
		if d := time.Since(began); d < 7*time.Second || d > 15*time.Second {
			t.Errorf("the hand-over took %v, the tasks in hand 8 s", d)
		}
		if again := owns(v, "q"); !slices.Equal(again, moves) {
			t.Fatalf("%v moved, before %v", again, moves)
		}
		time.Sleep(time.Minute)
		sp, sq := p.end(), q.end()
		hs.check(t)
		if hs.tasks() != tasks || sp.Failed+sp.Retried+sp.Lost != 0 || sp.Released == 0 || sp.Released != sq.Handled {
			t.Errorf("%d of %d tasks, %+v, %+v", hs.tasks(), tasks, sp, sq)
		}
	})
}

func TestAHandOverEndsHandlersAfterALeaseWhichIsNoAttempt(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var slow, quick handlings
		p := w.join("p", slow.handler("p", 5*time.Minute), ProcessorOptions{})
		w.settled(1)
		tasks := w.putHome(w.everySegment(), 1)
		time.Sleep(5 * time.Second)
		began := time.Now()
		h := &seen{work: func(ctx context.Context, task *pump.Task) error { return quick.handler("q", 0).Handle(ctx, task) }}
		q := w.join("q", h, ProcessorOptions{})
		moved := len(owns(w.settled(2), "q"))
		time.Sleep(time.Minute)
		q.end()
		sp := p.end()
		if h.tasks() != moved || moved != tasks/2 {
			t.Errorf("%d segments moved, q has handled %d tasks of %d", moved, h.tasks(), tasks)
		}
		for _, task := range h.order {
			if task.Attempt != 1 || task.Epoch != 2 {
				t.Errorf("attempt %d, epoch %d", task.Attempt, task.Epoch)
			}
		}
		ended := 0
		for _, h := range slow.get() {
			if errors.Is(h.cause, ErrSegmentGone) {
				ended++
				if d := h.end.Sub(began); d < 20*time.Second || d > 32*time.Second {
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
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p := w.join("p", hs.handler("p", 50*time.Second), ProcessorOptions{Grace: time.Minute})
		q := w.join("q", hs.handler("q", 0), ProcessorOptions{})
		mine := owns(w.settled(2), "p")
		time.Sleep(10 * time.Second)
		busy, quiet := mine[:2], mine[2:]
		tasks := w.putHome(busy, 1)
		time.Sleep(8 * time.Second)
		p.stop()
		time.Sleep(3 * time.Second)
		tasks += w.putHome(quiet, 1)
		time.Sleep(12 * time.Second)
		if n := hs.tasks(); n != len(quiet) {
			t.Errorf("%d of %d tasks of segments without work in hand were handled by the other", n, len(quiet))
		}
		<-p.done
		if s := p.summary; s.Handled != 2 || s.Released != 0 {
			t.Errorf("%+v", s)
		}
		tasks += w.putHome(busy, 1)
		time.Sleep(10 * time.Second)
		q.end()
		hs.check(t)
		if hs.tasks() != tasks || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks, w.left())
		}
	})
}

func TestAfterACrashTheOthersTakeOverItsSegmentsAndItsTasks(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p := w.join("p", hs.handler("p", 5*time.Second), ProcessorOptions{})
		q := w.join("q", hs.handler("q", 100*time.Millisecond), ProcessorOptions{})
		w.settled(2)
		tasks := w.putHome(w.everySegment(), 2)
		time.Sleep(time.Second)
		w.fault(azsim.Rule{Fault: azsim.FailBefore}) // nothing of p's arrives any more
		began := time.Now()
		v := w.settled(1)
		// Lease and margin, and as long as a member may need to notice.
		if d := time.Since(began); d > 35*time.Second || len(owns(v, "q")) != len(v.Owners) {
			t.Errorf("taken over after %v, %d segments", d, len(owns(v, "q")))
		}
		more := w.putHome(w.everySegment(), 1)
		// What p had in hand is hidden until its leases end.
		time.Sleep(2 * time.Minute)
		q.end()
		if hs.tasks() != tasks+more || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks+more, w.left())
		}
		p.stop()
		<-p.done
	})
}

func TestP56HandlingGoesOnWhileTheControlPlaneIsDarkForAMinute(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p, q := w.join("p", hs.handler("p", 7*time.Second), ProcessorOptions{}), w.join("q", hs.handler("q", 7*time.Second), ProcessorOptions{})
		before := w.settled(2)
		dark := w.sim.Inject(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		began, tasks := time.Now(), 0
		m := before.Workload.Map
		for time.Since(began) < time.Minute {
			for _, s := range []uint32{1, 17, 40, 60} {
				account, queue := w.queueOf(m, m.Home(s))
				w.putText(account, queue, w.envelope(s, 2))
				tasks += 2
			}
			time.Sleep(3 * time.Second)
		}
		if n := hs.tasks(); n < tasks*8/10 {
			t.Errorf("%d of %d tasks in the dark", n, tasks)
		}
		if trouble := strings.Join(p.of.State().Reasons, "; "); !strings.Contains(trouble, "control account") {
			t.Errorf("the trouble is %q", trouble)
		}
		dark.Remove()
		time.Sleep(40 * time.Second)
		after := w.settled(2)
		for s := range uint32(64) {
			a, _ := before.OwnerOf(s)
			b, _ := after.OwnerOf(s)
			if a.Instance != b.Instance {
				t.Errorf("segment %d went from %s to %s because the control plane was dark", s, a.Instance, b.Instance)
			}
		}
		if trouble := strings.Join(p.of.State().Reasons, "; "); trouble != "" {
			t.Errorf("the trouble is still %q", trouble)
		}
		sp, sq := p.end(), q.end()
		hs.check(t)
		if hs.tasks() != tasks || sp.Failed+sq.Failed+sp.Retried+sq.Retried+sp.Lost+sq.Lost != 0 {
			t.Errorf("%d of %d tasks, %+v, %+v", hs.tasks(), tasks, sp, sq)
		}
	})
}

func TestLeavingIsBoundedWhileTheControlPlaneIsDark(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		w.settled(1)
		w.sim.Inject(azsim.Rule{Service: "table", Fault: azsim.HangBefore})
		time.Sleep(10 * time.Second)
		began := time.Now()
		p.end()
		if d := time.Since(began); d > knownLeaveWithin+time.Second {
			t.Errorf("it took %v to leave", d)
		}
	})
}

func TestALoneProcessorWorksAtOnce(t *testing.T) {
	inWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		w.putHome(w.everySegment(), 1)
		h := &seen{}
		began := time.Now()
		p := w.join("p", h, ProcessorOptions{})
		for h.tasks() < 64 {
			time.Sleep(time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatal("nothing is done")
			}
		}
		// Eleven requests of 10 ms, one after the other: the workload's row, the member's, whether
		// there is a muster, the view, the claim, the run's row, and a get.
		if d := h.started().Sub(began); d > 110*time.Millisecond {
			t.Errorf("the first task after %v", d)
		}
		t.Logf("the first task after %v, all after %v", h.started().Sub(began), time.Since(began))
		if s := p.end(); s.Passed != 0 {
			t.Errorf("%+v", s)
		}
	})
}
