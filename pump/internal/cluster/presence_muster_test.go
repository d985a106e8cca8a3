package cluster

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

var presenceMembers = flag.Int("presence.members", 64, "how many members TestWhatManyMembersReadAndWriteIsBounded joins")

// manyEntities is what a partition may be asked for in a second by a cluster of up to 1,000: half
// of what the service gives.
const manyEntities = 1000

// meter counts the entities of the workload's partition.
type meter struct {
	sim    *azsim.Sim
	at     time.Time
	before int64
}

// rate is how many entities a second there were since the last call.
func (m *meter) rate() float64 {
	var now int64
	for _, l := range m.sim.PartitionLoads() {
		if l.Partition == "city" {
			now = l.Entities
		}
	}
	rate := float64(now-m.before) / time.Since(m.at).Seconds()
	m.at, m.before = time.Now(), now
	return rate
}

// What members of any kind read and write together stays within what half a partition gives,
// also while they come, in whatever number up to 1,000 (make play WHAT=members).
func TestWhatManyMembersReadAndWriteIsBounded(t *testing.T) {
	proof.Only(t)
	n := *presenceMembers
	for kind, role := range map[string]func(i int) Role{
		"processors":   func(int) Role { return RoleProcessor },
		"distributors": func(int) Role { return RoleDistributor },
		"both":         func(i int) Role { return []Role{RoleProcessor, RoleDistributor}[i%2] },
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := azsim.PublishedLimits()
				limits.QueryCost = 1000
				c := &crowd{t: t, members: map[string]*testMember{}, sim: azsim.New(azsim.Config{
					Accounts: []azsim.Account{{Name: "north"}}, Seed: 7, Latency: 20 * time.Millisecond, Limits: limits, CountPartitions: true,
				})}
				c.ensure(c.table("setup"), workload.Spec{Name: "city", Segments: 1024, Delivery: string(pump.AtLeastOnce), Shards: queuesOf(8)})
				m := &meter{sim: c.sim, at: time.Now()}
				joined := make(chan error, n)
				for i := range n {
					time.Sleep(time.Minute / time.Duration(n))
					go func() {
						_, err := c.tryJoin(fmt.Sprintf("m%04d", i), func(o *Options) { o.Role, o.Log = role(i), nil })
						joined <- err
					}()
					if i%max(n/6, 1) == 0 && i > 0 {
						if r := m.rate(); r > manyEntities {
							t.Errorf("%.0f entities a second while they come", r)
						}
					}
				}
				for range n {
					must(t, <-joined)
				}
				for k := range 6 {
					time.Sleep(10 * time.Second)
					r := m.rate()
					t.Logf("%.0f entities a second", r)
					if r > manyEntities || k > 0 && r > 3*float64(n) { // at first they take their shares
						t.Errorf("%d members read and write %.0f entities a second", n, r)
					}
				}
				if v := c.load(); len(v.Members) != n || v.Workload.Map.Segments != 1024 {
					t.Errorf("%d members", len(v.Members))
				}
				for _, m := range c.members {
					go m.Leave(t.Context())
				}
				for _, m := range c.members {
					<-m.done
				}
			})
		})
	}
}

// badMusters are rows in the muster's place that must not mislead anybody.
var badMusters = map[string]map[string]any{
	"damaged":       {"Muster": []byte("no deflate"), row.FormatProperty: int64(row.Format)},
	"newer":         {"Muster": []byte{}, row.FormatProperty: int64(row.Format + 1)},
	"another's":     encodeMuster(&muster{Incarnation: "0000000000000000"}),
	"out of order":  encodeMuster(&muster{Members: []musterMember{{"b", rowCopy{ETag: "1"}}, {"a", rowCopy{ETag: "1"}}}}),
	"without a tag": encodeMuster(&muster{Members: []musterMember{{Instance: "a"}}}),
}

func TestAMusterThatIsBadIsNoNews(t *testing.T) {
	proof.Only(t)
	for name, props := range badMusters {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
				c.joinMany(36)
				before := c.sim.Stats().Count("", "QueryEntities")
				// Whatever the watchers write, it is this that the others find.
				c.rewriteWrites(func(w storage.Write) storage.Write {
					if w.Entity.Row == musterKey {
						w.Entity.Properties = props
					}
					return w
				})
				c.join("late")
				if v := c.settle(2 * time.Minute); v.Index("late") < 0 {
					t.Error("the one that came late is not there")
				}
				time.Sleep(time.Minute)
				if v := c.load(); len(v.Members) != 37 || !v.Settled() {
					t.Errorf("%d members, settled %v", len(v.Members), v.Settled())
				}
				if after := c.sim.Stats().Count("", "QueryEntities"); after-before < 3*37 {
					t.Errorf("%d looks at all rows: the others see nothing any more", after-before)
				}
				for name, m := range c.members {
					proof.Same(t, m.Dark(), 0, name, "is dark")
				}
			})
		})
	}
}

func TestACrowdTooLargeForOneRowReadsAllRowsSeldom(t *testing.T) {
	m := &muster{}
	for i := range maxViewRows {
		m.Members = append(m.Members, musterMember{Instance: fmt.Sprintf("m%05d", i), rowCopy: rowCopy{ETag: "1", Bytes: map[string][]byte{"Holds": incompressible(i)}}})
	}
	if encodeMuster(m) != nil {
		t.Error("a muster of 10,000 members with 512 bytes of noise each is stored")
	}
	m.Members = m.Members[:1500]
	props := encodeMuster(m)
	if props == nil {
		t.Fatal("a muster of 1,500 such members is not")
	}
	f := &row.Fields{Props: props}
	if again := decodeMuster(f); f.Err != nil || len(again.Members) != 1500 {
		t.Errorf("read again: %v", f.Err)
	}
}

// incompressible does not compress.
func incompressible(i int) (b []byte) {
	for k := range 64 {
		b = fmt.Appendf(b, "%016x", testkit.Hash(uint64(i), "noise", k))[:8*(k+1)]
	}
	return b
}

// An owner that has come after the muster was written is not in it, but it lives.
func TestAnOwnerThatAMusterDoesNotKnowIsAskedForBeforeAClaim(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a, b, _ := c.joinTwo(20 * time.Second)
		v := c.load()
		owner := Owner{Instance: "b", Incarnation: b.loop.self.Value.Incarnation, Epoch: 3}
		claims := []change{
			{1, owner, Owner{"a", "x", 4}},
			{2, Owner{Epoch: 3}, Owner{"a", "x", 4}},
			{3, Owner{"b", "0123456789abcdef", 3}, Owner{"a", "x", 4}},
			{4, Owner{"gone", "0123456789abcdef", 3}, Owner{"a", "x", 4}},
		}
		unknown := &View{Workload: v.Workload, Owners: v.Owners, muster: true}
		var left []uint32
		for _, c := range a.confirm(t.Context(), unknown, slices.Clone(claims)) {
			left = append(left, c.segment)
		}
		proof.Same(t, fmt.Sprint(left), "[2 3 4]",
			"claims", left, "left, want those without an owner and those of the one that is gone")
		// A row that cannot be asked for may be there.
		heal := c.isolate("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		proof.Same(t, len(a.confirm(ctx, unknown, claims[3:])), 0, "claimed though the former owner's row could not be asked for")
		heal()
	})
}

// Musters show what another saw: that a row is in them unchanged proves no silence.
func TestSilenceInMustersIsNotCounted(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a, _, _ := c.joinTwo(20 * time.Second)
		o := newObserver("a", a.times, 64)
		seen := c.load()
		at := func(d time.Duration, muster bool) *View {
			return &View{
				Workload: seen.Workload, Owners: seen.Owners, Members: seen.Members, present: seen.present,
				Read: seen.Read.Add(d), received: seen.received.Add(d), muster: muster,
			}
		}
		o.see(at(0, false))
		d := time.Duration(0)
		for d < 4*a.times.Dead() {
			d += a.times.Beat
			o.see(at(d, true))
		}
		v := at(d+a.times.Beat, false)
		o.see(v)
		if dead, _ := o.dead(v); len(dead) != 0 {
			t.Errorf("member %s is dead by what musters did not show", v.Members[dead[0]].Instance)
		}
	})
}

// A watcher that stood still wrote down what was so long ago.
func TestAnOldMusterIsNoNews(t *testing.T) {
	s := signs{}
	now := time.Now()
	for i := range 2 * signsKept {
		s.note(row.Version[memberRow]{ETag: storage.ETag(fmt.Sprint(i)), Sent: now.Add(time.Duration(i) * time.Second)})
	}
	m := func(etag string) *muster {
		return &muster{Members: []musterMember{{"a", rowCopy{ETag: "1"}}, {"b", rowCopy{ETag: storage.ETag(etag)}}}}
	}
	last := fmt.Sprint(2*signsKept - 1)
	if at := s.shownBy(m(last), "b"); !at.Equal(now.Add((2*signsKept - 1) * time.Second)) {
		t.Errorf("the newest beat shows %v", at.Sub(now))
	}
	for _, etag := range []string{"0", "none's"} {
		if at := s.shownBy(m(etag), "b"); !at.IsZero() {
			t.Errorf("version %s proves %v", etag, at)
		}
	}
	if at := s.shownBy(m(last), "c"); !at.IsZero() {
		t.Error("who is not in it is shown")
	}
}

// Members that have read nothing yet are no watchers, and the others look as often as without musters.
func TestMembersThatHaveReadNothingWriteNoMuster(t *testing.T) {
	proof.Only(t)
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		blind := map[string]bool{}
		c.rewriteWrites(func(w storage.Write) storage.Write {
			if name := strings.TrimPrefix(w.Entity.Row, memberPrefix); blind[name] {
				delete(w.Entity.Properties, "Musters")
			}
			return w
		})
		for i := range 30 {
			blind[fmt.Sprintf("m%02d", i)] = true
		}
		c.joinMany(40)
		v := c.load()
		o := newObserver("none", row.Times{}, 0)
		for _, name := range o.watchers(v) {
			if blind[name] {
				t.Errorf("%s is to write the muster", name)
			}
		}
		if len(o.watchers(v)) != watchersOfMany || v.LookBeats() != crowdBeats(40) {
			t.Errorf("watchers %v, looks in %d beats", o.watchers(v), v.LookBeats())
		}
		c.isolate("m35", "m05")
		if after := c.takenOver("m35", "m05"); after > 40*time.Second {
			t.Errorf("taken over after %v", after)
		}
	})
}
