package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

func TestMembersFindTheirShareByThemselves(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		b := c.join("b")
		c.settle(5 * time.Second)
		d := c.join("d", func(o *Options) { o.Role = RoleDistributor })
		v := c.settle(5 * time.Second)
		proof.Same(t, shares(v), "a:32 b:32", "shares")
		for s := range uint32(64) {
			m, _ := v.OwnerOf(s)
			for _, who := range []*testMember{a, b, d} {
				hold, held := who.Hold(s)
				if held != (m.Instance == who.name) || who.Trusted(s) != held {
					t.Fatalf("segment %d is %s's, %s holds %v, trusts %v", s, m.Instance, who.name, held, who.Trusted(s))
				}
				if held && (hold.Epoch != v.Owners[s].Epoch || hold.Context().Err() != nil) {
					t.Errorf("hold %+v, entry %+v", hold, v.Owners[s])
				}
			}
		}
	})
}

func TestTheDeadAreEvictedAndTheirSegmentsTakenOver(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a, b, _ := c.joinTwo(5 * time.Second)
		time.Sleep(time.Minute)
		cut := c.sim.Inject(azsim.Rule{Instance: "a", Fault: azsim.HangBefore})
		died := time.Now()
		for b.View().Index("a") >= 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if after := time.Since(died); after < 18*time.Second || after > 30*time.Second {
			t.Errorf("evicted after %v", after)
		}
		v := c.settle(2 * time.Second)
		proof.Same(t, shares(v), "b:64", "shares")
		for s := range uint32(64) {
			if a.Trusted(s) || !b.Trusted(s) {
				t.Fatalf("segment %d: a %v b %v", s, a.Trusted(s), b.Trusted(s))
			}
		}
		cut.Remove()
		time.Sleep(10 * time.Second)
		v = c.settle(10 * time.Second)
		proof.Same(t, shares(v), "a:32 b:32", "shares after the evicted joined again")
	})
}

func TestAnIdleMemberMakesOneWriteAndOneQueryABeat(t *testing.T) {
	proof.Only(t)
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		for i := range 10 {
			c.join(fmt.Sprint("m", i))
		}
		c.settle(10 * time.Second)
		time.Sleep(10 * time.Second)
		before := c.sim.Stats()
		time.Sleep(1000 * time.Second)
		after := c.sim.Stats()
		count := func(operation string) int64 { return after.Count("", operation) - before.Count("", operation) }
		all, writes, queries := count(""), count("MergeEntity"), count("QueryEntities")
		t.Logf("10 idle members: %.2f requests a second, %d writes, %d queries in 1000 s", float64(all)/1000, writes, queries)
		// Ten members, a beat of 15/16 to 1 of 5 s.
		if all != writes+queries || writes < 2000 || writes > 2140 || queries < writes-10 || queries > writes+10 {
			t.Errorf("%d requests, %d writes, %d queries", all, writes, queries)
		}
	})
}

func TestWhatIsInHandIsWaitedForAndALeaseAtMost(t *testing.T) {
	for name, c := range map[string]struct {
		done  time.Duration
		least time.Duration
		most  time.Duration
	}{
		"done after 8 s": {8 * time.Second, 8 * time.Second, 9 * time.Second},
		"never done":     {time.Hour, 20 * time.Second, 23 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, 8, 64, func(t *testing.T, crowd *crowd) {
				a := crowd.join("a")
				crowd.settle(5 * time.Second)
				for s := range uint32(64) {
					a.busy(true, s)
				}
				b := crowd.join("b")
				joined := time.Now()
				time.AfterFunc(c.done, func() {
					for s := range uint32(64) {
						a.busy(false, s)
						a.Settle(s)
					}
				})
				time.Sleep(2 * time.Second)
				draining := a.drained()
				if len(draining) != 32 || len(a.held()) != 32 || a.trusted() != 64 || b.trusted() != 0 {
					t.Fatalf("drained %d, held %d, trusted %d, %d", len(draining), len(a.held()), a.trusted(), b.trusted())
				}
				for a.trusted() > 32 {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(joined); took < c.least || took > c.most {
					t.Errorf("given up after %v", took)
				}
				proof.Same(t, b.trusted(), 0, "claimed before it was given up")
				crowd.settle(2 * time.Second)
			})
		})
	}
}

func TestALateBeatRestoresNothingAndAllIsClaimedAgainWithAnotherEpoch(t *testing.T) {
	for _, bestEffort := range []bool{false, true} {
		t.Run(fmt.Sprintf("best effort %v", bestEffort), func(t *testing.T) {
			inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
				a := c.join("a", func(o *Options) { o.BestEffort = bestEffort })
				c.settle(5 * time.Second)
				time.Sleep(time.Minute)
				holds := a.held()
				if len(holds) != 64 || holds[0].Epoch != 1 {
					t.Fatalf("holds %d, epoch %d", len(holds), holds[0].Epoch)
				}
				heal := c.isolate("a")
				time.Sleep(18 * time.Second) // trust: 17 s from the last beat
				proof.Same(t, a.trusted(), 0, "trusts without a beat")
				for _, h := range holds {
					if err := context.Cause(h.Context()); bestEffort != (err == nil) || err != nil && !errors.Is(err, ErrSegmentLost) {
						t.Fatalf("segment %d: %v", h.Segment, err)
					}
				}
				_, held := a.Hold(0)
				proof.Same(t, held, bestEffort, "held")
				if dark := a.Dark(); dark < 17*time.Second || dark > 23*time.Second {
					t.Errorf("dark for %v", dark)
				}
				heal()
				time.Sleep(10 * time.Second)
				v := c.settle(5 * time.Second)
				if a.trusted() != 64 || v.Owners[0].Epoch != 2 || len(v.Members) != 1 || a.Dark() != 0 {
					t.Errorf("trusted %d, epoch %d, members %d, dark %v", a.trusted(), v.Owners[0].Epoch, len(v.Members), a.Dark())
				}
				for _, h := range holds {
					if now, ok := a.Hold(h.Segment); !ok || now.Epoch != 2 || bestEffort != (now.Context() == h.Context()) {
						t.Fatalf("held %v, epoch %d", ok, now.Epoch)
					}
				}
			})
		})
	}
}

func TestADarkMinuteCostsNoTakeover(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.options = func(o *Options) { o.BestEffort = true }
		names := []string{"a", "b", "c"}
		for _, name := range names {
			c.join(name)
		}
		before := c.settle(10 * time.Second)
		time.Sleep(30 * time.Second)
		var holds []Hold
		for _, name := range names {
			holds = append(holds, c.members[name].held()...)
		}
		heal := c.isolate(names...)
		time.Sleep(time.Minute)
		heal()
		time.Sleep(20 * time.Second)
		after := c.settle(5 * time.Second)
		for s, was := range before.Owners {
			if now := after.Owners[s]; now.Instance != was.Instance || now.Incarnation != was.Incarnation || now.Epoch != was.Epoch+1 {
				t.Fatalf("segment %d was %+v, is %+v", s, was, now)
			}
		}
		for _, h := range holds {
			if h.Context().Err() != nil {
				t.Fatalf("best effort ended: %v", context.Cause(h.Context()))
			}
		}
	})
}

func TestAZombieFindsItselfEvictedAndComesBackAsAnother(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.options = func(o *Options) { o.BestEffort = true }
		a, b, v := c.joinTwo(10 * time.Second)
		was := v.Members[v.Index("a")].Incarnation
		holds := a.held()
		heal := c.isolate("a")
		time.Sleep(40 * time.Second)
		if b.trusted() != 64 || a.trusted() != 0 || holds[0].Context().Err() != nil {
			t.Fatalf("b trusts %d, a trusts %d, best effort %v", b.trusted(), a.trusted(), holds[0].Context().Err())
		}
		heal()
		time.Sleep(10 * time.Second)
		v = c.settle(10 * time.Second)
		for _, h := range holds {
			if !errors.Is(context.Cause(h.Context()), ErrSegmentLost) {
				t.Fatalf("segment %d: %v", h.Segment, context.Cause(h.Context()))
			}
		}
		if now := v.Members[v.Index("a")].Incarnation; now == was || shares(v) != "a:32 b:32" {
			t.Errorf("incarnation %s after %s, shares %s", now, was, shares(v))
		}
	})
}

func TestWithinItsLeaseAndMarginNobodyIsEvicted(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		_, _, before := c.joinTwo(10 * time.Second)
		for range 5 {
			heal := c.isolate("a")
			time.Sleep(17 * time.Second)
			heal()
			time.Sleep(8 * time.Second)
		}
		after := c.settle(10 * time.Second)
		if i := after.Index("a"); i < 0 || after.Members[i].Incarnation != before.Members[before.Index("a")].Incarnation {
			t.Error("a was evicted")
		}
	})
}

func TestAMemberWithLongerTimesIsGivenThem(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.join("a", func(o *Options) { o.Beat, o.Lease = 10*time.Second, 2*time.Minute })
		b := c.join("b")
		c.settle(30 * time.Second)
		c.isolate("a")
		time.Sleep(110 * time.Second)
		if b.View().Index("a") < 0 {
			t.Error("evicted by the observer's shorter lease")
		}
		time.Sleep(time.Minute)
		if b.View().Index("a") >= 0 {
			t.Error("never evicted")
		}
	})
}

func TestTimeWithoutReadsIsNoSilence(t *testing.T) {
	// b sees nothing for a minute while a, who is dead since, could not be seen
	// either: b's watch begins when it sees again.
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		_, b, _ := c.joinTwo(10 * time.Second)
		healB := c.isolate("b")
		c.isolate("a")
		time.Sleep(time.Minute)
		healB()
		healed := time.Now()
		for b.View().Index("a") >= 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if after := time.Since(healed); after < 23*time.Second || after > 30*time.Second {
			t.Errorf("evicted %v after the first look", after)
		}
	})
}

func TestANameIsOneLiveProcessesAtATime(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.join("a")
		if _, err := c.tryJoin("a"); !errors.Is(err, ErrNameTaken) || !strings.Contains(fmt.Sprint(err), "host-of-a") {
			t.Errorf("a twin: %v", err)
		}
		c.members["a"].Leave(t.Context())
		again := c.join("a")
		c.settle(5 * time.Second)
		// The process is killed, and starts again at once under the same name.
		again.cancel()
		<-again.done
		begun := time.Now()
		next := c.join("a")
		if took := time.Since(begun); took < 23*time.Second || took > 40*time.Second {
			t.Errorf("joined %v after the row of the dead one was seen", took)
		}
		c.settle(5 * time.Second)
		proof.Same(t, next.trusted(), 64, "trusts")
	})
}

func TestAProcessThatStopsIsWaitedForByTheNextOfItsName(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		var stopping atomic.Bool
		first := c.join("a", func(o *Options) { o.Report = func() Report { return Report{Draining: stopping.Load()} } })
		c.settle(5 * time.Second)
		stopping.Store(true)
		time.AfterFunc(17*time.Second, func() { first.Leave(t.Context()) }) // and beats until then
		begun := time.Now()
		next, err := c.tryJoin("a")
		must(t, err)
		if took := time.Since(begun); took < 17*time.Second || took > 25*time.Second {
			t.Errorf("joined after %v", took)
		}
		c.settle(5 * time.Second)
		next.Leave(t.Context())
	})
}

// The last beat of a process that was killed may be under way for as long as a request may. Found
// by the simulation: its successor took it for a living twin, and failed.
func TestALateBeatOfADeadProcessIsNoTwin(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		killed := c.puppet("a", SegmentSet{})
		close(killed.stop)
		time.AfterFunc(8*time.Second, killed.beat)
		begun := time.Now()
		must(t, proof.ErrOf(c.tryJoin("a")))
		if took := time.Since(begun); took < 31*time.Second || took > 45*time.Second {
			t.Errorf("joined after %v", took)
		}
		c.settle(5 * time.Second)
	})
}

func TestOnlyProcessorsThatNeitherWaitNorDrainAreGivenSegments(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		var report atomic.Pointer[Report]
		report.Store(&Report{Waiting: "hounds"})
		b := c.join("b", func(o *Options) { o.Report = func() Report { return *report.Load() } })
		c.join("d", func(o *Options) { o.Role = RoleDistributor })
		time.Sleep(time.Minute)
		if v := c.load(); len(v.Processors()) != 0 || shares(v) != ":64" || v.Settled() || v.Sweeper(0) != "" || v.Rank("b") != -1 {
			t.Errorf("processors %v, shares %s", v.Processors(), shares(v))
		}
		if n, longest := b.Unowned(); n != 64 || longest < 50*time.Second || longest > 61*time.Second {
			t.Errorf("%d segments unowned for %v", n, longest)
		}
		if strings.Contains(c.logged(), "no owner") {
			t.Error("an alarm although no member is there to own anything")
		}
		report.Store(&Report{})
		b.Look()
		time.Sleep(time.Second)
		v := c.settle(time.Second)
		if shares(v) != "b:64" || v.Sweeper(0) != "b" || v.Rank("b") != 0 {
			t.Errorf("shares %s, sweeper %q", shares(v), v.Sweeper(0))
		}
		report.Store(&Report{Draining: true})
		b.Look()
		time.Sleep(2 * time.Second)
		if b.trusted() != 0 || shares(c.load()) != ":64" {
			t.Errorf("a draining member holds %d, shares %s", b.trusted(), shares(c.load()))
		}
	})
}

func TestASharedWorkloadHasMembersOnly(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		table := c.table("setup")
		w, err := workload.Ensure(t.Context(), table, workload.Spec{Name: "all", Shared: true, Segments: 64, Delivery: string(pump.AtLeastOnce), Shards: queuesOf(2)})
		must(t, err)
		a, err := Join(t.Context(), w, Options{Instance: "a", Role: RoleProcessor})
		must(t, err)
		time.Sleep(time.Minute)
		v := a.View()
		if _, held := a.Hold(0); held || a.Trusted(0) || v.Owners != nil || v.Plan() != nil || !v.Settled() || len(v.Members) != 1 || v.Rank("a") != 0 {
			t.Errorf("view %+v", v)
		}
		a.Leave(t.Context())
		if v, err := LoadView(t.Context(), table, "all"); err != nil || len(v.Members) != 0 {
			t.Errorf("%v, %d members", err, len(v.Members))
		}
	})
}

func TestOptionsThatCannotWorkAreRefusedBeforeAnyRequest(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		for name, change := range map[string]func(*Options){
			"no instance":            func(o *Options) { o.Instance = "" },
			"a name that is no key":  func(o *Options) { o.Instance = "a/b" },
			"a name too long":        func(o *Options) { o.Instance = strings.Repeat("a", 201) },
			"a role that is none":    func(o *Options) { o.Role = "king" },
			"a lease of three beats": func(o *Options) { o.Lease, o.Margin = 10*time.Second, 2*time.Second },
			"a lease of a day":       func(o *Options) { o.Lease = 24 * time.Hour },
			"a negative margin":      func(o *Options) { o.Margin = -1 },
			"a beat of an hour":      func(o *Options) { o.Beat = time.Hour },
		} {
			proof.Same(t, proof.ErrOf(c.tryJoin("a", change)) == nil, false, name, "is accepted")
		}
		proof.Same(t, len(c.load().Members), 0, "members")
	})
}

func TestOfManyMembersAFewLookForAll(t *testing.T) {
	proof.Only(t)
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		const n = 36
		for i := range n {
			c.join(fmt.Sprintf("m%02d", i))
		}
		c.settle(30 * time.Second)
		time.Sleep(30 * time.Second)
		before := c.sim.Stats()
		time.Sleep(100 * time.Second)
		after := c.sim.Stats()
		queries := after.Count("", "QueryEntities") - before.Count("", "QueryEntities")
		// Two read all rows in each beat; the others read what those wrote down.
		if per := float64(queries) / 100 * 4.84; per < 1.8 || per > 2.5 {
			t.Errorf("%.1f queries in a beat", per)
		}
		// All who look for all die at once, and one more.
		died := time.Now()
		dead := append(watchersOf(c.load()), "m30")
		c.isolate(dead...)
		for {
			time.Sleep(100 * time.Millisecond)
			if v := c.load(); len(v.Members) == n-len(dead) && v.Settled() {
				break
			}
			if time.Since(died) > 3*time.Minute {
				t.Fatalf("not taken over: %s", shares(c.load()))
			}
		}
		t.Logf("taken over after %v", time.Since(died))
	})
}
