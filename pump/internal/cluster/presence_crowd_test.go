package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// joinMany makes n members, m00 and so on, and waits for them to be settled and at rest.
func (c *crowd) joinMany(n int) {
	c.t.Helper()
	for i := range n {
		c.join(fmt.Sprintf("m%02d", i))
	}
	c.settle(2 * time.Minute)
	time.Sleep(time.Minute)
}

// watchersOf are those who look for all while no member is quiet.
func watchersOf(v *View) []string {
	return newObserver("none", row.Times{}, 0).watchers(v)
}

// takenOver is how long it takes until each segment has a live owner that is none of the dead.
func (c *crowd) takenOver(dead ...string) time.Duration {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		v := c.load()
		left := slices.ContainsFunc(v.Owners, func(o Owner) bool { return v.alive(o) < 0 || slices.Contains(dead, o.Instance) })
		if !left {
			return time.Since(began)
		}
		if time.Since(began) > 5*time.Minute {
			c.t.Fatalf("not taken over: %s", shares(v))
		}
	}
}

func TestOfManyMembersOneThatStopsOrDiesIsMissedByThoseWhomItConcerns(t *testing.T) {
	proof.Only(t)
	inCrowd(t, 8, 256, func(t *testing.T, c *crowd) {
		c.joinMany(40)
		begun := time.Now()
		c.members["m30"].Leave(t.Context())
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("leaving took %v", took)
		}
		if v := c.settle(5 * time.Second); v.Index("m30") >= 0 {
			t.Error("the row of the one that left is there")
		}
		time.Sleep(time.Minute)
		c.isolate("m20")
		// 23 to 28 s, and no member waits for a look that would come anyway.
		if after := c.takenOver("m20"); after > 30*time.Second {
			t.Errorf("taken over after %v", after)
		}
	})
}

func TestWhenAllWhoLookForTheOthersDieTheNextNoticeAtOneLook(t *testing.T) {
	proof.Only(t)
	inCrowd(t, 8, 256, func(t *testing.T, c *crowd) {
		c.joinMany(40)
		dead := watchersOf(c.load())
		c.isolate(dead...)
		// A lease until they seem quiet, three beats at most until the next in rank
		// looks, and lease + margin of looking.
		if after := c.takenOver(dead...); after > 60*time.Second {
			t.Errorf("taken over after %v", after)
		}
	})
}

func TestEvictionsHoldUpNoBeatHoweverManyAreDead(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		var dead []string
		for i := range 25 {
			dead = append(dead, fmt.Sprintf("m%02d", i))
			c.join(dead[i])
		}
		c.settle(20 * time.Second)
		c.isolate(dead...)
		var tried atomic.Int32
		c.setTamper(func(ctx context.Context, name string, w storage.Write, acted bool) error {
			if name != "a" || w.Mode != storage.Remove || acted {
				return nil
			}
			tried.Add(1)
			<-ctx.Done()
			return errNoAnswer
		})
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			if a.trusted() == 0 {
				t.Fatal("trust ended while the dead could not be removed")
			}
		}
		c.setTamper(nil)
		if tried.Load() == 0 {
			t.Error("no member was evicted")
		}
	})
}

func TestAnEvictedMemberLeavesThoughItsNameIsAnothersNow(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a", func(o *Options) { o.BestEffort = true })
		c.settle(5 * time.Second)
		heal := c.isolate("a")
		v := c.load()
		r := memberRowOf(c.table("operator"), "city", "a", time.Second)
		must(t, r.TryRemove(t.Context(), v.present[v.Index("a")]))
		w, err := workload.Load(t.Context(), c.table("twin"), "city")
		must(t, err)
		twin, err := Join(t.Context(), w, Options{Instance: "a", Role: RoleProcessor})
		must(t, err)
		heal()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		a.Leave(ctx)
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		if v := c.load(); v.Index("a") < 0 || len(a.held()) > 0 {
			t.Errorf("the twin is at %d, the one that left holds %d", v.Index("a"), len(a.held()))
		}
		twin.Leave(ctx)
	})
}

func TestAWorkloadMadeAnewBeforeJoiningIsNoticed(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		table := c.table("operator")
		before, err := workload.Load(t.Context(), table, "city")
		must(t, err)
		r := workload.RowOf(table, "city")
		v, err := r.Read(t.Context())
		must(t, err)
		must(t, r.TryRemove(t.Context(), v))
		c.ensure(table, workload.Spec{Name: "city", Segments: 256, Delivery: string(pump.AtLeastOnce), Shards: queuesOf(8)})
		_, err = Join(t.Context(), before, Options{Instance: "a", Role: RoleProcessor})
		proof.Is(t, err, workload.ErrReplaced, "joined")
		proof.Same(t, len(c.load().Members), 0, "members left behind")
	})
}

func TestAMemberIsNotDarkBeforeItsFirstLookIsAttendedTo(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		var m *testMember
		joined := make(chan struct{})
		var longest atomic.Int64
		m = c.join("a", func(o *Options) {
			o.Changed = func(*View) { <-joined; longest.Store(max(longest.Load(), int64(m.Dark()))) }
		})
		proof.Same(t, m.Dark(), 0, "dark when it has joined")
		close(joined)
		time.Sleep(20 * time.Second)
		proof.Same(t, time.Duration(longest.Load()), 0, "dark")
	})
}

func TestAnOwnBeatWhoseOutcomeWasNotLearnedIsNoTwin(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		// A beat lands, its answer is lost, and then the credential is refused for a while.
		var refused atomic.Pointer[azsim.Injection]
		c.setTamper(func(_ context.Context, name string, w storage.Write, acted bool) error {
			if name == "a" && acted && w.Entity.Row == "present.a" && refused.Load() == nil {
				refused.Store(c.sim.Inject(azsim.Rule{Instance: "a", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"}))
				return errNoAnswer
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		if refused.Load() == nil {
			t.Fatal("no beat went wrong")
		}
		refused.Load().Remove()
		time.Sleep(3 * time.Second) // it has run into its own beat
		for begun := time.Now(); a.trusted() != 64; time.Sleep(100 * time.Millisecond) {
			if time.Since(begun) > 10*time.Second {
				t.Fatalf("it trusts %d segments %v after it was let in again\n%s", a.trusted(), time.Since(begun), c.logged())
			}
		}
	})
}

func TestASegmentAtTheLastEpochIsLeftAndItsRowStaysReadable(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.set(5, Owner{Epoch: row.MaxEpoch})
		c.set(6, Owner{Instance: "gone", Incarnation: "0", Epoch: row.MaxEpoch})
		c.set(7, Owner{Epoch: row.MaxEpoch - 1})
		a := c.join("a")
		time.Sleep(time.Minute)
		v := c.load()
		if len(v.Damaged) != 0 || v.Owners[5].Epoch != row.MaxEpoch || v.Owners[6].Instance != "gone" || v.Owners[7].Epoch != row.MaxEpoch || a.trusted() != 62 {
			t.Errorf("damaged %v, owners %+v, trusted %d", v.Damaged, v.Owners[5:8], a.trusted())
		}
	})
}

func TestOfALargeClusterSixteenLookInABeat(t *testing.T) {
	for members, want := range map[int]int{0: 1, 1: 1, 32: 1, 33: 3, 48: 3, 49: 4, 200: 13} {
		proof.Same(t, (&View{Members: make([]Member, members)}).LookBeats(), want, members, "members beats")
	}
}
