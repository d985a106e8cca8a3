package base

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// viewOf is a view of processors "0", "1", ... where segment s belongs to the
// one that owner says, "" for none.
func viewOf(m *shardmap.Map, processors int, owner func(segment uint32) string) *cluster.View {
	v := &cluster.View{Workload: &workload.Workload{Map: m}, Read: time.Now()}
	for i := range processors {
		v.Members = append(v.Members, cluster.Member{Instance: fmt.Sprint(i), Incarnation: "now", Role: cluster.RoleProcessor})
	}
	slices.SortFunc(v.Members, func(a, b cluster.Member) int { return cmp.Compare(a.Instance, b.Instance) })
	for s := range uint32(m.Segments) {
		v.Owners = append(v.Owners, cluster.Owner{Instance: owner(s), Incarnation: "now", Epoch: 1})
	}
	return v
}

func mapOf(t *testing.T, accounts, queues int, draining ...int) *shardmap.Map {
	t.Helper()
	var shards []shardmap.Shard
	for a := range accounts {
		for q := range queues {
			shards = append(shards, shardmap.Shard{Account: fmt.Sprintf("account%c", 'a'+a), Queue: fmt.Sprintf("work-%02d", q)})
		}
	}
	for _, i := range draining {
		shards[i].State = shardmap.Draining
	}
	m, err := shardmap.New(64, shards)
	proof.Must(t, err)
	return m
}

// shareOf is an instance's share of a cluster that holds what it owns.
func shareOf(instance string, v *cluster.View, shards map[shardmap.Shard]*queues.Queue) *Assignment {
	return stuckShareOf(instance, v, shards, v.Workload.Map.Segments)
}

// stuckShareOf is shareOf where the ledgers of what it owns from a segment on cannot be read.
func stuckShareOf(
	instance string, v *cluster.View, shards map[shardmap.Shard]*queues.Queue, from int,
) *Assignment {
	owns := func(s uint32) bool { return v.Owners[s].Instance == instance }
	return Assign(
		instance, v,
		func(s uint32) bool { return owns(s) && int(s) < from },
		func(s uint32) bool { return owns(s) && int(s) >= from },
		func(s shardmap.Shard) *queues.Queue { return shards[s] },
	)
}

func handles(m *shardmap.Map) map[shardmap.Shard]*queues.Queue {
	out := map[shardmap.Shard]*queues.Queue{}
	for _, s := range m.Shards {
		out[s] = &queues.Queue{Account: &queues.Account{Name: s.Account}, Name: s.Queue}
	}
	return out
}

func names(shards []*queues.Queue) (out []string) {
	for _, s := range shards {
		out = append(out, s.String())
	}
	return out
}

// A message is passed on by everybody who looks into its queue, also for segments of other homes.
func TestOwnersOfMarkedSegmentsAreReadersOfTheirChoices(t *testing.T) {
	m := mapOf(t, 2, 2)
	v := viewOf(m, 2, func(s uint32) string { return fmt.Sprint(m.Home(s) / 2) })
	shards := handles(m)
	if s := shareOf("0", v, shards); !slices.Equal(s.Readers, []int{1, 1, 1, 1}) {
		t.Errorf("readers without marks: %v", s.Readers)
	}
	spilled := 0 // a segment of 0's, whose second choice is a queue of 1's
	for m.Home(uint32(spilled)) > 1 || m.Choices(uint32(spilled))[1] < 2 {
		spilled++
	}
	v.Spills = make([]byte, m.Segments)
	v.Spills[spilled] = 1 << 1
	want := []int{1, 1, 1, 1}
	want[m.Choices(uint32(spilled))[1]] = 2
	s := shareOf("0", v, shards)
	if !slices.Equal(s.Readers, want) || !slices.Equal(s.owners, []int{1, 1, 1, 1}) {
		t.Errorf("readers %v, want %v; owners %v", s.Readers, want, s.owners)
	}
}

func TestAProcessorPollsTheHomesOfWhatItHolds(t *testing.T) {
	m := mapOf(t, 2, 2)
	shards := handles(m)
	// "0" has the segments of the first two queues, "1" those of the others.
	v := viewOf(m, 2, func(s uint32) string { return fmt.Sprint(m.Home(s) / 2) })
	for instance, want := range map[string][]string{
		"0": {"accounta/work-00", "accounta/work-01"},
		"1": {"accountb/work-00", "accountb/work-01"},
	} {
		s := shareOf(instance, v, shards)
		proof.Alike(t, names(s.Polled()), want, instance, "polls")
		if s.Lacking != 0 || s.held != 32 || s.Pairs != 4 {
			t.Errorf("%+v", s)
		}
	}
}

func TestAllQueuesAreCountedForTheIdleBoundByWhomeverTheyArePolled(t *testing.T) {
	m := mapOf(t, 1, 1)
	v := viewOf(m, 16, func(s uint32) string { return fmt.Sprint(s % 16) })
	if s := shareOf("3", v, handles(m)); s.Pairs != 16 || s.owners[0] != 16 {
		t.Errorf("%d pairs, %v owners of one queue with 16 processors", s.Pairs, s.owners)
	}
	v.Workload.Shared, v.Owners = true, nil
	m = mapOf(t, 2, 3)
	v.Workload.Map = m
	s := shareOf("3", v, handles(m))
	if s.Pairs != 6*16 || len(s.Polled()) != 6 {
		t.Errorf("%d pairs of 6 shared queues and 16 processors, %d polled", s.Pairs, len(s.Polled()))
	}
}

func TestWhatItKeepsIsPolledOnceNothingIsLeftToClaim(t *testing.T) {
	m := mapOf(t, 1, 3, 2)
	v := viewOf(m, 1, func(uint32) string { return "" })
	s := shareOf("0", v, handles(m))
	if len(s.Polled()) != 0 || s.Lacking != 64 || s.claimable != 64 {
		t.Errorf("polls %v and lacks %d before it holds anything", names(s.Polled()), s.Lacking)
	}
	v = viewOf(m, 1, func(uint32) string { return "0" })
	s = shareOf("0", v, handles(m))
	if got := names(s.Polled()); len(got) != 3 || s.Lacking != 0 {
		t.Errorf("polls %v; the draining queue must be read by its sweeper", got)
	}
	s = stuckShareOf("0", v, handles(m), 63)
	if got := names(s.Polled()); len(got) != 3 || s.Lacking != 1 {
		t.Errorf("polls %v and lacks %d; a segment that cannot be read keeps no draining queue from being read",
			got, s.Lacking)
	}
}

func TestAnAccountWithoutCredentialsIsLeftOut(t *testing.T) {
	m := mapOf(t, 2, 2)
	shards := handles(m)
	for s := range shards {
		if s.Account == "accountb" {
			delete(shards, s)
		}
	}
	v := viewOf(m, 1, func(uint32) string { return "0" })
	proof.Alike(t, names(shareOf("0", v, shards).Polled()), []string{"accounta/work-00", "accounta/work-01"}, "polls")
}

func TestP64TheKeeperBringsStraysHomeUnlessAMarkSaysThatTheyMayBeThere(t *testing.T) {
	m := mapOf(t, 3, 1)
	shards := handles(m)
	v := viewOf(m, 3, func(s uint32) string { return fmt.Sprint(m.Home(s)) })
	segment := testworld.SegmentOf(m, 0)
	choices := m.Choices(segment)
	queue := func(i int) *queues.Queue { return shards[m.Shards[i]] }
	at := choices[1]
	proof.Same(t, shareOf(fmt.Sprint(at), v, shards).Stray(queue(at), segment), queue(0),
		"the sweeper brings it to …, want its home")
	if home := shareOf(fmt.Sprint(choices[2]), v, shards).Stray(queue(at), segment); home != nil {
		t.Errorf("who does not keep the queue brings it to %v", home)
	}
	if home := shareOf("0", v, shards).Stray(queue(0), segment); home != nil {
		t.Errorf("a message at its home is brought to %v", home)
	}
	v.Spills = make([]uint8, 64)
	v.Spills[segment] = 1 << 1
	if home := shareOf(fmt.Sprint(at), v, shards).Stray(queue(at), segment); home != nil {
		t.Errorf("a message in a marked queue is brought to %v", home)
	}
	// And its owner reads it there.
	if got := shareOf("0", v, shards).Polled(); !slices.Contains(got, queue(at)) || slices.Contains(got, queue(choices[2])) {
		t.Errorf("the owner polls %v, marked is %v", names(got), queue(at))
	}
	v.Spills[segment] = 1 << 2
	proof.Same(t, shareOf(fmt.Sprint(at), v, shards).Stray(queue(at), segment), queue(0),
		"with a mark of the other choice it is brought to")
}

func TestP7ReleasesAreImmediateForAWhileAndThenComeLaterAndLater(t *testing.T) {
	m := mapOf(t, 1, 1)
	shards := handles(m)
	queue := shards[m.Shards[0]]
	v := viewOf(m, 4, func(s uint32) string {
		if s == 9 {
			return ""
		}
		return fmt.Sprint(s % 4)
	})
	s := shareOf("0", v, shards)
	const lease = 20 * time.Second
	var before time.Duration
	for n := int64(1); n <= 200; n++ {
		d := s.PassOn("0", queue, 1, "message", n, lease)
		switch {
		case n <= 32 && d != 0:
			t.Errorf("delivery %d of a queue with four owners is hidden for %v", n, d)
		case n > 32 && (d <= 0 || d > PassOnMost):
			t.Errorf("delivery %d: %v", n, d)
		case n == 33 && d > time.Second, n == 36 && d > time.Second, n > 48 && d < 7*time.Second:
			t.Errorf("delivery %d: %v", n, d)
		case d > 0 && d == before:
			t.Errorf("delivery %d: %v again", n, d)
		}
		before = d
	}
	if a, b := s.PassOn("0", queue, 1, "m", 100, lease), s.PassOn("1", queue, 1, "m", 100, lease); a == b {
		t.Error("two owners hide it for the same time")
	}
	for n, most := range map[int64]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 50: lease / 2} {
		if d := s.PassOn("0", queue, 9, "m", n, lease); d <= 0 || d > most || d < most/2 {
			t.Errorf("delivery %d of a segment without an owner is hidden for %v, want up to %v", n, d, most)
		}
	}
	proof.Same(t, s.PassOn("0", queue, 0, "m", 1, lease), 0,
		"what this process is handing over is hidden")
}
