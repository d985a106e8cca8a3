package shardmap

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pinnedChoices belongs to TestTheSameMapIsMadeOnEveryMachine.
var pinnedChoices = [][]int{
	{0, 2, 3},
	{3, 1, 2},
	{2, 1, 3},
	{1, 2, 3},
	{1, 3, 2},
	{2, 0, 3},
	{2, 0, 3},
	{2, 3, 1},
	{0, 2, 3},
	{3, 2, 1},
	{0, 2, 3},
	{1, 2, 3},
	{2, 1, 3},
	{0, 3, 2},
	{2, 0, 3},
	{2, 0, 3},
}

func TestNegLog2IsMinusTheLogarithm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.Uint64().Draw(t, "h")
		want := 64 - math.Log2(float64(h|1))
		got := float64(negLog2(h)) / (1 << logBits)
		// The fixed point is cut off after 40 digits, Log2 and the conversion
		// of h are exact to about 50.
		if math.Abs(got-want) > 1e-11 {
			t.Fatalf("negLog2(%#x) = %v, want %v", h, got, want)
		}
	})
	for _, h := range []uint64{0, 1, 1 << 63, math.MaxUint64} {
		if n := negLog2(h); n < 1 || n > 64<<logBits {
			t.Errorf("negLog2(%#x) = %d", h, n)
		}
	}
}

func TestChoicesAreTheHomeThenDistinctActiveShardsOfOtherAccountsFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(drawSegments(t), drawShards(t, "first"))
		must(t, err)
		accounts := map[string]bool{}
		active := 0
		for _, s := range m.Shards {
			if s.State == Active {
				active++
				accounts[s.Account] = true
			}
		}
		segment := uint32(rapid.IntRange(0, m.Segments-1).Draw(t, "segment"))
		choices := m.Choices(segment)
		if len(choices) != min(3, active) {
			t.Fatalf("%d choices of %d active shards", len(choices), active)
		}
		if choices[0] != m.Home(segment) {
			t.Fatalf("first choice %d is not the home %d", choices[0], m.Home(segment))
		}
		used := map[string]bool{}
		for i, c := range choices {
			if m.Shards[c].State != Active || slices.Contains(choices[:i], c) {
				t.Fatalf("choice %d of %v drains or stands in it twice", i, choices)
			}
			used[m.Shards[c].Account] = true
		}
		if want := min(len(choices), len(accounts)); len(used) != want {
			t.Fatalf("choices %v are in %d accounts, want %d", choices, len(used), want)
		}
		if len(choices) == 3 && len(accounts) == 2 && m.Shards[choices[2]].Account == m.Shards[choices[0]].Account {
			// The other account has only one shard then.
			n := 0
			for _, s := range m.Shards {
				if s.State == Active && s.Account != m.Shards[choices[0]].Account {
					n++
				}
			}
			if n > 1 {
				t.Fatalf("third choice of %v is in the home's account", choices)
			}
		}
	})
}

func TestSpillOfADarkAccountSpreadsOverAllOthers(t *testing.T) {
	m := mustNew(t, 2048, equalShards(64)) // 8 accounts
	second := map[string]int{}
	for s := range m.Segments {
		c := m.Choices(uint32(s))
		if m.Shards[c[0]].Account == "account00" {
			second[m.Shards[c[1]].Account]++
		}
	}
	if len(second) != 7 {
		t.Fatalf("256 segments spill to %d accounts, want 7: %v", len(second), second)
	}
	for account, n := range second {
		// 256/7 = 37 expected, standard deviation 5.6.
		if n < 15 || n > 65 {
			t.Errorf("%s takes %d of 256", account, n)
		}
	}
}

func BenchmarkChoicesOf100Shards(b *testing.B) {
	m := mustNew(b, 4096, equalShards(100))
	for b.Loop() {
		m.Choices(17)
	}
}
