package processor_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

func TestWindow35AGracefulStopFinishesWhatRunsAndReturnsWhatWasNotStarted(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(8, 10)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 3*time.Second) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 15})
		time.Sleep(8 * time.Second)
		stopped := time.Now()
		s := p.End()
		if d := time.Since(stopped); d > 4*time.Second {
			t.Errorf("it took %v to stop, tasks take 3 s", d)
		}
		if int(s.Handled) != h.Tasks() || h.Deliveries() != h.Tasks() || s.Failed != 0 {
			t.Errorf("started %d, %+v", h.Tasks(), s)
		}
		// Whatever is left is visible at once: no process waits for a lease.
		again := &testworld.Seen{}
		began := time.Now()
		testworld.Ran(w, processor.New, "p", again, processor.Options{UntilIdle: 10 * time.Second})
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("the rest took %v", d)
		}
		again.Expect(t, tasks-h.Tasks(), tasks-h.Tasks())
		for _, task := range again.Order {
			if h.Times[testworld.Identity(&task)] > 0 {
				t.Errorf("%s was done before the stop and came again", testworld.Identity(&task))
			}
			proof.Same(t, task.Attempt, 1, "a stop was counted as an attempt", task)
		}
	})
}

func TestWindow35AHardStopEndsHandlersAndReturnsTheirTasksWithoutAnAttempt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 2, 3)
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
			if task.N == 0 {
				return nil
			}
			return testworld.Pause(ctx, time.Hour)
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Grace: 10 * time.Second})
		time.Sleep(30 * time.Second)
		stopped := time.Now()
		s := p.End()
		if d := time.Since(stopped); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("stopped after %v, want the grace period", d)
		}
		if s.Handled != 1 || s.Released != 5 || s.Failed+s.Retried != 0 {
			t.Errorf("%+v", s)
		}
		again := &testworld.Seen{}
		testworld.Ran(w, processor.New, "p", again, processor.Options{UntilIdle: 10 * time.Second})
		again.Expect(t, 5, 5)
		for _, task := range again.Order {
			if task.Attempt != 1 || task.N == 0 {
				t.Errorf("%+v", task)
			}
		}
	})
}

func TestWindow35AGetUnderWayAtTheStopIsWaitedForAndItsMessagesReleased(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(100 * time.Millisecond)
		slow := w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 4 * time.Second}, "GetMessages")
		w.Put("accounta", "work-00", 5, 5)
		for slow.Hits() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		s := p.End()
		if s.Envelopes == 0 || s.Handled != 0 || w.Visible("accounta", "work-00") != 5 {
			t.Errorf("%d visible, %+v", w.Visible("accounta", "work-00"), s)
		}
	})
}

func TestDiscardSettlesWithoutHandlerAndCountsTheTasks(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(40, 30)
		w.PutText("accounta", "work-00", []byte("a foreign one"))
		s := testworld.Ran(w, processor.New, "p", nil, processor.Options{Discard: true, UntilIdle: 5 * time.Second})
		if s.Handled != int64(tasks+1) || s.Foreign != 1 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
	})
}

// While its queues are full, who discards gets all that a get may bring: a get for each message
// would cost as much as its delete.
func TestDiscardGetsAsManyAsAGetBringsWhileQueuesAreFull(t *testing.T) {
	for _, delivery := range []string{string(pump.AtLeastOnce), string(pump.Once)} {
		t.Run(delivery, func(t *testing.T) {
			testworld.In(t, workload.Spec{Delivery: delivery}, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				w.Spread(1000, 1)
				all := w.Left()
				gets := w.Requests("GetMessages")
				p := testworld.Begun(w, processor.New, "p", nil, processor.Options{Discard: true})
				left := all
				for left > all/4 {
					time.Sleep(100 * time.Millisecond)
					left = w.Left()
				}
				gets = w.Requests("GetMessages") - gets
				each := float64(all-left) / float64(gets)
				t.Logf("%d messages were discarded with %d gets: %.1f a get", all-left, gets, each)
				if each < 0.8*storage.MaxGet {
					t.Errorf("a get brought %.1f messages, of the %d that it may", each, storage.MaxGet)
				}
				p.End()
			})
		})
	}
}

func TestEveryTaskIsHandledOnceAndEveryMessageDeleted(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 4, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(10, 25)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 100*time.Millisecond) }}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 5 * time.Second})
		h.Expect(t, tasks, tasks)
		proof.Same(t, w.Left(), 0, "messages are left")
		if s.Handled != int64(tasks) || s.Envelopes != 3*4*10 || s.Failed+s.Retried+s.Quarantined+s.Released+s.Lost != 0 {
			t.Errorf("summary %+v", s)
		}
		proof.Same(t, h.AtOnce(), defaultConcurrency, "tasks at once")
		t.Logf("%+v", s)
	})
}

// An account is removed when it has been empty and draining for as long as an old map may be used.
// A process that has not seen the map since must not put anything into it: no processor would read
// it.
func TestP65NothingIsBroughtHomeByAMapThatIsTooOld(t *testing.T) {
	testworld.In(t, testworld.Plain, 4, 1, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p, q := testworld.Begun(w, processor.New, "p", hs.Handler("p", 0), processor.Options{}), testworld.Begun(w, processor.New, "q", hs.Handler("q", 0), processor.Options{})
		w.Settled(2)
		w.DrainAccount("accountd")
		time.Sleep(20 * time.Second)
		v := w.Settled(2)
		m := v.Workload.Map
		at := slices.IndexFunc(m.Shards, func(s shardmap.Shard) bool { return s.Account == "accountd" })
		cut, other := p, q
		if v.Sweeper(at) == "q" {
			cut, other = q, p
		}
		// A home in an account that will go, of a segment that the other one holds.
		home := slices.IndexFunc(m.Shards, func(s shardmap.Shard) bool {
			if s.State != shardmap.Active || s.Account == w.Cfg.Control {
				return false
			}
			owner, _ := v.OwnerOf(testworld.SegmentOf(m, slices.Index(m.Shards, s)))
			return owner.Instance == other.Of.State().Instance
		})
		if home < 0 {
			t.Fatal("the other processor has only the control account's queue")
		}
		segment, gone := testworld.SegmentOf(m, home), m.Shards[home].Account
		dark := w.Sim.Inject(azsim.Rule{Instance: cut.Of.State().Instance, Service: "table", Fault: azsim.FailBefore})
		deaf := w.Sim.Inject(azsim.Rule{Instance: other.Of.State().Instance, Account: "accountd", Operations: []string{"GetMessages"}, Fault: azsim.FailBefore})
		w.DrainAccount(gone)
		time.Sleep(queues.RemoveAfter)
		w.Without(gone)

		w.PutText("accountd", "work-00", w.Envelope(segment, 3))
		time.Sleep(time.Minute)
		proof.Same(t, w.Count(gone, "work-00"), 0, "messages were put into a queue that was removed")
		dark.Remove()
		deaf.Remove()
		time.Sleep(2 * time.Minute)
		proof.Same(t, hs.Tasks(), 3, "tasks")
		p.End()
		q.End()
	})
}

// TestAProcessorThatWaitsForTheLeasesOfTheDeadSaysSo once, whether they died long ago or just now.
func TestAProcessorThatWaitsForTheLeasesOfTheDeadSaysSo(t *testing.T) {
	const waiting = "waiting for the lease of members that do not beat to run out"
	for name, c := range map[string]struct {
		dead, says time.Duration
		most       int // lines of the log
	}{
		"long ago": {dead: 5 * time.Minute, says: time.Second, most: 1},
		"just now": {dead: 0, says: 16 * time.Second, most: 2}, // two beats, and one until the next look; theirs are apart
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				var old []*started
				for _, instance := range []string{"p1", "p2"} {
					old = append(old, testworld.Begun(w, processor.New, instance, &testworld.Seen{}, processor.Options{Grace: -1}))
				}
				w.Settled(2)
				proof.Same(t, w.Logged(waiting), 0, "they say that they wait for each other")
				for _, instance := range []string{"p1", "p2"} {
					w.Fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore})
				}
				time.Sleep(c.dead)
				p := testworld.Begun(w, processor.New, "p3", &testworld.Seen{}, processor.Options{})
				time.Sleep(c.says)
				state := p.Of.State()
				if state.Ready || !slices.ContainsFunc(state.Reasons, func(r string) bool { return strings.Contains(r, "lease of p1, p2 to run out") }) {
					t.Errorf("reasons %q", state.Reasons)
				}
				if n := w.Logged(waiting); n < 1 || n > c.most || w.Logged("lease=23s") != n {
					t.Errorf("said %d times", n)
				}
				time.Sleep(6 * time.Second)
				if i := slices.IndexFunc(w.View().Members, func(m cluster.Member) bool { return m.Instance == "p3" }); !strings.Contains(w.View().Members[i].Trouble, "lease of p1, p2") {
					t.Errorf("its row says %q", w.View().Members[i].Trouble)
				}
				w.Settled(1)
				time.Sleep(10 * time.Second)
				if state := p.Of.State(); !state.Ready || w.Logged(waiting) > c.most {
					t.Errorf("afterwards %q, said %d times", state.Reasons, w.Logged(waiting))
				}
				p.End()
				for _, s := range old {
					s.Stop()
					<-s.Done
				}
			})
		})
	}
}

// hoarder is a reducer. Of each task of one segment it keeps 300 KiB that do not compress, and 8
// bytes of any other.
func hoarder(segment uint32, calls *sync.Map) *reduce.Reducer[[]byte, []byte] {
	return &reduce.Reducer[[]byte, []byte]{
		Name: "hoard/1",
		Map: func(_ context.Context, t *pump.Task) ([]byte, error) {
			n, _ := calls.LoadOrStore(testworld.Identity(t), new(int))
			*n.(*int)++
			out := make([]byte, 8)
			if t.Segment == segment && t.N > 0 {
				out = make([]byte, 300<<10)
			}
			r := rand.New(rand.NewPCG(uint64(t.Segment), t.N))
			for i := 0; i < len(out); i += 8 {
				binary.LittleEndian.PutUint64(out[i:], r.Uint64())
			}
			return out, nil
		},
		Fold:   func(state *[]byte, d []byte) { *state = append(*state, d...) },
		Encode: func(state *[]byte) ([]byte, error) { return *state, nil },
		Decode: func(stored []byte) ([]byte, error) { return append([]byte{}, stored...), nil },
	}
}

// A13: a result that does not fit into a state is refused before the handler, less and less often,
// and is no suspect. It stands in quarantine with a cause of its own when the state has been full
// for an hour. Results that fit go on.
func TestTasksThatAStateHasNoRoomForAreTriedSeldomAndThenQuarantined(t *testing.T) {
	proof.Only(t)
	const tasks = 8
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 1, 2, 3) // 900 KiB
		var calls sync.Map
		p := testworld.Begun(w, processor.New, "p", hoarder(testworld.SomeSegment, &calls).Handler(), processor.Options{})
		time.Sleep(time.Minute)
		w.ExpectBook(3, 0) // and the state is nearly full
		updates := w.Requests("UpdateMessage")
		w.PutTasks(testworld.SomeSegment, 10, 11, 12, 13, 14, 15, 16, 17)
		time.Sleep(30 * time.Minute)

		s := p.Of.State()
		if s.Ready || !strings.Contains(strings.Join(s.Reasons, "; "), "state of 1 of its segments is full") || s.StatesFull != 1 || s.StateUsed < 0.8 {
			t.Errorf("the state is full and it says %q, %d full, %.2f used", s.Reasons, s.StatesFull, s.StateUsed)
		}
		proof.Same(t, s.Done.Split, 0, "messages were split")
		w.PutTasks(testworld.SomeSegment, 0) // fits
		time.Sleep(25 * time.Minute)
		w.ExpectBook(4, 0)
		time.Sleep(35 * time.Minute)
		w.ExpectBook(4, tasks)
		time.Sleep(2 * time.Hour)
		s = p.Of.State()
		if len(s.Reasons) != 0 || s.StatesFull != 0 {
			t.Errorf("nothing was refused for two hours, and it says %q", s.Reasons)
		}
		summary := p.End()
		if summary.Split != 0 || summary.Quarantined != tasks || w.Left() != 0 {
			t.Errorf("%d messages left: %+v", w.Left(), summary)
		}
		n := 0
		calls.Range(func(_, c any) bool { n += *c.(*int); return true })
		if most := 4 + 12*tasks; n > most {
			t.Errorf("%d calls of the handler, want %d at most", n, most)
		}
		if n := w.Requests("UpdateMessage") - updates; n > 60 {
			t.Errorf("%d updates of messages", n)
		}
		texts := w.Poisoned("accounta")
		if len(texts) != 1 {
			t.Fatalf("%d messages in quarantine", len(texts))
		}
		h, err := codec.ReadHeader(texts[0])
		if err != nil || h.Cause == nil || h.Cause.Reason != codec.ReasonStateFull || h.Attempt != 0 {
			t.Errorf("%+v, %v", h, err)
		}
		if !strings.Contains(w.Log.String(), "more than half") {
			t.Error("nothing was said when the state was half full")
		}
	})
}

// A task whose contribution makes a state that cannot be stored (JSON has no NaN) is quarantined like
// one that a state has no room for, and holds no other up.
func TestATaskWhoseStateCannotBeStoredIsQuarantined(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0)
		w.PutTasks(testworld.SomeSegment, 1)
		h := &reduce.Reducer[float64, float64]{
			Name: "logs", Fold: func(sum *float64, d float64) { *sum += d },
			Map: func(_ context.Context, task *pump.Task) (float64, error) { return math.Log(float64(task.N) - 0.5), nil },
		}
		p := testworld.Begun(w, processor.New, "p", h.Handler(), processor.Options{})
		time.Sleep(2 * time.Hour)
		w.ExpectBook(1, 1)
		proof.Same(t, w.Left(), 0, "messages are left")
		p.End()
	})
}

// A copy in an envelope of another cut, of which some tasks are done, goes to quarantine for the
// others when its run has ended, also where nothing is handled.
func TestDiscardQuarantinesWhatIsLeftOfAnEndedRun(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(3, 0, 1, 2)
		s := testworld.Ran(w, processor.New, "p", nil, processor.Options{Discard: true, UntilIdle: 5 * time.Second})
		proof.Same(t, s.Handled, int64(3), "tasks discarded")
		proof.Must(t, w.AllRuns().End(t.Context(), w.Run, false, "by hand"))
		w.PutTasks(3, 1, 2, 3, 4)
		s = testworld.Ran(w, processor.New, "q", nil, processor.Options{Discard: true, UntilIdle: 5 * time.Second})
		if s.Handled != 0 || s.Duplicates != 2 || s.Quarantined != 2 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		w.ExpectBook(3, 2)
	})
}
