package closing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/workloads"
)

// fullSegment is the first segment of a sealed run that has so many tasks.
func fullSegment(t *testing.T, sealed []uint64, tasks uint64) uint32 {
	t.Helper()
	for s, n := range sealed {
		if n >= tasks {
			return uint32(s)
		}
	}
	t.Fatalf("no segment has %d tasks: %v", tasks, sealed)
	return 0
}

// waiting is a Wait that goes on.
type waiting struct {
	pump.Completion
	err      error
	done     chan struct{}
	mu       sync.Mutex
	progress []pump.RunProgress
}

func wait(w *testworld.World, ctx context.Context, run pump.RunID, o pump.WaitOptions) *waiting {
	g := &waiting{done: make(chan struct{})}
	o.Progress = func(p pump.RunProgress) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.progress = append(g.progress, p)
	}
	cfg := w.Config("waiter", w.Cfg.Accounts[0].Queues)
	go func() {
		defer close(g.done)
		g.Completion, g.err = runs.Wait(ctx, cfg, run, o)
	}()
	return g
}

func (g *waiting) over() bool {
	synctest.Wait()
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// P4.5: the end of waiting is decided by what is recorded and not by what the queues count.
func TestWaitingEndsWhenEveryTaskIsRecordedAndNotBefore(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 1000), w.Scribe()
		w.Collect() // no queue shows a message any more, and nothing is done
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{StuckAfter: time.Hour})
		time.Sleep(2 * time.Minute)
		if g.over() {
			t.Fatalf("the waiting ended: %+v, %v", g.Completion, g.err)
		}
		last := fullSegment(t, run.Sealed, 2)
		almost := testworld.Below(run.Sealed)
		almost[last] = codec.MakeNSet(0)
		s.Record(run.ID, almost, nil)
		time.Sleep(2 * time.Minute)
		if g.over() {
			t.Fatalf("the waiting ended before the last task: %+v, %v", g.Completion, g.err)
		}
		s.Record(run.ID, testworld.Below(run.Sealed), nil)
		// The next look, which jitter makes later, and the wait for reports that no process makes
		// here.
		time.Sleep(14 * time.Second)
		if !g.over() || g.err != nil {
			t.Fatalf("it goes on, or failed: %v", g.err)
		}
		if c := g.Completion; c.State != pump.RunDone || c.Tasks != 1000 || c.Done != 1000 || c.Quarantined != 0 || !c.Closed || len(c.Lacking) != 0 {
			t.Errorf("%+v", c)
		}
		proof.Same(t, w.RunRow(run.ID).State, workload.RunClosed, "the run")
		end := g.progress[len(g.progress)-1]
		if first := g.progress[0]; *first.Total != 1000 || *first.Remaining != 1000 || *first.Percent != 0 || *end.Remaining != 0 || *end.Percent != 100 {
			t.Errorf("progress %+v ... %+v", first, end)
		}
		// Who comes later sees the same, of a run whose record may be gone by then.
		proof.Must(t, s.Ledger.Prune(t.Context(), []pump.RunID{run.ID}))
		later := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		<-later.done
		if c := later.Completion; later.err != nil || c.State != pump.RunDone || c.Done != 1000 || !c.Closed {
			t.Errorf("%+v, %v", c, later.err)
		}
	})
}

func TestTasksInQuarantineEndTheWaitingAndAreReportedApart(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 500), w.Scribe()
		bad := fullSegment(t, run.Sealed, 3)
		done := testworld.Below(run.Sealed)
		var rest codec.NSet
		rest.AddRange(2, run.Sealed[bad])
		done[bad] = rest
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		s.Record(run.ID, done, map[uint32]codec.NSet{bad: codec.MakeNSet(0, 1)})
		<-g.done
		if c := g.Completion; g.err != nil || c.State != pump.RunQuarantined || c.Done != 498 || c.Quarantined != 2 || c.Closed {
			t.Errorf("%+v, %v", c, g.err)
		}
		proof.Same(t, w.RunRow(run.ID).State, workload.RunSealed, "its task may come back")
	})
}

func TestTheDistributorWaitsAfterSealing(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 300}, distributor.Options{Wait: &pump.WaitOptions{}})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		select {
		case <-d.Done:
			t.Fatalf("it did not wait: %v", d.Err)
		default:
		}
		f := queues.Open(&w.Cfg)
		all, err := workload.NewRuns(f.Control, "work").List(t.Context(), 1)
		if err != nil || all[0].State != workload.RunSealed {
			t.Fatalf("%+v, %v", all, err)
		}
		tally := workload.Tally{Handled: 310, Retried: 10, Duplicates: 4}
		proof.Must(t, workload.NoteTallies(t.Context(), f.Control, "work", "p.x", workload.RunTally{Run: all[0].ID, Tally: tally}))
		s.Record(all[0].ID, testworld.Below(all[0].Sealed), nil)
		proof.Must(t, d.Wait())
		c := d.Summary.Completion
		if c == nil || c.State != pump.RunDone || c.Done != 300 || c.Reported != (pump.RunReport{Handled: 310, Retried: 10, Duplicates: 4}) {
			t.Errorf("%+v", c)
		}
	})
}

func TestWaitingNeedsDeliveryModeOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("d", 2)
		_, err := distributor.New(cfg, &testworld.ListSource{N: 1}, distributor.Options{Wait: &pump.WaitOptions{}})
		if e, ok := errors.AsType[*pump.ConfigError](err); !ok || e.Field != "wait" || !strings.Contains(err.Error(), "once") {
			t.Errorf("got %v", err)
		}
		proof.Says(t, proof.ErrOf(runs.Wait(t.Context(), cfg, w.Run, pump.WaitOptions{})), "needs delivery mode once")
		cfg.Delivery = pump.Once
		proof.Says(t, proof.ErrOf(distributor.New(cfg, &testworld.ListSource{N: 1}, distributor.Options{Wait: &pump.WaitOptions{}, Every: time.Minute})), "has no end")
		// The workload's row decides, whatever a configuration says (P3.8).
		proof.Says(t, proof.ErrOf(runs.Wait(t.Context(), cfg, w.Run, pump.WaitOptions{})), "at-least-once")
	})
}

// C2: an open run that no distributor sends is stuck after StuckAfter, not waited for for ever.
func TestAnOpenRunWhoseDistributorIsGoneIsStuck(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		for _, after := range []time.Duration{time.Minute, 10 * time.Minute} {
			began := time.Now()
			_, err := runs.Wait(t.Context(), w.Config("waiter", 2), w.Run, pump.WaitOptions{StuckAfter: after})
			stuck, ok := errors.AsType[*pump.StuckError](err)
			if took := time.Since(began); !ok || !stuck.Open || took < after || took > after*3/2+30*time.Second {
				t.Errorf("%v after %v, want it stuck after %v", err, took, after)
			}
			proof.Says(t, err, "distributor runs repair "+w.Run.String())
		}
		// One that is at work is waited for, however slow its source is.
		d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 100, Pace: time.Minute}, distributor.Options{})
		time.Sleep(time.Second)
		all, err := workload.NewRuns(queues.Open(&w.Cfg).Control, "work").List(t.Context(), 1)
		proof.Must(t, err)
		g := wait(w, t.Context(), all[0].ID, pump.WaitOptions{StuckAfter: time.Minute})
		time.Sleep(30 * time.Minute)
		if g.over() {
			t.Errorf("a run that is being sent was not waited for: %v", g.err)
		}
		d.Stop()
		_ = d.Wait()
		<-g.done
	})
}

// A leader is at work for as long as its own lease says, whatever the waiter's would be.
func TestARunIsSentByALeaderThatSeldomBeats(t *testing.T) {
	for _, o := range []distributor.Options{{Name: "nightly"}, {Every: time.Hour}} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			o.Beat = 3 * time.Minute
			d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 100, Pace: time.Hour}, o)
			time.Sleep(10 * time.Second)
			g := wait(w, t.Context(), w.Newest(), pump.WaitOptions{StuckAfter: time.Minute})
			time.Sleep(8 * time.Minute)
			if g.over() {
				t.Errorf("a run that is being sent was not waited for: %v", g.err)
			}
			d.Stop()
			_ = d.Wait()
			time.Sleep(3 * time.Minute)
			if !g.over() {
				t.Error("a run whose leader has left is waited for")
			}
			<-g.done
			if stuck, ok := errors.AsType[*pump.StuckError](g.err); !ok || !stuck.Open {
				t.Errorf("a run whose leader has left: %v", g.err)
			}
		})
	}
}

// C2: waiting ends when the time given for it does.
func TestWaitingEndsWithItsTimeout(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := testworld.Distributed(w, distributor.New, 100)
		began := time.Now()
		c, err := runs.Wait(t.Context(), w.Config("waiter", 2), run.ID, pump.WaitOptions{Timeout: 20 * time.Second})
		if took := time.Since(began); !errors.Is(err, pump.ErrTimeout) || took < 20*time.Second || took > 21*time.Second || c.State != pump.RunWaiting || c.Tasks != 100 {
			t.Errorf("%+v, %v after %v", c, err, took)
		}
		w.Sim.Hang("accounta", true) // the control account: the time begins with the call
		began = time.Now()
		c, err = runs.Wait(t.Context(), w.Config("waiter", 2), run.ID, pump.WaitOptions{Timeout: 20 * time.Second})
		if took := time.Since(began); !errors.Is(err, pump.ErrTimeout) || took < 20*time.Second || took > 21*time.Second || c.State != pump.RunWaiting || c.Run != run.ID {
			t.Errorf("while the control account is dark: %+v, %v after %v", c, err, took)
		}
	})
}

// C14: that no processor is running is said within five seconds, and not where one is.
func TestWaitingSaysThatNoProcessorIsRunning(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const line = "no processor is running"
		run := testworld.Distributed(w, distributor.New, 100)
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{StuckAfter: time.Hour})
		time.Sleep(5 * time.Second)
		proof.Same(t, w.Logged(line), 1, "it was said … times after 5 s")
		hold := make(chan struct{})
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { <-hold; return nil }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(5 * time.Minute)
		if n := w.Logged(line); n > 2 {
			t.Errorf("it was said %d times, although one is running", n)
		}
		close(hold)
		<-g.done
		p.End()
	})
}

// A pause is why nothing is done, and the one who waits is told so, more and more seldom.
func TestWaitingSaysThatTheWorkloadIsPaused(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const line = "the workload is paused; the tasks wait"
		run := testworld.Distributed(w, distributor.New, 100)
		proof.Must(t, proof.ErrOf(workloads.Pause(t.Context(), w.Config("operator", 2), "me", workloads.PauseOptions{})))
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		time.Sleep(5 * time.Second)
		if n, none := w.Logged(line), w.Logged("no processor is running"); n != 1 || none > 0 {
			t.Errorf("after 5 s it was said %d times, and %d times that none is running", n, none)
		}
		proof.Must(t, proof.ErrOf(workloads.Resume(t.Context(), w.Config("operator", 2))))
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		<-g.done
		if g.err != nil || g.State != pump.RunDone || w.Logged(line) > 2 {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
		p.End()
	})
}

// C13: who waits knows half a second after the last task was recorded, and the figures say so.
func TestTheEndOfARunIsKnownWithinHalfASecond(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 100), w.Scribe()
		began := time.Now()
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		time.Sleep(50 * time.Second)
		s.Record(run.ID, testworld.Below(run.Sealed), nil)
		recorded := time.Now()
		<-g.done
		if late := time.Since(recorded); late > 600*time.Millisecond || g.err != nil || g.State != pump.RunDone {
			t.Errorf("%+v, %v, %v after the record of the last task", g.Completion, g.err, late)
		}
		if d := time.Since(began).Seconds() - g.Seconds; d < 0 || d > 0.1 {
			t.Errorf("it says that it waited %.1f s, and did so for %.1f s", g.Seconds, time.Since(began).Seconds())
		}
	})
}

func TestARunThatBrokeOrIsNotThereIsNotWaitedFor(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		f := queues.Open(&w.Cfg)
		g := wait(w, t.Context(), w.Run, pump.WaitOptions{StuckAfter: time.Hour})
		time.Sleep(10 * time.Minute)
		if g.over() {
			t.Fatalf("an open run was not waited for: %v", g.err)
		}
		proof.Same(t, w.Logged("no distributor seems to be at work on it"), 1,
			"it was said … times that no distributor sends the run")
		proof.Must(t, workload.NewRuns(f.Control, "work").Break(t.Context(), w.Run, "because"))
		if <-g.done; g.err == nil || !strings.Contains(g.err.Error(), "because") || !strings.Contains(g.err.Error(), "distributor runs repair "+w.Run.String()) {
			t.Errorf("got %v", g.err)
		}
		proof.Is(t, proof.ErrOf(runs.Wait(t.Context(), w.Config("x", 2), codec.NewRunID(), pump.WaitOptions{})), pump.ErrNoRun)
	})
}

func TestADarkControlAccountIsWaitedForAndEndsNoWaiting(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 100), w.Scribe()
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		time.Sleep(5 * time.Second)
		dark := w.Fault(azsim.Rule{Instance: "waiter", Fault: azsim.FailBefore})
		s.Record(run.ID, testworld.Below(run.Sealed), nil)
		time.Sleep(10 * time.Minute)
		if g.over() || dark.Hits() == 0 {
			t.Fatalf("it ended in the dark, which %d requests met: %v", dark.Hits(), g.err)
		}
		dark.Remove()
		if <-g.done; g.err != nil || g.State != pump.RunDone {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
	})
}

func TestWhoIsToldToStopWaitingSaysHowFarItWas(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 100), w.Scribe()
		some := map[uint32]codec.NSet{fullSegment(t, run.Sealed, 1): codec.MakeNSet(0)}
		s.Record(run.ID, some, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		g := wait(w, ctx, run.ID, pump.WaitOptions{})
		time.Sleep(7 * time.Second)
		cancel(testworld.ErrFlop)
		if <-g.done; !errors.Is(g.err, testworld.ErrFlop) || g.State != pump.RunWaiting || g.Done != 1 || g.Tasks != 100 {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
	})
}

// More can be recorded of a run than the run has only if a row is not what it was.
func TestMoreRecordedThanSealedIsAnErrorThatNamesTheSegment(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 100), w.Scribe()
		odd := fullSegment(t, run.Sealed, 1)
		sets := testworld.Below(run.Sealed)
		var more codec.NSet
		more.AddRange(0, run.Sealed[odd]+1)
		sets[odd] = more
		s.Record(run.ID, sets, nil)
		g := wait(w, t.Context(), run.ID, pump.WaitOptions{})
		if <-g.done; g.err == nil || !strings.Contains(g.err.Error(), fmt.Sprintf("segment %d", odd)) {
			t.Errorf("got %v", g.err)
		}
	})
}

// A process that is told to stop before its first look still knows what was sealed.
func TestADistributorThatIsStoppedBeforeItsFirstLookSaysHowManyTasksThereAre(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		d := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 100}, distributor.Options{Wait: &pump.WaitOptions{}})
		ctx, cancel := context.WithCancelCause(t.Context())
		// From the seal on the ledger does not answer, so there is no look.
		go func() {
			for w.Logged("waiting until every task is done") == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel(testworld.ErrFlop)
		}()
		w.Sim.Inject(azsim.Rule{Instance: "d", Operations: []string{"QueryEntities"}, Fault: azsim.HangBefore})
		summary, err := d.Run(ctx)
		c := summary.Completion
		if !errors.Is(err, testworld.ErrFlop) || c == nil || c.State != pump.RunWaiting || c.Tasks != 100 || c.Done != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
