package shardmap

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// equalShards is n equal shards, eight queues an account, as the defaults make them.
func equalShards(n int) []Shard {
	shards := make([]Shard, n)
	for i := range shards {
		shards[i] = Shard{
			Account: fmt.Sprintf("account%02d", i/8), Queue: fmt.Sprintf("work-%d", i%8), Weight: 1,
			State: Active,
		}
	}
	return shards
}

func mustNew(t testing.TB, segments int, shards []Shard) *Map {
	t.Helper()
	m, err := New(segments, shards)
	must(t, err)
	return m
}

// drained is the list with one shard draining.
func drained(shards []Shard, i int) []Shard {
	shards = slices.Clone(shards)
	shards[i].State = Draining
	return shards
}

// moves counts the segments whose home is another queue in b than in a.
func moves(a, b *Map) int {
	n := 0
	for s := range a.homes {
		if compareNames(a.Shards[a.homes[s]], b.Shards[b.homes[s]]) != 0 {
			n++
		}
	}
	return n
}

// bounds gives each shard's share of the segments rounded down and up, by
// rational arithmetic that shares nothing with the code under test.
func bounds(segments int, shards []Shard) (low, high []int) {
	total := new(big.Rat)
	weight := func(s Shard) *big.Rat {
		if s.State == Draining {
			return new(big.Rat)
		}
		return big.NewRat(int64(math.Round(s.Weight*1e6)), 1e6)
	}
	for _, s := range shards {
		total.Add(total, weight(s))
	}
	for _, s := range shards {
		share := new(big.Rat).Quo(new(big.Rat).Mul(weight(s), big.NewRat(int64(segments), 1)), total)
		quotient, rest := new(big.Int).QuoRem(share.Num(), share.Denom(), new(big.Int))
		down := int(quotient.Int64())
		up := down
		if rest.Sign() > 0 {
			up++
		}
		low, high = append(low, down), append(high, up)
	}
	return low, high
}

// fewest is the least number of moves from a to any map of these shards whose
// loads are within bounds: whatever is homeless or over a bound must move, and
// whatever is missing under a bound must come from somewhere.
func fewest(a *Map, shards []Shard) int {
	low, high := bounds(a.Segments, shards)
	homeless, over, under := a.Segments, 0, 0
	for i, s := range shards {
		kept := 0
		if j := slices.IndexFunc(a.Shards, func(o Shard) bool { return compareNames(o, s) == 0 }); j >= 0 &&
			s.State != Draining {
			kept = a.Loads()[j]
		}
		homeless -= kept
		over += max(0, kept-high[i])
		under += max(0, low[i]-kept)
	}
	return max(homeless+over, under)
}

type fataler interface{ Fatalf(string, ...any) }

// checkShares is P6.1's bound, in both directions.
func checkShares(t fataler, m *Map) {
	low, high := bounds(m.Segments, m.Shards)
	for i, n := range m.Loads() {
		if n < low[i] || n > high[i] {
			t.Fatalf(
				"shard %d %+v has %d of %d segments, want %d to %d", i, m.Shards[i], n, m.Segments,
				low[i], high[i],
			)
		}
	}
}

// drawShards draws a list with at least one active shard, weights and accounts.
func drawShards(t *rapid.T, label string) []Shard {
	n := rapid.IntRange(1, 40).Draw(t, label+" shards")
	names := rapid.SliceOfNDistinct(rapid.IntRange(0, 60), n, n, rapid.ID).Draw(t, label+" names")
	shards := make([]Shard, n)
	for i, name := range names {
		shards[i] = Shard{
			Account: fmt.Sprintf("account%d", name%7), Queue: fmt.Sprintf("q-%d", name/7),
			Weight: float64(
				rapid.OneOf(rapid.Just(1000), rapid.IntRange(1, 5000), rapid.IntRange(1, 1_000_000)).Draw(t, "weight"),
			) / float64(
				rapid.SampledFrom([]int{1000, 1_000_000}).Draw(t, "unit"),
			),
			State: rapid.SampledFrom([]State{Active, Active, Active, Draining}).Draw(t, "state"),
		}
	}
	shards[0].State = Active
	return shards
}

// drawSegments draws as many segments as drawShards draws shards, or more.
func drawSegments(t *rapid.T) int { return SegmentStep * rapid.IntRange(1, 16).Draw(t, "S/64") }

func TestNoShardIsAboveItsWeightedShareRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(drawSegments(t), drawShards(t, "first"))
		must(t, err)
		checkShares(t, m)
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			shards := drawShards(t, "next")
			next, err := m.Change(shards)
			must(t, err)
			checkShares(t, next)
			m = next
		}
	})
}

func TestAChangeMovesTheFewestSegmentsThatKeepTheShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(drawSegments(t), drawShards(t, "first"))
		must(t, err)
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			next, err := m.Change(drawShards(t, "next"))
			must(t, err)
			if got, want := moves(m, next), fewest(m, next.Shards); got != want {
				t.Fatalf("%d segments moved, %d had to", got, want)
			}
			if next.Version != m.Version+1 || next.Segments != m.Segments {
				t.Fatalf(
					"version %d of %d segments after version %d of %d", next.Version, next.Segments,
					m.Version, m.Segments,
				)
			}
			m = next
		}
	})
}

// TestAddingOrDrainingOneOfNMovesLittleMoreThanOneNth: equal weights and any
// history of adding and draining. The share of the one shard moves
// rounded up, that is less than one segment more than S/n.
func TestAddingOrDrainingOneOfNMovesLittleMoreThanOneNth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments := 1 << rapid.IntRange(4, 10).Draw(t, "log2 S")
		// One is added below, and a map has no more shards than segments.
		n := rapid.IntRange(1, min(40, segments-1)).Draw(t, "shards")
		m, err := New(segments, equalShards(n))
		must(t, err)
		added, err := m.Change(equalShards(n + 1))
		must(t, err)
		if got, most := moves(m, added), (segments+n)/(n+1); got > most {
			t.Fatalf("adding to %d shards moved %d of %d segments, want at most %d", n, got, segments, most)
		}
		one := rapid.IntRange(0, n).Draw(t, "drained")
		after, err := added.Change(drained(added.Shards, one))
		must(t, err)
		if got, most := moves(added, after), (segments+n)/(n+1); got > most {
			t.Fatalf("draining one of %d shards moved %d of %d segments, want at most %d", n+1, got, segments, most)
		}
		for s := range after.homes {
			if after.Home(uint32(s)) == one {
				t.Fatalf("segment %d has the draining shard as its home", s)
			}
			if added.Home(uint32(s)) != one && after.Home(uint32(s)) != added.Home(uint32(s)) {
				t.Fatalf("segment %d moved, but its shard did not drain", s)
			}
		}
	})
}

func TestANewMapDependsOnTheSetOfShardsAndNotOnTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments, shards := drawSegments(t), drawShards(t, "first")
		shuffled := rapid.Permutation(shards).Draw(t, "shuffled")
		a, err := New(segments, shards)
		must(t, err)
		b, err := New(segments, shuffled)
		must(t, err)
		if n := moves(a, b); n != 0 {
			t.Fatalf("%d homes differ", n)
		}
		again, err := a.Change(shuffled)
		must(t, err)
		if n := moves(a, again); n != 0 {
			t.Fatalf("the same list in another order moved %d segments", n)
		}
	})
}

func TestTheSameMapIsMadeOnEveryMachine(t *testing.T) {
	// Pinned: a spilled message is looked for where these choices say, perhaps
	// by another architecture or a later version.
	m := mustNew(
		t,
		16,
		[]Shard{
			{Account: "north", Queue: "q-0"},
			{Account: "north", Queue: "q-1"},
			{Account: "south", Queue: "q-0", Weight: 2},
			{Account: "west", Queue: "q-0", Weight: 0.5},
		},
	)
	var got [][]int
	for s := range 16 {
		got = append(got, m.Choices(uint32(s)))
	}
	proof.Same(t, cmp.Diff(pinnedChoices, got), "")
}

func TestAMapThatCannotBeIsRefusedWithItsReason(t *testing.T) {
	long := make([]Shard, MaxShards+1)
	good := Shard{Account: "a", Queue: "q"}
	with := func(change func(*Shard)) []Shard {
		s := good
		change(&s)
		return []Shard{s}
	}
	wide := make([]Shard, MaxShards)
	for i := range wide {
		wide[i] = Shard{Account: "a", Queue: fmt.Sprintf("q%062d", i)}
	}
	for name, c := range map[string]struct {
		segments int
		shards   []Shard
		want     error
	}{
		"no segments":        {0, []Shard{good}, ErrSegments},
		"negative segments":  {-64, []Shard{good}, ErrSegments},
		"no multiple of 64":  {100, []Shard{good}, ErrSegments},
		"48 segments":        {48, []Shard{good}, ErrSegments},
		"too many segments":  {32768, []Shard{good}, ErrSegments},
		"no shards":          {64, nil, ErrShards},
		"too many shards":    {64, long, ErrShards},
		"a shard twice":      {64, []Shard{good, {Account: "b", Queue: "q"}, good}, ErrShards},
		"only draining":      {64, with(func(s *Shard) { s.State = Draining }), ErrNoActive},
		"unknown state":      {64, with(func(s *Shard) { s.State = "paused" }), ErrShards},
		"negative weight":    {64, with(func(s *Shard) { s.Weight = -1 }), ErrShards},
		"tiny weight":        {64, with(func(s *Shard) { s.Weight = 0.0000001 }), ErrShards},
		"huge weight":        {64, with(func(s *Shard) { s.Weight = 1001 }), ErrShards},
		"NaN weight":         {64, with(func(s *Shard) { s.Weight = math.NaN() }), ErrShards},
		"infinite weight":    {64, with(func(s *Shard) { s.Weight = math.Inf(1) }), ErrShards},
		"no account":         {64, with(func(s *Shard) { s.Account = "" }), ErrShards},
		"no queue":           {64, with(func(s *Shard) { s.Queue = "" }), ErrShards},
		"long queue":         {64, with(func(s *Shard) { s.Queue = fmt.Sprintf("%064d", 0) }), ErrShards},
		"slash in a name":    {64, with(func(s *Shard) { s.Queue = "../q" }), ErrShards},
		"control in a name":  {64, with(func(s *Shard) { s.Account = "a\nb" }), ErrShards},
		"more than segments": {2, []Shard{good, {Account: "a", Queue: "r"}, {Account: "a", Queue: "s"}}, ErrFewSegments},
		"does not fit a row": {4096, wide, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			proof.Is(t, proof.ErrOf(New(c.segments, c.shards)), c.want, "New")
			if err := Check(c.segments, c.shards); !errors.Is(err, c.want) && c.want != ErrTooLarge {
				t.Errorf("Check: %v, want %v", err, c.want)
			}
			if c.want == ErrSegments {
				return
			}
			m := mustNew(t, c.segments, []Shard{good})
			proof.Is(t, proof.ErrOf(m.Change(c.shards)), c.want, "Change")
		})
	}
	m := mustNew(t, 64, []Shard{good})
	m.Version = math.MaxUint64
	proof.Says(t, proof.ErrOf(m.Change([]Shard{good})), "version is at its maximum")
}

func BenchmarkNewOf100Shards(b *testing.B) {
	shards := equalShards(100)
	for b.Loop() {
		if _, err := New(4096, shards); err != nil {
			b.Fatal(err)
		}
	}
}
