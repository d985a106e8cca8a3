package shardmap

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
)

// homeless marks a segment without a home while a placement is being made;
// MaxShards keeps real indices below it.
const homeless = ^uint16(0)

// place gives each segment its home on one of m's active shards. With a previous map every segment
// that can stay stays.
//
// Shares are fixed first, as exact numbers of segments, and then filled: a greedy fill against
// upper bounds alone may leave one shard short by all the room that rounding up gave the others
// (going from 100 to 101 shards of 4,096 segments, every bound stays at 41 and the new shard would
// get nothing).
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
	for o := range offers(m, homes, surplus, deficit) {
		if o.from != homeless {
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

// targets gives each shard the number of segments it will have: its share rounded down, or rounded
// up for as many as are needed to reach S. Shards that already have more than the lower number are
// rounded up first, so that rounding moves nothing that may stay; then those that lose most by
// rounding down; then by name, never by position, and by the queue's name first. The queues that
// are rounded up are then spread over the accounts, which have a limit each.
func targets(m *Map, kept []int) []int {
	var total uint64
	for _, s := range m.Shards {
		if s.State == Active {
			total += s.steps()
		}
	}
	want := make([]int, len(m.Shards))
	left := m.Segments
	var rounded []int // shards whose share is not a whole number
	rest := make([]uint64, len(m.Shards))
	for i, s := range m.Shards {
		if s.State != Active {
			continue
		}
		// At most 16,384 x 10^9 over at most 4,096 x 10^9: exact.
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
			cmp.Compare(m.Shards[a].Queue, m.Shards[b].Queue),
			cmp.Compare(m.Shards[a].Account, m.Shards[b].Account))
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

// offers yields the moves that help, the best of all possible ones first. The caller makes each
// move, which lowers surplus and deficit, before it asks for the next. A homeless segment is ranked
// by its cost at the shard, a segment with a home by how much dearer it would be than there. Plain
// rendezvous moves a segment exactly if it would be cheaper, so the moves taken are nearest to what
// rendezvous wants. Equal ranks are ordered by segment and names, so that the order of shards does
// not matter.
//
// Of all pairs of segment and shard, 40 million with 2,500 shards, only the best few of each
// segment are kept at a time. As surpluses and deficits only ever shrink, the best of what is kept
// is the best of all: a pair that is no good once is never good again.
func offers(m *Map, homes []uint16, surplus, deficit []int) iter.Seq[offer] {
	return func(yield func(offer) bool) {
		var h bestFirst
		h.less = func(a, b offer) int { return compareOffers(m, a, b) }
		for segment, from := range homes {
			if from == homeless || surplus[from] > 0 {
				h.push(&offered{segment: uint32(segment), from: from}, m, deficit)
			}
		}
		for len(h.of) > 0 {
			s := h.of[0]
			o := s.best[0]
			switch {
			case o.from != homeless && surplus[o.from] == 0:
				heap.Pop(&h) // it stays, even if shards have room elsewhere
			case deficit[o.shard] == 0:
				if s.next(m, deficit, h.less) {
					heap.Fix(&h, 0)
				} else {
					heap.Pop(&h)
				}
			default:
				heap.Pop(&h)
				if !yield(o) {
					return
				}
			}
		}
	}
}

func compareOffers(m *Map, a, b offer) int {
	if a.rank != b.rank { // nearly always; names are slow to compare
		return cmp.Compare(a.rank, b.rank)
	}
	return cmp.Or(
		cmp.Compare(a.segment, b.segment),
		compareNames(m.Shards[a.shard], m.Shards[b.shard]))
}

// offersKept is how many offers of a segment are kept at a time. When all of them are taken
// by others the shards that are left are looked at again.
const offersKept = 16

// offered is a segment with its best offers, best first.
type offered struct {
	segment uint32
	from    uint16
	best    []offer
}

// next drops the offers of shards that have enough; it is false if no offer is left.
func (s *offered) next(m *Map, deficit []int, compare func(a, b offer) int) bool {
	for len(s.best) > 0 && deficit[s.best[0].shard] == 0 {
		s.best = s.best[1:]
	}
	if len(s.best) == 0 {
		s.look(m, deficit, compare)
	}
	return len(s.best) > 0
}

// look finds the best offers of all shards that lack segments.
func (s *offered) look(m *Map, deficit []int, compare func(a, b offer) int) {
	var here float64
	if s.from != homeless {
		here = m.cost(s.segment, int(s.from))
	}
	best := make([]offer, 0, offersKept+1)
	for i, n := range deficit {
		if n == 0 || len(best) == offersKept &&
			m.dearer(s.segment, i, (best[offersKept-1].rank+here)*(1+1e-9)) {
			continue
		}
		o := offer{m.cost(s.segment, i) - here, s.segment, s.from, uint16(i)}
		if len(best) == offersKept && compare(o, best[offersKept-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, o, compare)
		best = slices.Insert(best, at, o)
		best = best[:min(len(best), offersKept)]
	}
	s.best = best
}

// bestFirst is a heap of segments by their best offers.
type bestFirst struct {
	of   []*offered
	less func(a, b offer) int
}

func (h *bestFirst) push(s *offered, m *Map, deficit []int) {
	if s.next(m, deficit, h.less) {
		heap.Push(h, s)
	}
}

func (h *bestFirst) Len() int           { return len(h.of) }
func (h *bestFirst) Less(i, j int) bool { return h.less(h.of[i].best[0], h.of[j].best[0]) < 0 }
func (h *bestFirst) Swap(i, j int)      { h.of[i], h.of[j] = h.of[j], h.of[i] }
func (h *bestFirst) Push(s any)         { h.of = append(h.of, s.(*offered)) }

func (h *bestFirst) Pop() any {
	last := h.of[len(h.of)-1]
	h.of = h.of[:len(h.of)-1]
	return last
}
