package shardmap

import (
	"cmp"
	"slices"
)

// homeless marks a segment without a home while a placement is being made;
// MaxShards keeps real indices below it.
const homeless = ^uint16(0)

// place gives each segment its home on one of m's active shards. With a
// previous map every segment stays that can.
//
// Shares are fixed first, as exact numbers of segments, and then filled:
// a greedy fill against upper bounds alone may leave one shard short by all the
// room that rounding up gave the others (going from 100 to 101 shards of 4,096
// segments, every bound stays at 41 and the new shard would get nothing).
func place(m, prev *Map) []uint16 {
	homes, kept := inherit(m, prev)
	want := targets(m, kept)

	// Shards over their target are donors: any of their segments may leave,
	// up to the surplus. Shards under it are takers. The sums agree: homeless
	// segments + surplus = deficit.
	surplus := make([]int, len(m.Shards))
	deficit := make([]int, len(m.Shards))
	for i := range m.Shards {
		surplus[i] = max(0, kept[i]-want[i])
		deficit[i] = max(0, want[i]-kept[i])
	}
	for _, o := range offers(m, homes, surplus, deficit) {
		if deficit[o.shard] == 0 || homes[o.segment] != o.from {
			continue
		}
		if o.from != homeless {
			if surplus[o.from] == 0 {
				continue
			}
			surplus[o.from]--
		}
		deficit[o.shard]--
		homes[o.segment] = o.shard
	}
	// Every deficit is filled: had one been left, some segment that could have
	// moved would be left too, and the offer between the two was seen while
	// both still stood, because deficits and surpluses only ever shrink.
	return homes
}

// inherit keeps the homes of prev that are still active, and counts them by shard.
func inherit(m, prev *Map) (homes []uint16, kept []int) {
	homes = slices.Repeat([]uint16{homeless}, m.Segments)
	kept = make([]int, len(m.Shards))
	if prev == nil {
		return homes, kept
	}
	type name struct{ account, queue string }
	now := make(map[name]uint16, len(m.Shards))
	for i, s := range m.Shards {
		if s.State == Active {
			now[name{s.Account, s.Queue}] = uint16(i)
		}
	}
	for segment, old := range prev.homes {
		s := prev.Shards[old]
		if i, ok := now[name{s.Account, s.Queue}]; ok {
			homes[segment] = i
			kept[i]++
		}
	}
	return homes, kept
}

// targets gives each shard the number of segments it will have: its share
// rounded down, or rounded up for as many as are needed to reach S. Shards that
// already have more than the lower number are rounded up first, so that
// rounding moves nothing that may stay; then those that lose most by rounding
// down; then by name, never by position.
func targets(m *Map, kept []int) []int {
	var total uint64
	for _, s := range m.Shards {
		if s.State == Active {
			total += s.steps()
		}
	}
	want := make([]int, len(m.Shards))
	left := m.Segments
	var rounded []int // shards whose share is no whole number
	rest := make([]uint64, len(m.Shards))
	for i, s := range m.Shards {
		if s.State != Active {
			continue
		}
		// At most 4,096 x 10^9 over at most 1,024 x 10^9: exact.
		share := uint64(m.Segments) * s.steps()
		want[i], rest[i] = int(share/total), share%total
		left -= want[i]
		if rest[i] > 0 {
			rounded = append(rounded, i)
		}
	}
	slices.SortFunc(rounded, func(a, b int) int {
		return cmp.Or(
			-compareBool(kept[a] > want[a], kept[b] > want[b]),
			-cmp.Compare(rest[a], rest[b]),
			compareNames(m.Shards[a], m.Shards[b]))
	})
	// The remainders add up to `left` whole shares and each is below one, so
	// there are more than `left` of them, or none is needed.
	for _, i := range rounded[:left] {
		want[i]++
	}
	return want
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// offer is one possible move: a segment to a shard that lacks segments.
type offer struct {
	rank    float64
	segment uint32
	from    uint16
	shard   uint16
}

// offers lists every move that could help, best first. A homeless segment goes
// by its cost at the shard, a segment that has a home by how much dearer it
// would be than there: plain rendezvous moves it exactly if it would be
// cheaper, so the moves taken are those nearest to what rendezvous wants. Equal
// ranks are ordered by segment and names, so that the order of shards is no input.
func offers(m *Map, homes []uint16, surplus, deficit []int) []offer {
	var takers []int
	for i := range m.Shards {
		if deficit[i] > 0 {
			takers = append(takers, i)
		}
	}
	var all []offer
	for segment, from := range homes {
		var here float64
		if from != homeless {
			if surplus[from] == 0 {
				continue
			}
			here = m.cost(uint32(segment), int(from))
		}
		for _, i := range takers {
			all = append(all, offer{m.cost(uint32(segment), i) - here, uint32(segment), from, uint16(i)})
		}
	}
	slices.SortFunc(all, func(a, b offer) int {
		if a.rank != b.rank { // nearly always; names are slow to compare
			return cmp.Compare(a.rank, b.rank)
		}
		return cmp.Or(
			cmp.Compare(a.segment, b.segment),
			compareNames(m.Shards[a.shard], m.Shards[b.shard]))
	})
	return all
}
