package cluster

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

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

// crowd is a workload on a simulated account with members that this test made.
type crowd struct {
	t       *testing.T
	sim     *azsim.Sim
	members map[string]*testMember
	options func(*Options)                    // applied to each member
	wrap    func(storage.Table) storage.Table // of the members; nil: none

	mu      sync.Mutex
	log     bytes.Buffer
	tamper  tampering
	rewrite func(storage.Write) storage.Write // nil: nothing
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
		c := &crowd{t: t, sim: testkit.Simulated(), members: map[string]*testMember{}}
		c.ensure(c.table("setup"), workload.Spec{Name: "city", Segments: segments, Delivery: string(pump.AtLeastOnce), Shards: queuesOf(queues)})
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

func (c *crowd) ensure(t storage.Table, spec workload.Spec) {
	c.t.Helper()
	must(c.t, errOf(workload.Ensure(c.t.Context(), t, spec)))
}

// table is the table as one process reaches it.
func (c *crowd) table(name string) storage.Table {
	c.t.Helper()
	account, err := azure.Open(azure.Options{ConnectionString: c.sim.ConnectionString("north"), Transport: c.sim.Transport().As(name)})
	must(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	return row.Seeded(tampered{account.Table(row.TableName), c, name}, testkit.SeededDraw(7, name))
}

// tampered is the table on a machine whose requests go wrong by row. What a rule
// says happens on this side of the wire.
type tampered struct {
	storage.Table
	crowd *crowd
	name  string
}

// tampering says what happens to a write before (false) or after it acted; nil: nothing.
type tampering func(ctx context.Context, name string, w storage.Write, acted bool) error

var errNoAnswer = &storage.Error{Code: storage.MaybeDone, Op: "write", Account: "north", Object: "row", Index: -1}

func (t tampered) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	t.crowd.mu.Lock()
	tamper, rewrite := t.crowd.tamper, t.crowd.rewrite
	t.crowd.mu.Unlock()
	if rewrite != nil {
		w = rewrite(w)
	}
	if tamper != nil {
		if err := tamper(ctx, t.name, w, false); err != nil {
			return "", err
		}
	}
	etag, err := t.Table.Write(ctx, w)
	if tamper != nil && err == nil {
		err = tamper(ctx, t.name, w, true)
	}
	return etag, err
}

func (c *crowd) setTamper(f tampering) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tamper = f
}

// rewriteWrites changes what members write from now on.
func (c *crowd) rewriteWrites(f func(storage.Write) storage.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewrite = f
}

// set changes an owner entry as only a test would: whatever is there.
func (c *crowd) set(segment uint32, to Owner) {
	c.t.Helper()
	v := c.load()
	i := ownerRowIndex(int(segment))
	r := ownerRowOf(c.table("setter"), "city", ownerRowFirst(i), len(v.Owners), time.Second)
	next := slices.Clone(v.Owners[ownerRowFirst(i):min(ownerRowFirst(i+1), len(v.Owners))])
	next[int(segment)-ownerRowFirst(i)] = to
	must(c.t, errOf(r.TryWrite(c.t.Context(), v.owners[i], next)))
}

// spoil overwrites a property of a row.
func (c *crowd) spoil(key, property string, value any) {
	c.t.Helper()
	w := storage.Write{Mode: storage.Merge, Entity: storage.Entity{Partition: "city", Row: key, Properties: map[string]any{property: value}}}
	must(c.t, errOf(c.table("spoiler").Write(c.t.Context(), w)))
}

// isolate cuts members off from the table until the returned function is called.
func (c *crowd) isolate(names ...string) (heal func()) {
	var rules []*azsim.Injection
	for _, name := range names {
		rules = append(rules, c.sim.Inject(azsim.Rule{Instance: name, Fault: azsim.HangBefore}))
	}
	return func() {
		for _, r := range rules {
			r.Remove()
		}
	}
}

// held lists what a member holds.
func (m *testMember) held() (holds []Hold) {
	for s := range uint32(4096) {
		if h, ok := m.Hold(s); ok {
			holds = append(holds, h)
		}
	}
	return holds
}

func (m *testMember) trusted() (n int) {
	for s := range uint32(4096) {
		if m.Trusted(s) {
			n++
		}
	}
	return n
}

// busy says that work of segments is in hand, or is not any more.
func (m *testMember) busy(is bool, segments ...uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range segments {
		m.inHand[s] = is
	}
}

func (m *testMember) drained() (segments []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Concat(m.drains...)
}

// join makes a member; options may be changed by change.
func (c *crowd) join(name string, change ...func(*Options)) *testMember {
	c.t.Helper()
	m, err := c.tryJoin(name, change...)
	must(c.t, err)
	return m
}

// joinTwo has a and b join, one after the other, and waits for what they own.
func (c *crowd) joinTwo(within time.Duration) (a, b *testMember, v *View) {
	c.t.Helper()
	a, b = c.join("a"), c.join("b")
	return a, b, c.settle(within)
}

func (c *crowd) tryJoin(name string, change ...func(*Options)) (*testMember, error) {
	table := c.table(name)
	if c.wrap != nil {
		table = c.wrap(table)
	}
	w, err := workload.Load(c.t.Context(), table, "city")
	if err != nil {
		return nil, err
	}
	m := &testMember{name: name, crowd: c, inHand: map[uint32]bool{}}
	o := Options{
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
	must(c.t, err)
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
