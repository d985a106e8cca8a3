package record_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// These are figures of the code under test, which no caller can name.
const (
	uncommittedPart = 4
)

// ran notes who handled which task to its end.
type ran struct {
	mu  sync.Mutex
	all map[string][]string
}

func (r *ran) by(instance string, d time.Duration) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		if err := testworld.Pause(ctx, d); err != nil {
			return err
		}
		r.note(instance, t)
		return nil
	})
}

// stubborn handlers do not look at their context.
func (r *ran) stubborn(instance string, d time.Duration) pump.Handler {
	return pump.HandlerFunc(func(_ context.Context, t *pump.Task) error {
		time.Sleep(d)
		r.note(instance, t)
		return nil
	})
}

func (r *ran) note(instance string, t *pump.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string][]string{}
	}
	r.all[testworld.Identity(t)] = append(r.all[testworld.Identity(t)], instance)
}

// counts gives how many tasks were handled, how many of them more than once, and the most often.
func (r *ran) counts() (tasks, twice, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, by := range r.all {
		if len(by) > 1 {
			twice++
		}
		most = max(most, len(by))
	}
	return len(r.all), twice, most
}

// A crash between effect and ledger repeats the effect (window 6): that is what "once"
// cannot prevent outside. The ledger has each task once.
func TestWindow6ACrashBetweenEffectAndLedgerIsRepairedByRedelivery(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.by("p", 0), processor.Options{})
		w.Settled(1)
		time.Sleep(2 * time.Second)
		cut := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "Batch")
		tasks := w.PutHome([]uint32{1, 2, 3}, 5)
		w.Within(10*time.Second, "the effects are there", func() bool { n, _, _ := r.counts(); return n == tasks })
		w.Crash("p")
		if b := w.Book(); b.Done != 0 || cut.Hits() == 0 {
			t.Fatalf("%d recorded, %v", b.Done, cut)
		}
		q := testworld.Begun(w, processor.New, "q", r.by("q", 0), processor.Options{})
		w.Within(3*time.Minute, "the rest is done", func() bool { return w.Left() == 0 })
		w.ExpectBook(tasks, 0)
		if s := q.End(); s.Handled != int64(tasks) || s.Duplicates != 0 {
			t.Errorf("%+v", s)
		}
		p.Stop()
		<-p.Done
		if _, twice, most := r.counts(); twice != tasks || most != 2 {
			t.Errorf("%d tasks ran more than once, at most %d times", twice, most)
		}
	})
}

func TestWindow7ACrashBetweenLedgerAndDeleteIsRecognised(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.by("p", 0), processor.Options{})
		w.Settled(1)
		time.Sleep(2 * time.Second)
		cut := w.Sim.Inject(azsim.Rule{Instance: "p", Fault: azsim.FailBefore, Operations: []string{"DeleteMessage"}})
		tasks := w.PutHome([]uint32{1, 2, 3}, 5)
		w.Within(10*time.Second, "they are recorded", func() bool { return w.Book().Done == uint64(tasks) })
		w.Crash("p")
		q := testworld.Begun(w, processor.New, "q", r.by("q", 0), processor.Options{})
		w.Within(3*time.Minute, "the rest is done", func() bool { return w.Left() == 0 })
		w.ExpectBook(tasks, 0)
		if s := q.End(); s.Handled != 0 || s.Duplicates != int64(tasks) || cut.Hits() == 0 {
			t.Errorf("%+v, %v", s, cut)
		}
		p.Stop()
		<-p.Done
		if _, twice, _ := r.counts(); twice != 0 {
			t.Errorf("%d tasks ran more than once", twice)
		}
	})
}

func TestP35LostAnswersOfCommitsRecordEachTaskOnce(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.AnswerLost, azsim.AnswerAfter, azsim.FailBefore, azsim.CutBody, azsim.HangAfter} {
		t.Run(string(fault), func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 4, nil, func(t *testing.T, w *testworld.World) {
				lost := w.Fault(azsim.Rule{Fault: fault, Every: 2}, "Batch")
				n := w.Spread(50, 10)
				h := &testworld.Seen{}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
				h.Expect(t, n, n)
				w.ExpectBook(n, 0)
				w.ExpectEmpty()
				if lost.Hits() < 2 || s.Recorded != int64(n) {
					t.Errorf("%v, %+v", lost, s)
				}
			})
		})
	}
}

// Two owners: the first is cut off from the control plane, its handlers go on beyond
// its trust, and what they did is to be recorded when the second owns its segments.
func TestP33ResultsThatComeAfterAnotherOwnerAreDropped(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		segments := []uint32{1, 2, 3, 4}
		p := testworld.Begun(w, processor.New, "p", r.stubborn("p", 22*time.Second), processor.Options{})
		w.Settled(1)
		time.Sleep(2 * time.Second)
		tasks := w.PutHome(segments, 3)
		w.Within(5*time.Second, "they are in hand", func() bool { return p.Of.State().Messages == len(segments) })
		cut := w.Sim.Inject(azsim.Rule{Instance: "p", Service: "table", Fault: azsim.HangBefore})
		q := testworld.Begun(w, processor.New, "q", r.by("q", time.Second), processor.Options{})
		w.Within(2*time.Minute, "q owns all", func() bool { return len(testworld.Owns(w.View(), "q")) == 64 })
		time.Sleep(time.Minute) // p's handlers have ended; their results wait
		cut.Remove()
		w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		w.ExpectBook(tasks, 0)
		sp, sq := p.End(), q.End()
		if n, _, most := r.counts(); n != tasks || most > 2 {
			t.Errorf("%d of %d tasks ran, at most %d times", n, tasks, most)
		}
		if sp.Recorded+sq.Recorded != int64(tasks) || w.Logged("results came after another owner") == 0 {
			t.Errorf("%+v\n%+v", sp, sq)
		}
	})
}

// The control plane is dark for all: none claims, what is finished is kept, and
// recorded when the process is fenced again (P5.6).
func TestP56ResultsOutliveADarkControlPlane(t *testing.T) {
	for _, dark := range []time.Duration{10 * time.Second, 40 * time.Second, 3 * time.Minute} {
		t.Run(dark.String(), func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				var r ran
				p := testworld.Begun(w, processor.New, "p", r.by("p", time.Second), processor.Options{})
				q := testworld.Begun(w, processor.New, "q", r.by("q", time.Second), processor.Options{})
				w.Settled(2)
				tasks := w.Spread(1, 1) // so that the run is known
				time.Sleep(5 * time.Second)
				cut := w.Sim.Inject(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
				for range 8 {
					tasks += w.Spread(3, 5)
					time.Sleep(time.Second)
				}
				time.Sleep(dark - 8*time.Second)
				done, _, _ := r.counts()
				waits := p.Of.State().Uncommitted + q.Of.State().Uncommitted
				cut.Remove()
				w.Within(3*time.Minute, "all is done", func() bool { return w.Left() == 0 })
				w.ExpectBook(tasks, 0)
				sp, sq := p.End(), q.End()
				n, twice, _ := r.counts()
				if n != tasks || twice != 0 || done == 0 || waits == 0 {
					t.Errorf("%d of %d tasks ran, %d of them twice; in the dark %d were done and the results of %d messages waited", n, tasks, twice, done, waits)
				}
				proof.Same(t, sp.Recorded+sq.Recorded, int64(tasks), sp, sq)
			})
		})
	}
}

func TestP36AHandOverUnderLoadRecordsEachTaskOnce(t *testing.T) {
	proof.Only(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 3, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *testworld.World) {
				var hs testworld.Handlings
				o := processor.Options{Concurrency: 40}
				const each = 300 * time.Millisecond
				tasks := 0
				put := func() {
					tasks += w.PutHome(w.EverySegment(), 4)
					time.Sleep(3 * time.Second)
				}
				var all []*testworld.Started[*processor.Processor, processor.Summary]
				for i := range 4 {
					all = append(all, testworld.Begun(w, processor.New, fmt.Sprint("p", i), hs.Handler(fmt.Sprint("p", i), each), o))
					put()
				}
				var sum processor.Summary
				for _, p := range all[:3] {
					s := p.End()
					sum.Recorded, sum.Duplicates = sum.Recorded+s.Recorded, sum.Duplicates+s.Duplicates
					put()
				}
				w.Within(2*time.Minute, "all is done", func() bool { return w.Left() == 0 })
				s := all[3].End()
				sum.Recorded, sum.Duplicates = sum.Recorded+s.Recorded, sum.Duplicates+s.Duplicates
				hs.Check(t)
				w.ExpectBook(tasks, 0)
				if hs.Tasks() != tasks || sum.Recorded != int64(tasks) {
					t.Errorf("%d of %d tasks, %+v", hs.Tasks(), tasks, sum)
				}
			})
		})
	}
}

func TestAStopRecordsWhatIsDone(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.by("p", 100*time.Millisecond), processor.Options{Concurrency: 8})
		w.Settled(1)
		tasks := w.Spread(40, 10)
		w.Within(time.Minute, "a part of them is done", func() bool { n, _, _ := r.counts(); return n > tasks/3 })
		s := p.End()
		done, _, _ := r.counts()
		w.ExpectBook(done, 0)
		if s.Recorded != int64(done) || done == tasks {
			t.Errorf("%d done, %+v", done, s)
		}
		h := &testworld.Seen{}
		s = testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		if h.Tasks() != tasks-done || s.Duplicates != 0 {
			t.Errorf("%d of %d were left, %+v", tasks-done, tasks, s)
		}
		w.ExpectBook(tasks, 0)
	})
}

// Commits of a partition keep apart, but not when their segments are to be somebody else's.
func TestHandOversAndStopsDoNotWaitForOtherCommits(t *testing.T) {
	for _, stop := range []bool{false, true} {
		testworld.In(t, testworld.Once, 1, 32, nil, func(t *testing.T, w *testworld.World) {
			h := &testworld.Seen{}
			p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
			w.Settled(1)
			time.Sleep(2 * time.Second)
			segments := w.EverySegment() // in 16 partitions
			if !stop {                   // those that q will get
				q := testworld.Begun(w, processor.New, "q", &testworld.Seen{}, processor.Options{})
				v := w.Settled(2)
				q.End()
				w.Settled(1)
				segments = testworld.Owns(v, "q")
			}
			time.Sleep(10 * time.Second)
			tasks := w.PutHome(segments, 1)
			w.Within(30*time.Second, "all are handled", func() bool { return h.Tasks() == tasks })
			began := time.Now()
			if stop {
				p.End()
				w.ExpectBook(tasks, 0)
				if d := time.Since(began); d > 2*time.Second {
					t.Errorf("stopping took %v", d)
				}
				return
			}
			q := testworld.Begun(w, processor.New, "q", &testworld.Seen{}, processor.Options{})
			w.Settled(2)
			// One beat to be seen by, another to claim with.
			if d := time.Since(began); d > 8*time.Second {
				t.Errorf("the hand-over took %v", d)
			}
			w.ExpectBook(tasks, 0)
			q.End()
			p.End()
		})
	}
}

// A stop does not wait for ever for a control plane that is dark, and what it could not record
// it puts back.
func TestAStopInTheDarkPutsBackWhatCannotBeRecorded(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.by("p", 0), processor.Options{Grace: 5 * time.Second})
		w.Settled(1)
		known := w.Spread(1, 1)
		time.Sleep(5 * time.Second)
		cut := w.Sim.Inject(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		tasks := known + w.Spread(2, 5)
		time.Sleep(5 * time.Second)
		began := time.Now()
		p.End()
		if d := time.Since(began); d > 45*time.Second {
			t.Errorf("stopping took %v", d)
		}
		proof.Same(t, w.Visible("accounta", "work-00"), 2, "messages are visible")
		cut.Remove()
		h := &testworld.Seen{}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		w.ExpectBook(tasks, 0)
		w.ExpectEmpty()
	})
}

// slowBatch takes 100 ms for an envelope.
type slowBatch struct{ tasks atomic.Int64 }

func (*slowBatch) Handle(context.Context, *pump.Task) error { return testworld.ErrFlop }

func (b *slowBatch) HandleBatch(ctx context.Context, tasks []*pump.Task) []error {
	_ = testworld.Pause(ctx, 100*time.Millisecond)
	b.tasks.Add(int64(len(tasks)))
	return nil
}

// What once costs, by the published prices: a table's request costs a tenth of a queue's, and there
// is a commit a message at most. Where messages are many they share commits.
func TestOnceCostsHardlyMoreThanAtLeastOnce(t *testing.T) {
	proof.Only(t)
	for each, at := range map[int]struct {
		envelopes int
		most      float64
	}{200: {500, 1.01}, 1: {200, 1.02}} {
		money := map[bool]float64{}
		took := map[bool]time.Duration{}
		for _, once := range []bool{false, true} {
			spec := workload.Spec{}
			if once {
				spec.Delivery = string(pump.Once)
			}
			testworld.In(t, spec, 1, 8, nil, func(t *testing.T, w *testworld.World) {
				before := asked(w)
				for _, s := range setup.Shards(w.Cfg) {
					w.Put(s.Account, s.Queue, at.envelopes, each)
				}
				h := &slowBatch{}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 40})
				began, tasks := time.Now(), int64(8*at.envelopes*each)
				w.Within(10*time.Minute, "all is done", func() bool { return p.Of.State().Messages == 0 && p.Of.State().Done.Handled == tasks })
				took[once] = time.Since(began)
				s := p.End()
				spent := asked(w).Since(before)
				money[once] = pump.Prices{}.OrPublished().Cost(float64(spent.Queue), float64(spent.Table))
				if n := h.tasks.Load(); n != tasks || w.Left() != 0 {
					t.Errorf("%d tasks, %d left", n, w.Left())
				}
				t.Logf("once %v, %d a message: %v, %d commits, %v", once, each, took[once], s.Commits, s.Requests)
			})
		}
		ratio := money[true] / money[false]
		t.Logf("%d a message: %.4f of the money", each, ratio)
		if ratio > at.most {
			t.Errorf("%d a message: %.4f of the money, want %.2f at most", each, ratio, at.most)
		}
		if ratio := took[false].Seconds() / took[true].Seconds(); ratio < 0.9 {
			t.Errorf("%v, at least once %v: %.2f of the throughput", took[true], took[false], ratio)
		}
	}
}

// P5.6: past the cap nothing is got.
func TestP56GettingStopsAtACapOfUncommittedResults(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		const most = 4 << 20
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N%2 == 1 && task.Attempt == 1 { // so that every message holds text while it waits
				return pump.RetryAfter(time.Minute, testworld.ErrFlop)
			}
			return nil
		}}
		p := testworld.Made(w, processor.New, "p", h, processor.Options{MaxBytes: most})
		run := testworld.Start(w.T, p)
		w.Settled(1)
		time.Sleep(2 * time.Second)
		cut := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "Batch")
		random := rand.New(rand.NewPCG(1, 1))
		tasks := 0
		for n := range uint64(2) {
			for _, segment := range w.EverySegment() {
				var two []codec.Task
				for i := range uint64(2) {
					body := make([]byte, 8<<10)
					for k := range body {
						body[k] = byte(random.Uint32())
					}
					two = append(two, codec.Task{N: 2*n + i, Key: []byte("key"), Body: body})
				}
				account, queue := w.Home(segment)
				header := codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: segment, MapVersion: 1}
				w.PutText(account, queue, w.Sealed(header, two...))
				tasks += 2
			}
		}
		time.Sleep(5 * time.Second)
		gets := w.Requests("GetMessages")
		time.Sleep(5 * time.Second)
		state := p.State()
		held := state.Uncommitted * (11 << 10)
		if held < most/uncommittedPart*9/10 || held > most/uncommittedPart*3/2 || state.Messages != state.Uncommitted || w.Requests("GetMessages") != gets {
			t.Errorf("%d results wait, %d messages are in hand, %d gets in five seconds", state.Uncommitted, state.Messages, w.Requests("GetMessages")-gets)
		}
		if want := fmt.Sprintf("the results of %d messages wait to be recorded", state.Uncommitted); state.Ready || !slices.Contains(state.Reasons, want) {
			t.Errorf("%q", state.Reasons)
		}
		cut.Remove()
		w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		w.ExpectBook(tasks, 0)
		run.End()
	})
}
