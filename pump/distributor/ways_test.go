package distributor_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

func byChoice(m *shardmap.Map, lay []testworld.Found) (n [3]int, strays int) {
	for _, f := range lay {
		if c := choice(f, m); c >= 0 {
			n[c]++
		} else {
			strays++
		}
	}
	return n, strays
}

// P6.5: the map is followed in mid-run, by a member's looks and without them.
func TestAnAccountAddedInMidRunTakesItsShare(t *testing.T) {
	for name, o := range map[string]distributor.Options{
		"by looks at the cluster": {SealAge: time.Second},
		"by reading the map":      {SealAge: time.Second, Beat: 5 * time.Minute, Lease: 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
				for _, s := range setup.Shards(w.Cfg) { // so that the distributor has to make them
					if s.Account == "accountc" {
						proof.Must(t, w.Queue(s.Account, s.Queue).Drop(t.Context()))
					}
				}
				w.Without("accountc")
				time.Sleep(time.Minute)
				s := &testworld.ListSource{Print: "a", N: 6000, Pace: 10 * time.Millisecond}
				d := testworld.Begun(w, distributor.New, "d", s, o)
				time.Sleep(20 * time.Second)
				w.ChangeMap(func(old []shardmap.Shard) []shardmap.Shard {
					return append(old, setup.Shards(w.Cfg)[4:]...)
				})
				proof.Must(t, d.Wait())
				all, added := w.Left(), w.In("accountc")
				if added < all/9 || added > all*4/9 { // a third of what came after a third of the time
					t.Errorf("%d of %d messages lie in the new account", added, all)
				}
				w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, s.N)
				proof.Same(t, w.Logged("accounts of the configuration are not in use"), 1,
					"the log does not say once that an account is not in use")
			})
		})
	}
}

func TestADrainingAccountGetsNothingMore(t *testing.T) {
	for name, o := range map[string]distributor.Options{
		"by looks at the cluster": {SealAge: time.Second},
		"by reading the map":      {SealAge: time.Second, Beat: 5 * time.Minute, Lease: 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				s := &testworld.ListSource{Print: "a", N: 9000, Pace: 10 * time.Millisecond}
				d := testworld.Begun(w, distributor.New, "d", s, o)
				time.Sleep(20 * time.Second)
				w.DrainAccount("accountb")
				time.Sleep(workload.MapMaxAge)
				before, others := w.In("accountb"), w.In("accounta")
				proof.Must(t, d.Wait())
				if after := w.In("accountb"); before == 0 || after != before {
					t.Errorf("%d messages when no process used the old map any more, %d later", before, after)
				}
				if w.In("accounta") <= others {
					t.Error("the other account got nothing either")
				}
				w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, s.N)
			})
		})
	}
}

// P6.5: a map that was read too long ago is not used.
func TestPutsStopWhenTheMapIsTooOld(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 12_000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
		time.Sleep(10 * time.Second)
		dark := w.Sim.Inject(azsim.Rule{Service: "table", Instance: "d", Fault: azsim.FailBefore})
		time.Sleep(15 * time.Second)
		young := w.Left()
		time.Sleep(16 * time.Second)
		old := w.Left()
		if old <= young {
			t.Errorf("%d messages after 15 s without a map, %d after 31: the map was good for some of that", young, old)
		}
		time.Sleep(20 * time.Second)
		proof.Same(t, w.Left(), old, "messages 51 s after the last look, … after 31")
		if w.Logged("nothing is put until it can be") == 0 {
			t.Error("no alarm")
		}
		dark.Remove()
		proof.Must(t, d.Wait())
		w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, s.N)
	})
}

// An account that only the map knows is dark to this process: its tasks go to others.
func TestAnAccountThatOnlyTheMapKnowsIsGoneRound(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Without("accountc")
		more := make(chan struct{})
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range 400 {
				if i == 1 {
					<-more
				}
				if !yield(source.Record{Key: []byte{byte(i), byte(i >> 8)}, Body: []byte("x")}, nil) {
					return
				}
			}
		})
		cfg := w.Config("d", 2)
		cfg.Accounts = cfg.Accounts[:2]
		dist, err := distributor.New(cfg, source, distributor.Options{})
		proof.Must(t, err)
		d := testworld.Start(w.T, dist)
		time.Sleep(5 * time.Second)
		w.ChangeMap(func(old []shardmap.Shard) []shardmap.Shard { return append(old, setup.Shards(w.Cfg)[4:]...) })
		time.Sleep(20 * time.Second)
		proof.Same(t, w.Logged("has no credentials for"), 1, "no alarm")
		close(more)
		proof.Is(t, d.Wait(), nil)
		proof.Same(t, len(w.Collect()), 400, "tasks were put")
	})
}

// P6.3: no mark, no spill; acknowledged anywhere is acknowledged; and back home.
func TestADarkHomesTasksGoToTheSecondChoiceOnceThatIsMarked(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		m := w.View().Workload.Map
		s := &testworld.ListSource{Print: "a", N: 20_000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second, Every: time.Hour})
		time.Sleep(10 * time.Second)
		// Nothing can be marked; the leader's own rows are in another partition, but
		// the fault does not know rows, so it must be over before the term is.
		unmarked := w.Fault(azsim.Rule{Fault: azsim.FailBefore, Instance: "d", Service: "table"}, "InsertEntity", "UpdateEntity", "MergeEntity", "DeleteEntity")
		w.Sim.Blackout("accountb", true)
		time.Sleep(12 * time.Second)
		got, lay := w.TakeFrom(setup.Shards(w.Cfg)[:2])
		if n, strays := byChoice(m, lay); n[1] > 0 || n[2] > 0 || strays > 0 || n[0] == 0 {
			t.Errorf("%v messages by choice, %d elsewhere, while nothing could be marked", n, strays)
		}
		unmarked.Remove()
		time.Sleep(40 * time.Second)
		v := w.View()
		for segment := range uint32(m.Segments) {
			dark := m.Shards[m.Home(segment)].Account == "accountb"
			if marked := v.Spills != nil && v.Spills[segment] == 1<<1; marked != dark {
				t.Fatalf("segment %d: home dark %v, marks %v", segment, dark, v.Spills)
			}
		}
		w.Sim.Blackout("accountb", false)
		time.Sleep(15 * time.Second)
		home := time.Now()
		time.Sleep(10 * time.Second)
		d.Stop()
		proof.Must(t, d.Wait())
		rest, lay := w.Take()
		n, strays := byChoice(m, lay)
		if n[1] == 0 || n[2] > 0 || strays > 0 {
			t.Errorf("%v messages by choice, %d elsewhere", n, strays)
		}
		for _, f := range lay {
			if choice(f, m) > 0 && f.Inserted.After(home) {
				t.Errorf("a message lies at a second choice %v after the home came back", f.Inserted.Sub(home))
			}
		}
		for id, bodies := range rest {
			got[id] = append(got[id], bodies...)
		}
		got.Expect(t, w.Segments(), d.Summary.Run, s, int(d.Summary.Tasks), -1)
		if st := lookRow(w); st.Run != d.Summary.Run {
			t.Errorf("the election row: %+v", st)
		}
	})
}

func TestWithHomeAndSecondDarkTheThirdChoiceTakesTheTasks(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		m := w.View().Workload.Map
		s := &testworld.ListSource{Print: "a", N: 5000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
		time.Sleep(10 * time.Second)
		w.Sim.Blackout("accountb", true)
		w.Sim.Blackout("accountc", true)
		proof.Must(t, d.Wait())
		w.Sim.Blackout("accountb", false)
		w.Sim.Blackout("accountc", false)
		got, lay := w.Take()
		got.Expect(t, w.Segments(), d.Summary.Run, s, s.N, -1)
		if n, strays := byChoice(m, lay); n[0] == 0 || n[1] == 0 || n[2] == 0 || strays > 0 {
			t.Errorf("%v messages by choice, %d elsewhere", n, strays)
		}
	})
}

// The workload exists; its healthy accounts do not wait for a dark one.
func TestADistributorStartsWithOneAccountDark(t *testing.T) {
	for name, darken := range map[string]func(s *azsim.Sim, account string, on bool){
		"refused": (*azsim.Sim).Blackout, "hanging": (*azsim.Sim).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				darken(w.Sim, "accountb", true)
				s := &testworld.ListSource{Print: "a", N: 1000}
				d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{})
				time.Sleep(createSlow + 500*time.Millisecond)
				if w.In("accounta") == 0 {
					t.Error("the healthy account has nothing yet")
				}
				began := time.Now()
				proof.Must(t, d.Wait())
				if took := time.Since(began); took > time.Minute {
					t.Errorf("took %v", took)
				}
				darken(w.Sim, "accountb", false)
				w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, -1)
			})
		})
	}
}

// A queue that could not be made at the start is made when a put finds it missing.
func TestAQueueOfADarkAccountIsMadeWhenItIsNeeded(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		proof.Must(t, w.Queue("accountb", "work-00").Drop(t.Context()))
		time.Sleep(time.Minute)
		made := w.Fault(azsim.Rule{Account: "accountb", Fault: azsim.FailBefore, Instance: "d"}, "CreateQueue")
		s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
		time.Sleep(5 * time.Second)
		made.Remove()
		proof.Must(t, d.Wait())
		if w.In("accountb") == 0 {
			t.Error("nothing lies in the queue")
		}
		w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, s.N)
	})
}

// P6.3: what a queue at its limit has no room for goes elsewhere; it goes on
// taking what it can, and nothing flaps.
func TestAThrottledHomeIsHelpedAndDoesNotFlap(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		m := w.View().Workload.Map
		w.Fault(azsim.Rule{Account: "accountb", Object: "work-00", Fault: azsim.Answer, Instance: "d", Probability: 0.9}, "PutMessage")
		s := &testworld.ListSource{Print: "a", N: 60_000, Pace: time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{Pack: 5})
		began := time.Now()
		proof.Must(t, d.Wait())
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("took %v: the throttled queue held everything up", took)
		}
		got, lay := w.Take()
		got.Expect(t, w.Segments(), d.Summary.Run, s, s.N, -1)
		n, strays := byChoice(m, lay)
		home := 0
		for _, f := range lay {
			if f.Account == "accountb" && f.Queue == "work-00" {
				home++
			}
		}
		t.Logf("%v messages by choice, %d still in the throttled queue", n, home)
		if n[1] == 0 || strays > 0 || home == 0 {
			t.Errorf("%v messages by choice, %d elsewhere, %d in the throttled queue", n, strays, home)
		}
		if turns := w.Logged("a queue is at its limit"); turns == 0 || turns > 2 {
			t.Errorf("it was found at its limit %d times", turns)
		}
	})
}

// The two halves together: tasks that spill are handled while their home is dark.
func TestSpilledTasksAreHandledWhileTheirHomeIsDark(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		m := w.View().Workload.Map
		var mu sync.Mutex
		handled, helped, dark := map[string]bool{}, 0, false
		p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
			mu.Lock()
			defer mu.Unlock()
			handled[testworld.Identity(task)] = true
			if dark && m.Shards[m.Home(task.Segment)].Account == "accountb" {
				helped++
			}
			return nil
		}), processor.Options{})
		darken := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			dark = on
			w.Sim.Blackout("accountb", on)
		}
		s := &testworld.ListSource{Print: "a", N: 6000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
		time.Sleep(5 * time.Second)
		darken(true)
		time.Sleep(15 * time.Second)
		mu.Lock()
		helped = 0 // what was in hand
		mu.Unlock()
		time.Sleep(20 * time.Second)
		darken(false)
		proof.Must(t, d.Wait())
		time.Sleep(time.Minute)
		p.End()
		mu.Lock()
		defer mu.Unlock()
		proof.Same(t, len(handled), s.N, "tasks were handled")
		if helped < 500 { // half of 100 a second for 20 s
			t.Errorf("%d tasks were handled while their home was dark", helped)
		}
		if w.Left() > 0 {
			t.Errorf("%d messages are left", w.Left())
		}
	})
}

// choice is which of its segment's choices a message lay in; -1 for none of them.
func choice(f testworld.Found, m *shardmap.Map) int {
	return slices.IndexFunc(m.Choices(f.Segment), func(i int) bool {
		return m.Shards[i].Account == f.Account && m.Shards[i].Queue == f.Queue
	})
}
