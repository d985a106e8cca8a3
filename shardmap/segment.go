package shardmap

import (
	"bytes"
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

// onceFrom is from which size a body that is its own key stands in an envelope once only.
// Compression makes little of the second copy of a shorter one.
const onceFrom = 1 << 10

// marks are the keys of one byte.
var marks = func() (all [256]byte) {
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()

// StoredKey is what stands for a task's key in an envelope of its segment. For a long body that is
// its own key, that is a mark: one byte, as a key, would be of another segment.
func StoredKey(key, body []byte, segments int) []byte {
	if len(key) < onceFrom || segments <= 0 || !bytes.Equal(key, body) {
		return key
	}
	segment := Segment(key, segments)
	for i := range marks {
		if mark := marks[i : i+1 : i+1]; Segment(mark, segments) != segment {
			return mark
		}
	}
	return key
}

// KeyOf is the key for which [StoredKey] stands in an envelope of a segment.
func KeyOf(stored, body []byte, segment uint32, segments int) []byte {
	if len(stored) == 1 && len(body) >= onceFrom && segments > 0 &&
		Segment(stored, segments) != segment && Segment(body, segments) == segment {
		return body
	}
	return stored
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
