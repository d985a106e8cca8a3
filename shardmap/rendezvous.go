package shardmap

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// shardHash is the shard's side of the rendezvous: its names and nothing else,
// so that weight, state and position in the list do not move segments about.
func shardHash(s Shard) uint64 {
	return xxhash.Sum64String(s.Account + "\x00" + s.Queue)
}

// cost draws how dear a shard is to a segment: an exponentially distributed number, -log2 of a
// uniform hash, over the weight. Each of several shards is the cheapest with a chance in proportion
// to its weight, which is all that weighted rendezvous hashing is.
func (m *Map) cost(segment uint32, shard int) float64 {
	h := m.draw(segment, shard)
	// One division of two exact numbers is rounded the same way everywhere; a
	// multiplication and an addition might be fused on some architectures.
	return float64(negLog2(h)) / m.Shards[shard].Weight
}

// draw is the uniform hash of a segment and a shard.
func (m *Map) draw(segment uint32, shard int) uint64 {
	return mix(m.hashes[shard] + mix(uint64(segment)+0x9e3779b97f4a7c15))
}

// dearer reports, at a fiftieth of the price of the logarithm, that a shard surely costs a segment
// more than limit: -log2(x) is above (1-x) / ln 2, which is 1.4427 times 1-x. If it is false the
// cost must be computed.
func (m *Map) dearer(segment uint32, shard int, limit float64) bool {
	x := float64(m.draw(segment, shard)) * 0x1p-64
	return (1-x)*(1.44*(1<<logBits)) > limit*m.Shards[shard].Weight
}

// mix is the finaliser of splitmix64: every input bit moves every output bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// logBits is the number of binary digits after the point of negLog2: 6 before
// and 40 after it fit the 53 of a float64 exactly.
const logBits = 40

// negLog2 is -log2(h / 2^64) in fixed point, at least 1. It is done in whole
// numbers because math.Log differs in its last bit between architectures
// (assembly, fused multiply-add), and two machines that disagree about a choice
// would look for a spilled message in different queues.
func negLog2(h uint64) uint64 {
	h |= 1 // log2(0) is infinite; a cost of 64 is as good
	zeros := bits.LeadingZeros64(h)
	x := h << zeros // 1.63 fixed point, in [1, 2)
	var frac uint64
	for range logBits {
		// Squaring doubles the logarithm: its next digit is whether x^2 >= 2.
		hi, lo := bits.Mul64(x, x) // 2.126 fixed point
		frac <<= 1
		if hi>>63 == 1 {
			frac |= 1
			x = hi
		} else {
			x = hi<<1 | lo>>63
		}
	}
	log := uint64(63-zeros)<<logBits | frac
	return 64<<logBits - log
}

// maxChoices is how many shards a segment's messages may be put to (P6.3, docs/protocols.md).
const maxChoices = 3

// Choices gives the shards that messages of a segment may be put to, best
// first, as indices into Shards: its home, then the second and third choice
// for when the home is dark or at its limit. They are distinct
// active shards; there are fewer than three if there are fewer active shards.
// The second stands in another account than the home if there is one, since
// what takes a queue out usually takes its account out; the third in a third
// account, else again not in the home's.
func (m *Map) Choices(segment uint32) []int {
	choices := []int{m.Home(segment)}
	for len(choices) < maxChoices {
		best, near, cost := -1, 0, 0.0
		for i, s := range m.Shards {
			if s.State != Active || slices.Contains(choices, i) {
				continue
			}
			n := m.nearness(i, choices)
			if best >= 0 && (n > near || n == near && m.dearer(segment, i, cost)) {
				continue
			}
			c := m.cost(segment, i)
			if best < 0 || cmp.Or(cmp.Compare(n, near), cmp.Compare(c, cost),
				compareNames(s, m.Shards[best])) < 0 {
				best, near, cost = i, n, c
			}
		}
		if best < 0 {
			break
		}
		choices = append(choices, best)
	}
	return choices
}

// nearness says how likely a shard fails together with the chosen ones: 0 for an account of its
// own, 2 for the home's account, 1 between.
func (m *Map) nearness(shard int, chosen []int) int {
	account := m.Shards[shard].Account
	if account == m.Shards[chosen[0]].Account {
		return 2
	}
	for _, c := range chosen[1:] {
		if account == m.Shards[c].Account {
			return 1
		}
	}
	return 0
}
