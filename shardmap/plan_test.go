package shardmap

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// team is n instance names in ascending order.
func team(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("i%03d", i)
	}
	return names
}

// homed counts the queues that are the home of a segment.
func homed(m *Map) int {
	n := 0
	for _, load := range m.Loads() {
		if load > 0 {
			n++
		}
	}
	return n
}

// checkPlan: all segments are owned, by whole queues if there are as many as
// instances, and no instance has more than one unit more than another.
func checkPlan(t fataler, m *Map, n int, plan []int) {
	has := make([]int, n)
	byQueue := map[int]int{}
	whole := homed(m) >= n
	for s, owner := range plan {
		if owner < 0 || owner >= n {
			t.Fatalf("segment %d goes to %d of %d instances", s, owner, n)
		}
		home := m.Home(uint32(s))
		if !whole {
			has[owner]++
		} else if sweeper, ok := byQueue[home]; !ok {
			byQueue[home] = owner
			has[owner]++
		} else if sweeper != owner {
			t.Fatalf("queue %d is shared by %d and %d, although there are %d queues for %d instances", home, sweeper, owner, homed(m), n)
		}
	}
	if slices.Max(has)-slices.Min(has) > 1 {
		t.Fatalf("%d instances have %v", n, has)
	}
}

// differ counts the segments, and the queues, that a and b give to others.
func differ(m *Map, a, b []int) (segments, queues int) {
	touched := map[int]bool{}
	for s := range a {
		if a[s] != b[s] {
			segments++
			touched[m.Home(uint32(s))] = true
		}
	}
	return segments, len(touched)
}

// renumbered is the ownership after instance `gone` left: others are counted anew.
func renumbered(owners []int, gone int) []int {
	next := slices.Clone(owners)
	for s, owner := range owners {
		switch {
		case owner == gone:
			next[s] = Unowned
		case owner > gone:
			next[s]--
		}
	}
	return next
}

// drawOwners draws any ownership, also one that names no candidate.
func drawOwners(t *rapid.T, m *Map, n int) []int {
	owners := slices.Repeat([]int{Unowned}, m.Segments)
	switch rapid.IntRange(0, 2).Draw(t, "owners") {
	case 0: // each segment anybody's
		for s := range owners {
			owners[s] = rapid.IntRange(-1, n).Draw(t, "owner")
		}
	case 1: // whole queues
		queues := rapid.SliceOfN(rapid.IntRange(-1, n), len(m.Shards), len(m.Shards)).Draw(t, "owners of queues")
		for s := range owners {
			owners[s] = queues[m.Home(uint32(s))]
		}
	}
	return owners
}

func drawMap(t *rapid.T) *Map {
	m, err := New(drawSegments(t), drawShards(t, "first"))
	must(t, err)
	return m
}

func TestAPlanIsBalancedWithinOneQueueOrOneSegment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		checkPlan(t, m, n, m.Plan(team(n), drawOwners(t, m, n), nil))
	})
}

func TestAPlanThatIsReachedIsLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		plan := m.Plan(team(n), drawOwners(t, m, n), nil)
		if diff := cmp.Diff(plan, m.Plan(team(n), plan, nil)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// fewestUnits is the least number of units without their present owner in any
// balanced plan, where each unit has one owner or none: units in hand beyond the
// share rounded up go, and one more from each beyond the number of those who may round up.
func fewestUnits(has []int, units int) int {
	n := len(has)
	each, extras := units/n, units%n
	kept := 0
	for _, h := range has {
		kept += min(h, each)
		if h > each && extras > 0 {
			extras--
			kept++
		}
	}
	return units - kept
}

func TestAPlanMovesTheFewestUnitsThatBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		whole := homed(m) >= n
		owners := slices.Repeat([]int{Unowned}, m.Segments)
		has, units := make([]int, n), 0
		queues := rapid.SliceOfN(rapid.IntRange(-1, n-1), len(m.Shards), len(m.Shards)).Draw(t, "owners of queues")
		loads := m.Loads()
		for q, owner := range queues {
			if whole && loads[q] > 0 {
				units++
				if owner != Unowned {
					has[owner]++
				}
			}
		}
		for s := range owners {
			if whole {
				owners[s] = queues[m.Home(uint32(s))]
				continue
			}
			owners[s] = rapid.IntRange(-1, n-1).Draw(t, "owner")
			units++
			if owners[s] != Unowned {
				has[owners[s]]++
			}
		}
		segments, moved := differ(m, owners, m.Plan(team(n), owners, nil))
		if !whole {
			moved = segments
		}
		if want := fewestUnits(has, units); moved != want {
			t.Fatalf("%d of %d units moved, %d had to", moved, units, want)
		}
	})
}

func TestAPlanPartlyCarriedOutLeadsToTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		state := drawOwners(t, m, n)
		plan := m.Plan(team(n), state, nil)
		// Members give up and claim in any order; each may stop in the middle.
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for s, owner := range plan {
				if state[s] == owner {
					continue
				}
				switch rapid.IntRange(0, 2).Draw(t, "step") {
				case 1:
					state[s] = Unowned
				case 2:
					state[s] = owner
				}
			}
			if diff := cmp.Diff(plan, m.Plan(team(n), state, nil)); diff != "" {
				t.Fatalf("the plan changed on the way to it:\n%s", diff)
			}
		}
	})
}

// drawBars bars some instances from some queues.
func drawBars(t *rapid.T, m *Map, n int) func(instance, segment int) bool {
	type pair struct{ instance, shard int }
	bars := map[pair]bool{}
	for range rapid.IntRange(1, 12).Draw(t, "bars") {
		instance := rapid.IntRange(0, n-1).Draw(t, "barred")
		bars[pair{instance, rapid.IntRange(0, len(m.Shards)-1).Draw(t, "from")}] = true
	}
	return func(instance, segment int) bool { return bars[pair{instance, m.Home(uint32(segment))}] }
}

func TestNoBarredInstanceIsPlannedWhileAnotherMayWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		n := rapid.IntRange(1, 12).Draw(t, "instances")
		barred := drawBars(t, m, n)
		state := drawOwners(t, m, n)
		for s, owner := range m.Plan(team(n), state, barred) {
			for i := range n {
				if barred(owner, s) && !barred(i, s) {
					t.Fatalf("segment %d goes to %d, which is barred; %d is not", s, owner, i)
				}
			}
		}
		// Members that carry it out, each as it likes, come to a plan that is left alone.
		for range 6 {
			for s, owner := range m.Plan(team(n), state, barred) {
				if rapid.IntRange(0, 3).Draw(t, "step") > 0 {
					state[s] = owner
				}
			}
		}
		for range 3 {
			state = m.Plan(team(n), state, barred)
		}
		if diff := cmp.Diff(state, m.Plan(team(n), state, barred)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Instances stay as even as the bars allow: one that cannot read a queue has as many of the others.
func TestBarsLeaveInstancesEven(t *testing.T) {
	m, err := New(256, equalShards(8))
	must(t, err)
	barred := func(instance, shard int) bool { return instance == 0 && shard < 4 }
	checkPlan(t, m, 4, m.Plan(team(4), m.Plan(team(4), nil, nil), func(instance, segment int) bool {
		return barred(instance, m.Home(uint32(segment)))
	}))
	for shard, sweeper := range m.Sweepers(team(1), nil, barred) {
		proof.Same(t, sweeper, 0,
			"queue", shard, "kept by …: the only one keeps what it cannot read, too")
	}
	for shard, sweeper := range m.Sweepers(team(2), nil, barred) {
		if shard < 4 && sweeper == 0 {
			t.Errorf("queue %d is kept by the one that cannot read it", shard)
		}
	}
}

func TestJoiningAndLeavingMoveOneShareOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queues := rapid.IntRange(1, 40).Draw(t, "queues")
		m, err := New(max(64, DefaultSegments(queues)>>rapid.IntRange(0, 4).Draw(t, "fewer")), equalShards(queues))
		must(t, err)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		before := m.Plan(team(n), drawOwners(t, m, n), nil)

		// The new one may come anywhere in the order of names.
		at := rapid.IntRange(0, n).Draw(t, "joins at")
		shifted := slices.Clone(before)
		for s, owner := range shifted {
			if owner >= at {
				shifted[s]++
			}
		}
		joined := m.Plan(team(n+1), shifted, nil)
		segments, moved := differ(m, shifted, joined)
		if share := (queues + n) / (n + 1); queues > n && moved > share {
			t.Fatalf("instance %d took %d of %d queues, want at most %d", n+1, moved, queues, share)
		}
		if share := (m.Segments + n) / (n + 1); queues <= n && segments > share {
			t.Fatalf("instance %d took %d of %d segments, want at most %d", n+1, segments, m.Segments, share)
		}
		for s := range joined {
			if joined[s] != shifted[s] && joined[s] != at {
				t.Fatalf("segment %d went from %d to %d, neither of which is new", s, shifted[s], joined[s])
			}
		}

		if n == queues {
			return // back to whole queues: see the next test
		}
		gone := rapid.IntRange(0, n).Draw(t, "leaves")
		left := renumbered(joined, gone)
		for s, owner := range m.Plan(team(n), left, nil) {
			if left[s] != Unowned && owner != left[s] {
				t.Fatalf("segment %d went from %d to %d, but neither left", s, left[s], owner)
			}
		}
	})
}

func TestBackToWholeQueuesEachGoesToOneThatHoldsMuchOfIt(t *testing.T) {
	for _, queues := range []int{1, 2, 8, 32} {
		m := mustNew(t, 1024, equalShards(queues))
		whole := m.Plan(team(queues), nil, nil)
		more := m.Plan(team(queues+1), whole, nil)
		back := m.Plan(team(queues), renumbered(more, queues), nil)
		proof.Same(t, cmp.Diff(whole, back), "",
			queues, "queues: who came and left again changed the rest")
	}
}

func TestWhoSharesQueuesMeetsFewAtEach(t *testing.T) {
	// 16 start at once on 8 queues: two at each, not 16 (P7 is what more costs).
	m := mustNew(t, 256, equalShards(8))
	plan := m.Plan(team(16), nil, nil)
	at := make([]map[int]bool, 8)
	for s, owner := range plan {
		home := m.Home(uint32(s))
		if at[home] == nil {
			at[home] = map[int]bool{}
		}
		at[home][owner] = true
	}
	for queue, owners := range at {
		proof.Same(t, len(owners), 2, "instances meet at queue", queue)
	}
}

func TestAPlanDoesNotDependOnTheOrderOfShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments, shards := drawSegments(t), drawShards(t, "first")
		a, err := New(segments, shards)
		must(t, err)
		b, err := New(segments, rapid.Permutation(shards).Draw(t, "shuffled"))
		must(t, err)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		owners := drawOwners(t, a, n)
		if diff := cmp.Diff(a.Plan(team(n), owners, nil), b.Plan(team(n), owners, nil)); diff != "" {
			t.Fatal(diff)
		}
		ka, kb := a.Sweepers(team(n), owners, nil), b.Sweepers(team(n), owners, nil)
		for i, s := range a.Shards {
			j := slices.IndexFunc(b.Shards, func(o Shard) bool { return compareNames(o, s) == 0 })
			if ka[i] != kb[j] {
				t.Fatalf("%s/%s is kept by %d or by %d", s.Account, s.Queue, ka[i], kb[j])
			}
		}
	})
}

func TestWithoutInstancesNothingIsOwnedOrKept(t *testing.T) {
	m := mustNew(t, 64, equalShards(3))
	for s, owner := range m.Plan(nil, make([]int, 64), nil) {
		proof.Same(t, owner, Unowned, "segment", s)
	}
	for shard, sweeper := range m.Sweepers(nil, make([]int, 64), nil) {
		proof.Same(t, sweeper, Unowned, "shard", shard)
	}
}

func TestEachShardHasOneKeeperWhoHoldsMostOfItOrComesByRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		owners := drawOwners(t, m, n)
		held := make([]map[int]int, len(m.Shards))
		for i := range held {
			held[i] = map[int]int{}
		}
		for s, owner := range owners {
			if owner >= 0 && owner < n {
				held[m.Home(uint32(s))][owner]++
			}
		}
		for shard, sweeper := range m.Sweepers(team(n), owners, nil) {
			if sweeper < 0 || sweeper >= n {
				t.Fatalf("shard %d is kept by %d of %d", shard, sweeper, n)
			}
			for owner, segments := range held[shard] {
				if mine := held[shard][sweeper]; segments > mine || segments == mine && owner < sweeper {
					t.Fatalf(
						"shard %d is kept by %d with %d segments, %d has %d", shard, sweeper, mine,
						owner, segments,
					)
				}
			}
		}
	})
	// Draining shards are the home of no segment, and spread evenly.
	shards := equalShards(30)
	for i := range 20 {
		shards[i].State = Draining
	}
	m := mustNew(t, 64, shards)
	kept := make([]int, 10)
	for _, sweeper := range m.Sweepers(team(10), m.Plan(team(10), nil, nil), nil)[:20] {
		kept[sweeper]++
	}
	proof.Same(t, slices.Min(kept), 2, "20 draining shards are kept", kept)
	proof.Same(t, slices.Max(kept), 2, "20 draining shards are kept", kept)
}

// TestTableOfWhatJoiningMoves prints what the (n+1)th instance takes, the others
// having come one by one; segments where single ones move, else queues.
func TestTableOfWhatJoiningMoves(t *testing.T) {
	type size struct{ segments, queues int }
	sizes := []size{{64, 1}, {64, 2}, {256, 8}, {512, 16}, {1024, 32}, {4096, 1}, {4096, 8}, {4096, 128}, {4096, 1000}}
	header := " n -> n+1"
	for _, c := range sizes {
		header += fmt.Sprintf("  %13s", fmt.Sprintf("S=%d Q=%d", c.segments, c.queues))
	}
	t.Log(header)
	maps, owners := make([]*Map, len(sizes)), make([][]int, len(sizes))
	for i, c := range sizes {
		maps[i] = mustNew(t, c.segments, equalShards(c.queues))
		owners[i] = maps[i].Plan(team(1), nil, nil)
	}
	for n := 1; n <= 20; n++ {
		line := fmt.Sprintf("%2d -> %2d ", n, n+1)
		for i, m := range maps {
			next := m.Plan(team(n+1), owners[i], nil)
			checkPlan(t, m, n+1, next)
			moved, queues := differ(m, owners[i], next)
			units, what := m.Segments, "s"
			if homed(m) >= n+1 {
				moved, units, what = queues, homed(m), "q"
			}
			most := (units + n) / (n + 1)
			line += fmt.Sprintf("  %5d <= %4d%s", moved, most, what)
			if moved > most {
				t.Errorf(
					"S = %d, %d queues: instance %d moved %d%s, want at most %d", m.Segments,
					len(m.Shards), n+1, moved, what, most,
				)
			}
			owners[i] = next
		}
		t.Log(line)
	}
}

func BenchmarkPlan(b *testing.B) {
	m := mustNew(b, MaxSegments, equalShards(1000))
	for _, n := range []int{200, 1001} { // whole queues, single segments
		before := m.Plan(team(n), nil, nil)
		instances := team(n - 1)
		current := renumbered(before, n/2)
		b.Run(fmt.Sprintf("%d instances", n), func(b *testing.B) {
			for b.Loop() {
				m.Plan(instances, current, nil)
			}
		})
	}
	owners := m.Plan(team(200), nil, nil)
	b.Run("sweepers", func(b *testing.B) {
		for b.Loop() {
			m.Sweepers(team(200), owners, nil)
		}
	})
}
