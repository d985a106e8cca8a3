package shardmap

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Bounds of the number of segments. Below 64 the shares of a few shards differ
// by too much when one is added (each share is a whole number of segments). Above
// 16,384 the counters of a run, which are up to ten bytes for each segment, no longer
// fit a checkpoint of four properties of 60 KiB beside the source's cursor.
const (
	// MaxSegments is the largest S of a map.
	MaxSegments = 16384
	// SegmentStep divides S. S need not be a power of two, because the busiest of Q queues has S/Q
	// segments rounded up: of 16,384 segments 2,500 queues have 6 or 7 each, and those with 7 are at
	// their limit when all together are at 93.6 % of theirs; of 14,976 they have 6 at most, and are at
	// 99.8 %. It is 64 because a partition of the ledger has 64 segments.
	SegmentStep = 64
	minDefault  = 64
	maxDefault  = 4096
	perShard    = 32
)

// CanBeSegments reports whether a new workload may have so many segments: a multiple of SegmentStep
// up to MaxSegments.
func CanBeSegments(segments int) bool {
	return segments >= SegmentStep && segments <= MaxSegments && segments%SegmentStep == 0
}

// Segment gives the segment of a key in a workload of the given number of
// segments, which must be positive: xxhash64(key) mod segments. It never
// changes; a key of any bytes and any length, the empty one included, has one.
func Segment(key []byte, segments int) uint32 {
	return uint32(xxhash.Sum64(key) % uint64(segments))
}

// DefaultSegments is the number of segments for a new workload that starts with
// the given number of shards: the power of two that is at least 32 times as
// many, within 64 to 4,096. With 32 segments or more a shard, the rounding of a
// share to whole segments costs the busiest shard at most about 3 %.
func DefaultSegments(shards int) int {
	switch {
	case shards <= minDefault/perShard:
		return minDefault
	case shards >= maxDefault/perShard:
		return maxDefault
	}
	return 1 << bits.Len(uint(shards*perShard-1))
}
