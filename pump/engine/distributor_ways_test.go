package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

func byChoice(m *shardmap.Map, lay []found) (n [3]int, strays int) {
	for _, f := range lay {
		if c := f.choice(m); c >= 0 {
			n[c]++
		} else {
			strays++
		}
	}
	return n, strays
}

// P6.5: the map is followed in mid-run, by a member's looks and without them.
func TestAnAccountAddedInMidRunTakesItsShare(t *testing.T) {
	for name, o := range map[string]DistributorOptions{
		"by looks at the cluster": {SealAge: time.Second},
		"by reading the map":      {SealAge: time.Second, Beat: 5 * time.Minute, Lease: 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
				for _, s := range settings.Shards(w.cfg) { // so that the distributor has to make them
					if s.Account == "accountc" {
						if err := w.queue(s.Account, s.Queue).Drop(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				w.without("accountc")
				time.Sleep(time.Minute)
				s := &listSource{print: "a", n: 6000, pace: 10 * time.Millisecond}
				d := w.startDistributor(w.distributor("d", s, o))
				time.Sleep(20 * time.Second)
				w.change(func(old []shardmap.Shard) []shardmap.Shard {
					return append(old, settings.Shards(w.cfg)[4:]...)
				})
				if err := d.wait(); err != nil {
					t.Fatal(err)
				}
				all, added := w.left(), w.in("accountc")
				if added < all/9 || added > all*4/9 { // a third of what came after a third of the time
					t.Errorf("%d of %d messages lie in the new account", added, all)
				}
				w.collect().expect(t, w.segments(), d.summary.Run, s, s.n, s.n)
				if w.logged("accounts of the configuration are not in use") != 1 {
					t.Error("the log does not say once that an account is not in use")
				}
			})
		})
	}
}

func TestADrainingAccountGetsNothingMore(t *testing.T) {
	for name, o := range map[string]DistributorOptions{
		"by looks at the cluster": {SealAge: time.Second},
		"by reading the map":      {SealAge: time.Second, Beat: 5 * time.Minute, Lease: 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				s := &listSource{print: "a", n: 9000, pace: 10 * time.Millisecond}
				d := w.startDistributor(w.distributor("d", s, o))
				time.Sleep(20 * time.Second)
				w.drainAccount("accountb")
				time.Sleep(workload.MapMaxAge)
				before, others := w.in("accountb"), w.in("accounta")
				if err := d.wait(); err != nil {
					t.Fatal(err)
				}
				if after := w.in("accountb"); before == 0 || after != before {
					t.Errorf("%d messages when nobody used the old map any more, %d later", before, after)
				}
				if w.in("accounta") <= others {
					t.Error("the other account got nothing either")
				}
				w.collect().expect(t, w.segments(), d.summary.Run, s, s.n, s.n)
			})
		})
	}
}

// A put that has failed for a while goes where its segment's home is now.
func TestATaskStuckAtAQueueThatDrainsMovesToTheNewHome(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		s := &listSource{print: "a", n: 2000, pace: 10 * time.Millisecond}
		w.fault(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed", Account: "accountb", Instance: "d", Skip: 100}, "PutMessage")
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{Pack: 2}))
		time.Sleep(time.Minute)
		select {
		case <-d.done:
			t.Fatalf("nothing was stuck: %v", d.err)
		default:
		}
		w.drainAccount("accountb")
		began := time.Now()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > workload.MapMaxAge {
			t.Errorf("took %v after the account drained", took)
		}
		w.collect().expect(t, w.segments(), d.summary.Run, s, s.n, s.n)
		windowHit(t, 1)
	})
}

// P6.5: a map that was read too long ago is not used.
func TestPutsStopWhenTheMapIsTooOld(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		s := &listSource{print: "a", n: 12_000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second}))
		time.Sleep(10 * time.Second)
		dark := w.sim.Inject(azsim.Rule{Service: "table", Instance: "d", Fault: azsim.FailBefore})
		time.Sleep(15 * time.Second)
		young := w.left()
		time.Sleep(16 * time.Second)
		old := w.left()
		if old <= young {
			t.Errorf("%d messages after 15 s without a map, %d after 31: the map was good for some of that", young, old)
		}
		time.Sleep(20 * time.Second)
		if n := w.left(); n != old {
			t.Errorf("%d messages 51 s after the last look, %d after 31", n, old)
		}
		if w.logged("nothing is put until it can be") == 0 {
			t.Error("no alarm")
		}
		dark.Remove()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		w.collect().expect(t, w.segments(), d.summary.Run, s, s.n, s.n)
	})
}

// An account that only the map knows is an error when a task must go there, not before.
func TestAnAccountWithoutCredentialsIsAnErrorWhenATaskMustGoThere(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.without("accountc")
		more := make(chan struct{})
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range 400 {
				if i == 1 {
					<-more
				}
				if !yield(source.Record{Key: []byte{byte(i)}, Body: []byte("x")}, nil) {
					return
				}
			}
		})
		cfg := w.config("d", 2)
		cfg.Accounts = cfg.Accounts[:2]
		dist, err := NewDistributor(cfg, source, DistributorOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d := w.startDistributor(dist)
		time.Sleep(5 * time.Second)
		w.change(func(old []shardmap.Shard) []shardmap.Shard { return append(old, settings.Shards(w.cfg)[4:]...) })
		time.Sleep(20 * time.Second)
		select {
		case <-d.done:
			t.Fatalf("ended before a task had to go there: %v", d.err)
		default:
		}
		if w.logged("has no credentials for") != 1 {
			t.Error("no alarm")
		}
		close(more)
		if err := d.wait(); !isConfigError(err) {
			t.Errorf("got %v, want a mistake in the configuration", err)
		}
	})
}

// P6.3: no mark, no spill; acknowledged anywhere is acknowledged; and back home.
func TestADarkHomesTasksGoToTheSecondChoiceOnceThatIsMarked(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		m := w.look().Workload.Map
		s := &listSource{print: "a", n: 20_000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second, Every: time.Hour}))
		time.Sleep(10 * time.Second)
		// Nothing can be marked; the leader's own rows are in another partition, but
		// the fault does not know rows, so it must be over before the term is.
		unmarked := w.fault(azsim.Rule{Fault: azsim.FailBefore, Instance: "d", Service: "table"}, "InsertEntity", "UpdateEntity", "MergeEntity", "DeleteEntity")
		w.sim.Blackout("accountb", true)
		time.Sleep(12 * time.Second)
		got, lay := w.takeFrom(settings.Shards(w.cfg)[:2])
		if n, strays := byChoice(m, lay); n[1] > 0 || n[2] > 0 || strays > 0 || n[0] == 0 {
			t.Errorf("%v messages by choice, %d elsewhere, while nothing could be marked", n, strays)
		}
		unmarked.Remove()
		time.Sleep(40 * time.Second)
		v := w.look()
		for segment := range uint32(m.Segments) {
			dark := m.Shards[m.Home(segment)].Account == "accountb"
			if marked := v.Spills != nil && v.Spills[segment] == 1<<1; marked != dark {
				t.Fatalf("segment %d: home dark %v, marks %v", segment, dark, v.Spills)
			}
		}
		w.sim.Blackout("accountb", false)
		time.Sleep(15 * time.Second)
		home := time.Now()
		time.Sleep(10 * time.Second)
		d.cancel()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		rest, lay := w.take()
		n, strays := byChoice(m, lay)
		if n[1] == 0 || n[2] > 0 || strays > 0 {
			t.Errorf("%v messages by choice, %d elsewhere", n, strays)
		}
		for _, f := range lay {
			if f.choice(m) > 0 && f.inserted.After(home) {
				t.Errorf("a message lies at a second choice %v after the home came back", f.inserted.Sub(home))
			}
		}
		for id, bodies := range rest {
			got[id] = append(got[id], bodies...)
		}
		got.expect(t, w.segments(), d.summary.Run, s, int(d.summary.Tasks), -1)
		if st := w.lookRow(); st.Run != d.summary.Run {
			t.Errorf("the election row: %+v", st)
		}
	})
}

func TestWithHomeAndSecondDarkTheThirdChoiceTakesTheTasks(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		m := w.look().Workload.Map
		s := &listSource{print: "a", n: 5000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second}))
		time.Sleep(10 * time.Second)
		w.sim.Blackout("accountb", true)
		w.sim.Blackout("accountc", true)
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		w.sim.Blackout("accountb", false)
		w.sim.Blackout("accountc", false)
		got, lay := w.take()
		got.expect(t, w.segments(), d.summary.Run, s, s.n, -1)
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
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				darken(w.sim, "accountb", true)
				s := &listSource{print: "a", n: 1000}
				d := w.startDistributor(w.distributor("d", s, DistributorOptions{}))
				time.Sleep(knownCreateSlow + 500*time.Millisecond)
				if w.in("accounta") == 0 {
					t.Error("the healthy account has nothing yet")
				}
				began := time.Now()
				if err := d.wait(); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("took %v", took)
				}
				darken(w.sim, "accountb", false)
				w.collect().expect(t, w.segments(), d.summary.Run, s, s.n, -1)
			})
		})
	}
}

// A queue that could not be made at the start is made when a put finds it missing.
func TestAQueueOfADarkAccountIsMadeWhenItIsNeeded(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		if err := w.queue("accountb", "work-00").Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		made := w.fault(azsim.Rule{Account: "accountb", Fault: azsim.FailBefore, Instance: "d"}, "CreateQueue")
		s := &listSource{print: "a", n: 1000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second}))
		time.Sleep(5 * time.Second)
		made.Remove()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		if w.in("accountb") == 0 {
			t.Error("nothing lies in the queue")
		}
		w.collect().expect(t, w.segments(), d.summary.Run, s, s.n, s.n)
	})
}

// P6.3: what a queue at its limit has no room for goes elsewhere; it goes on
// taking what it can, and nothing flaps.
func TestAThrottledHomeIsHelpedAndDoesNotFlap(t *testing.T) {
	verify.Only(t)
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		m := w.look().Workload.Map
		w.fault(azsim.Rule{Account: "accountb", Object: "work-00", Fault: azsim.Answer, Instance: "d", Probability: 0.9}, "PutMessage")
		s := &listSource{print: "a", n: 60_000, pace: time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{Pack: 5}))
		began := time.Now()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("took %v: the throttled queue held everything up", took)
		}
		got, lay := w.take()
		got.expect(t, w.segments(), d.summary.Run, s, s.n, -1)
		n, strays := byChoice(m, lay)
		home := 0
		for _, f := range lay {
			if f.account == "accountb" && f.queue == "work-00" {
				home++
			}
		}
		t.Logf("%v messages by choice, %d still in the throttled queue", n, home)
		if n[1] == 0 || strays > 0 || home == 0 {
			t.Errorf("%v messages by choice, %d elsewhere, %d in the throttled queue", n, strays, home)
		}
		if turns := w.logged("a queue is at its limit"); turns == 0 || turns > 2 {
			t.Errorf("it was found at its limit %d times", turns)
		}
	})
}

// The two halves together: tasks that spill are handled while their home is dark.
func TestSpilledTasksAreHandledWhileTheirHomeIsDark(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		m := w.look().Workload.Map
		var mu sync.Mutex
		handled, helped, dark := map[string]bool{}, 0, false
		p := w.start(w.processor(pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
			mu.Lock()
			defer mu.Unlock()
			handled[identity(task)] = true
			if dark && m.Shards[m.Home(task.Segment)].Account == "accountb" {
				helped++
			}
			return nil
		}), ProcessorOptions{}))
		darken := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			dark = on
			w.sim.Blackout("accountb", on)
		}
		s := &listSource{print: "a", n: 6000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second}))
		time.Sleep(5 * time.Second)
		darken(true)
		time.Sleep(15 * time.Second)
		mu.Lock()
		helped = 0 // what was in hand
		mu.Unlock()
		time.Sleep(20 * time.Second)
		darken(false)
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.end()
		mu.Lock()
		defer mu.Unlock()
		if len(handled) != s.n {
			t.Errorf("%d of %d tasks were handled", len(handled), s.n)
		}
		if helped < 500 { // half of 100 a second for 20 s
			t.Errorf("%d tasks were handled while their home was dark", helped)
		}
		if w.left() > 0 {
			t.Errorf("%d messages are left", w.left())
		}
	})
}
