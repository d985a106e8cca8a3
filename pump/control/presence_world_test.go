package control

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// crowd is a workload on a simulated account with members that this test made.
type crowd struct {
	t       *testing.T
	sim     *azsim.Sim
	members map[string]*testMember
	options func(*PresenceOptions) // applied to each member

	mu  sync.Mutex
	log bytes.Buffer
}

// testMember is a member and what its callbacks saw.
type testMember struct {
	*Presence
	name   string
	crowd  *crowd
	mu     sync.Mutex
	inHand map[uint32]bool
	drains [][]uint32
}

// inCrowd runs a test in a bubble of virtual time with a workload of so many
// queues and segments.
func inCrowd(t *testing.T, queues, segments int, test func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, sim: simulated(), members: map[string]*testMember{}}
		c.ensure(c.table("setup"), WorkloadSpec{Name: "city", Segments: segments, Delivery: DeliverAtLeastOnce, Shards: queuesOf(queues)})
		test(t, c)
		for _, m := range c.members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			m.Leave(ctx)
			cancel()
		}
		if t.Failed() {
			t.Log(c.logged())
		}
	})
}

func queuesOf(n int) []shardmap.Shard {
	var shards []shardmap.Shard
	for i := range n {
		shards = append(shards, shardmap.Shard{Account: "north", Queue: fmt.Sprintf("city-%02d", i)})
	}
	return shards
}

func (c *crowd) ensure(t storage.Table, spec WorkloadSpec) {
	c.t.Helper()
	if _, err := EnsureWorkload(c.t.Context(), t, spec); err != nil {
		c.t.Fatal(err)
	}
}

// table is the table as one process reaches it.
func (c *crowd) table(name string) storage.Table {
	c.t.Helper()
	account, err := azure.Open(azure.Options{ConnectionString: c.sim.ConnectionString("north"), Transport: c.sim.Transport().As(name)})
	if err != nil {
		c.t.Fatal(err)
	}
	return Seeded(account.Table(TableName), seededDraw(7, name))
}

// join makes a member; options may be changed by change.
func (c *crowd) join(name string, change ...func(*PresenceOptions)) *testMember {
	c.t.Helper()
	m, err := c.tryJoin(name, change...)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *crowd) tryJoin(name string, change ...func(*PresenceOptions)) (*testMember, error) {
	w, err := LoadWorkload(c.t.Context(), c.table(name), "city")
	if err != nil {
		return nil, err
	}
	m := &testMember{name: name, crowd: c, inHand: map[uint32]bool{}}
	o := PresenceOptions{
		Instance: name, Role: RoleProcessor, Host: "host-of-" + name, Version: "test",
		Log:    slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Report: func() Report { return Report{Admin: name + ":80"} },
		InHand: func(s uint32) bool { m.mu.Lock(); defer m.mu.Unlock(); return m.inHand[s] },
		Drain:  func(s []uint32) { m.mu.Lock(); defer m.mu.Unlock(); m.drains = append(m.drains, s) },
		Nudge:  c.nudge,
	}
	if c.options != nil {
		c.options(&o)
	}
	for _, f := range change {
		f(&o)
	}
	m.Presence, err = Join(c.t.Context(), w, o)
	if err == nil {
		c.mu.Lock()
		c.members[name] = m
		c.mu.Unlock()
	}
	return m, err
}

func (c *crowd) nudge(to []Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range to {
		if member := c.members[m.Instance]; member != nil {
			go member.Look()
		}
	}
}

func (c *crowd) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(line)
}

func (c *crowd) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// load is the cluster as it is now.
func (c *crowd) load() *View {
	c.t.Helper()
	v, err := LoadView(c.t.Context(), c.table("looker"), "city")
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// settle waits until the cluster is as the plan has it, so long at most.
func (c *crowd) settle(within time.Duration) *View {
	c.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		v := c.load()
		if v.Settled() {
			return v
		}
		if time.Now().After(end) {
			c.t.Fatalf("not settled within %v: %s\n%s", within, shares(v), c.logged())
		}
	}
}

// shares says who owns how many segments.
func shares(v *View) string {
	count := map[string]int{}
	for s := range v.Owners {
		m, _ := v.OwnerOf(uint32(s))
		count[m.Instance]++
	}
	var out []string
	for name, n := range count {
		out = append(out, fmt.Sprintf("%s:%d", name, n))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestMembersFindTheirShareByThemselves(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		b := c.join("b")
		c.settle(5 * time.Second)
		d := c.join("d", func(o *PresenceOptions) { o.Role = RoleDistributor })
		v := c.settle(5 * time.Second)
		if got := shares(v); got != "a:32 b:32" {
			t.Errorf("shares %s", got)
		}
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
		a, b := c.join("a"), c.join("b")
		c.settle(5 * time.Second)
		time.Sleep(time.Minute)
		cut := c.sim.Inject(azsim.Rule{Instance: "a", Fault: azsim.HangBefore})
		died := time.Now()
		for b.View().index("a") >= 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if after := time.Since(died); after < 18*time.Second || after > 30*time.Second {
			t.Errorf("evicted after %v", after)
		}
		v := c.settle(2 * time.Second)
		if got := shares(v); got != "b:64" {
			t.Errorf("shares %s", got)
		}
		for s := range uint32(64) {
			if a.Trusted(s) || !b.Trusted(s) {
				t.Fatalf("segment %d: a %v b %v", s, a.Trusted(s), b.Trusted(s))
			}
		}
		cut.Remove()
		time.Sleep(10 * time.Second)
		v = c.settle(10 * time.Second)
		if got := shares(v); got != "a:32 b:32" {
			t.Errorf("shares %s after the evicted joined again", got)
		}
	})
}
