package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// poster is a sender that takes keys.
func poster(w *testworld.World, instance string) *distributor.Sender {
	w.T.Helper()
	cfg := w.Config(instance, w.Cfg.Accounts[0].Queues)
	s, err := distributor.NewSender(cfg, distributor.SenderOptions{KeepKeys: 24 * time.Hour})
	proof.Must(w.T, err)
	return s
}

// tasksOf are n tasks whose bodies begin with a text.
func tasksOf(text string, n int) (tasks []source.Record) {
	for i := range n {
		tasks = append(tasks, newTask(fmt.Sprintf("%s/%d", text, i)))
	}
	return tasks
}

// bodies counts what a handler was given by its text.
func bodies(s *testworld.Seen) map[string]int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	times := map[string]int{}
	for _, t := range s.Order {
		times[string(t.Body)]++
	}
	return times
}

// onceEach checks that so many tasks were handled, each once.
func onceEach(t *testing.T, h *testworld.Seen, want int) {
	t.Helper()
	got := bodies(h)
	for body, n := range got {
		proof.Same(t, n, 1, body, "handled … times")
	}
	proof.Same(t, len(got), want, "tasks were handled")
}

// closed closes senders.
func closed(t *testing.T, all ...*distributor.Sender) {
	t.Helper()
	for _, s := range all {
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
	}
}

// kills ends a sender as kill -9 does: no request of it arrives any more.
func kills(w *testworld.World, instance string, s *distributor.Sender) {
	w.Crash(instance)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = s.Close(gone)
}

func TestPostsOfOneMomentShareAMessage(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			s := poster(w, "d")
			proof.Must(t, s.Distributor().Prepare(t.Context()))
			before := w.Requests("PutMessage")
			var all sync.WaitGroup
			for client := range 2 {
				all.Go(func() {
					key := ""
					if keyed {
						key = fmt.Sprint("key ", client)
					}
					rec := source.Record{Key: []byte("same"), Body: fmt.Append(nil, client)}
					if did, err := s.Post(t.Context(), key, rec); err != nil || did.Errs != nil || did.Again {
						t.Errorf("%+v, %v", did, err)
					}
				})
				time.Sleep(5 * time.Millisecond)
			}
			all.Wait()
			proof.Same(t, w.Requests("PutMessage")-before, 1, "keyed", keyed, "two posts took … puts")
			closed(t, s)
		})
	}
}

func TestARepeatedPostIsDoneOnceAndItsRunsClose(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		one, two := poster(w, "one"), poster(w, "two")
		tasks := tasksOf("a", 40)
		for i, s := range []*distributor.Sender{one, one, two, two} {
			if did, err := s.Post(t.Context(), "key", tasks...); err != nil || did.Errs != nil || did.Again != (i > 0) {
				t.Errorf("post %d: %+v, %v", i, did, err)
			}
		}
		for _, s := range []*distributor.Sender{one, two} {
			if _, err := s.Post(t.Context(), "key", tasksOf("b", 40)...); !errors.Is(err, distributor.ErrOtherTasks) {
				t.Errorf("other tasks under the key: %v", err)
			}
		}
		did, err := two.Post(t.Context(), "another", tasksOf("b", 10)...)
		if err != nil || did.Again {
			t.Errorf("%+v, %v", did, err)
		}
		closed(t, one, two)
		time.Sleep(5 * time.Minute)
		onceEach(t, &h, 50)
		// A number that is not used would keep its run from its end.
		for _, run := range runsOf(w) {
			if run.Mode == "posts" && run.State != workload.RunClosed {
				t.Errorf("a run is %s with %d tasks", run.State, run.Tasks)
			}
		}
		if did, err := three(w).Post(t.Context(), "key", tasks...); err != nil || !did.Again {
			t.Errorf("after the run was closed: %+v, %v", did, err)
		}
		time.Sleep(time.Minute)
		onceEach(t, &h, 50)
		p.End()
	})
}

// three is a sender that is closed at the end of the test.
func three(w *testworld.World) *distributor.Sender {
	s := poster(w, "three")
	w.T.Cleanup(func() { _, _ = s.Close(context.Background()) })
	return s
}

func TestPostsOfOneKeyAtOnceAreOnePost(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		servers := []*distributor.Sender{poster(w, "one"), poster(w, "two")}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				if did, err := servers[i%2].Post(t.Context(), "key", tasksOf("a", 10)...); err != nil || did.Errs != nil {
					t.Errorf("%+v, %v", did, err)
				}
			})
		}
		all.Wait()
		closed(t, servers...)
		time.Sleep(5 * time.Minute)
		onceEach(t, &h, 10)
		for _, run := range runsOf(w) {
			if run.Mode == "posts" && run.State != workload.RunClosed {
				t.Errorf("a run is %s with %d tasks", run.State, run.Tasks)
			}
		}
		p.End()
	})
}

func TestAServerThatDiesBetweenRowAndPutLosesNothing(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		one := poster(w, "one")
		proof.Must(t, proof.ErrOf(one.Post(t.Context(), "first", tasksOf("first", 1)...)))
		w.Sim.Inject(azsim.Rule{Instance: "one", Operations: []string{"PutMessage"}, Fault: azsim.HangBefore})
		within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		proof.Is(t, proof.ErrOf(one.Post(within, "key", tasksOf("a", 20)...)), context.DeadlineExceeded)
		kills(w, "one", one)
		two := poster(w, "two")
		for _, after := range []time.Duration{time.Second, 20 * time.Minute, 90 * time.Minute} {
			time.Sleep(after)
			if did, err := two.Post(t.Context(), "key", tasksOf("a", 20)...); err != nil || !did.Again {
				t.Errorf("after %v: %+v, %v", after, did, err)
			}
			time.Sleep(time.Minute)
			onceEach(t, &h, 21)
		}
		closed(t, two)
		p.End()
	})
}

// The row of a key was written, and no answer tells so for minutes, or the account refuses: the
// tasks are put when it is known, so a repeat is not told that they are in queues when they are not.
func TestAKeyWhoseRowIsInDoubtLosesNothing(t *testing.T) {
	for _, then := range []azsim.Rule{
		{Operations: []string{"GetEntity"}, Fault: azsim.FailBefore},
		{Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
	} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			one := poster(w, "one")
			proof.Must(t, proof.ErrOf(one.Post(t.Context(), "first", newTask("first"))))
			keys := workload.KeysPartition(w.Cfg.Workload, int(workload.KeyOf("key")[0]-'0'))
			w.Sim.Inject(azsim.Rule{Instance: "one", Partition: keys, Fault: azsim.AnswerLost, First: 1})
			then.Instance, then.Partition = "one", keys
			ill := w.Sim.Inject(then)
			within, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			if did, err := one.Post(within, "key", tasksOf("a", 20)...); err == nil {
				t.Errorf("a post whose row is in doubt: %+v", did)
			}
			time.Sleep(3 * time.Minute)
			ill.Remove()
			closed(t, one)
			tasks := len(w.Collect())
			if did, err := three(w).Post(t.Context(), "key", tasksOf("a", 20)...); err != nil || !did.Again || tasks != 21 {
				t.Errorf("given again: %+v, %v; %d tasks were in the queues", did, err, tasks)
			}
		})
	}
}

// The row of a key cannot be read: its post fails at once, and the run is not sealed without it.
func TestADamagedRowOfAKeyIsToldAndItsRunIsNotSealed(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		proof.Must(t, proof.ErrOf(s.Post(t.Context(), "first", newTask("first"))))
		w.Sim.Inject(azsim.Rule{Instance: "d", Operations: []string{"InsertEntity"}, Fault: azsim.AnswerLost, First: 1})
		ill := w.Sim.Inject(azsim.Rule{Instance: "d", Operations: []string{"GetEntity"}, Fault: azsim.Damage})
		proof.Is(t, proof.ErrOf(s.Post(t.Context(), "key", tasksOf("a", 20)...)), row.ErrCorrupt)
		ill.Remove()
		time.Sleep(15 * time.Minute)
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		summary, err := s.Close(within)
		if run := w.RunRow(summary.Run); err == nil || run.State != workload.RunBroken {
			t.Errorf("the run is %s: %v", run.State, err)
		}
	})
}

// What waits for a queue is compressed: the bodies of callers that have gone are many times as much.
func TestATaskThatWaitsDoesNotKeepItsBody(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		proof.Must(t, proof.ErrOf(s.Post(t.Context(), "", newTask("first"))))
		w.Sim.Inject(azsim.Rule{Instance: "d", Operations: []string{"PutMessage"}, Fault: azsim.HangBefore})
		var bodies []weak.Pointer[[1 << 20]byte]
		for range 8 {
			body := new([1 << 20]byte)
			bodies = append(bodies, weak.Make(body))
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			proof.Is(t, proof.ErrOf(s.Post(within, "", source.Record{Body: body[:]})), context.DeadlineExceeded)
			cancel()
		}
		runtime.GC()
		kept := slices.DeleteFunc(bodies, func(b weak.Pointer[[1 << 20]byte]) bool { return b.Value() == nil })
		if len(kept) > 2 { // the reader has the last one in hand
			t.Errorf("of 8 bodies that wait for a queue %d are kept", len(kept))
		}
		var err error
		for range 70 { // with receipts of more bytes than may wait for queues
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = s.Post(within, "", make([]source.Record, 10_000)...)
			cancel()
		}
		proof.Says(t, err, "what was handed in before still waits for its queues", "the last of 700,000 small tasks")
		kills(w, "d", s)
	})
}

func TestASenderThatClosesEndsItsPosts(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		proof.Must(t, proof.ErrOf(s.Post(t.Context(), "first", newTask("first"))))
		slow := w.Sim.Inject(azsim.Rule{Instance: "d", Operations: []string{"Batch"}, Fault: azsim.FailBefore})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if did, err := s.Post(t.Context(), fmt.Sprint(i), tasksOf(fmt.Sprint(i), 3)...); err != nil || did.Errs != nil {
					t.Errorf("%+v, %v", did, err)
				}
			})
		}
		time.Sleep(time.Second)
		sealed := make(chan distributor.Summary, 1)
		go func() {
			summary, err := s.Close(t.Context())
			proof.Must(t, err)
			sealed <- summary
		}()
		time.Sleep(time.Second)
		slow.Remove()
		all.Wait()
		summary := <-sealed
		run := w.RunRow(summary.Run)
		if tasks := len(w.Collect()); run.State != workload.RunSealed || run.Tasks != 31 || tasks != 31 {
			t.Errorf("the run is %s with %d tasks, and %d are in the queues", run.State, run.Tasks, tasks)
		}
	})
}

// A run that an operator has ended takes no tasks: the caller is told, and nothing is lost in
// silence.
func TestTheKeyOfAnEndedRunIsRefused(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		one, two := poster(w, "one"), poster(w, "two")
		proof.Must(t, proof.ErrOf(one.Post(t.Context(), "key", tasksOf("a", 5)...)))
		kills(w, "one", one)
		for _, run := range runsOf(w) {
			if run.Mode == "posts" {
				proof.Must(t, w.AllRuns().End(t.Context(), run.ID, false, "test"))
			}
		}
		proof.Is(t, proof.ErrOf(two.Post(t.Context(), "key", tasksOf("a", 5)...)), distributor.ErrKeyOver)
		proof.Must(t, proof.ErrOf(two.Post(t.Context(), "another", tasksOf("a", 5)...)))
		closed(t, two)
	})
}

func TestATaskThatIsTooLargeRefusesItsPost(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		huge := source.Record{Key: []byte("huge"), Body: testworld.Incompressible(200 << 10)}
		for _, key := range []string{"", "key"} {
			did, err := s.Post(t.Context(), key, newTask("a"), huge)
			if !errors.Is(err, codec.ErrTaskTooLarge) || len(did.Errs) != 2 || did.Errs[0] != nil || did.Errs[1] == nil {
				t.Errorf("%+v, %v", did, err)
			}
		}
		proof.Same(t, w.Left(), 0, "some of it was sent")
		proof.Must(t, proof.ErrOf(s.Post(t.Context(), "key", newTask("a"))))
		closed(t, s)
	})
}

func TestOfAPostItIsKnownWhichTasksAreAcknowledged(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		proof.Must(t, s.Distributor().Prepare(t.Context()))
		w.Sim.Inject(azsim.Rule{Instance: "d", Account: "accountb", Service: "queue", Fault: azsim.HangBefore})
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		did, err := s.Post(within, "", tasksOf("a", 40)...)
		n := 0
		for _, why := range did.Errs {
			if why != nil {
				n++
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || n == 0 || n == 40 {
			t.Errorf("%d of 40 tasks are not acknowledged, %v", n, err)
		}
		gone, end := context.WithCancel(context.Background())
		end()
		_, _ = s.Close(gone)
	})
}

func TestMorePostsWithKeysThanMayComeAreRefused(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := poster(w, "d")
		proof.Must(t, proof.ErrOf(s.Post(t.Context(), "first", newTask("first"))))
		var all sync.WaitGroup
		var mu sync.Mutex
		refused, took := 0, 0
		began := time.Now()
		for i := 0; time.Since(began) < 3*time.Second; i++ {
			for range 100 {
				all.Go(func() {
					_, err := s.Post(t.Context(), fmt.Sprintf("%d %p", i, new(int)), newTask("a"))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						took++
					case errors.Is(err, distributor.ErrManyKeys):
						refused++
					default:
						t.Error(err)
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		if took < 14_000 || took > 16_000 || refused == 0 {
			t.Errorf("in 3 s %d posts with keys were taken, and %d refused", took, refused)
		}
		closed(t, s)
	})
}

func TestHowLongKeysMayBeKept(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("d", w.Cfg.Accounts[0].Queues)
		for _, keep := range []time.Duration{time.Second, 365 * 24 * time.Hour} {
			_, err := distributor.NewSender(cfg, distributor.SenderOptions{KeepKeys: keep})
			if e, is := errors.AsType[*pump.ConfigError](err); !is || e.Field != "keep-keys" {
				t.Errorf("%v: %v", keep, err)
			}
		}
		s := sender(w, distributor.SenderOptions{})
		proof.Says(t, proof.ErrOf(s.Post(t.Context(), "key", newTask("a"))), "keep-keys", "a sender that takes no keys")
		closed(t, s)
	})
}
