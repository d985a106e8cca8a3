package workload

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/codec"
)

// RunSum is how many tasks of a run are recorded in all segments.
type RunSum struct {
	Done, Quarantined uint64
	// Print is that of the numbers by segment; see [PrintOf].
	Print uint64
}

// PrintOf is a hash of how many tasks are settled in each segment. Two runs with different numbers
// have the same hash by chance once in 2^64 times.
func PrintOf(settled []uint64) (sum uint64) {
	for segment, n := range settled {
		sum += PrintOfSegment(segment, n)
	}
	return sum
}

// PrintOfSegment is what a segment with n settled tasks adds to the print of a run: see [PrintOf].
func PrintOfSegment(segment int, n uint64) uint64 {
	if n == 0 {
		return 0
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(segment))
	binary.LittleEndian.PutUint64(b[8:], n)
	return xxhash.Sum64(b[:])
}

// CompareRuns orders ids by their bytes.
func CompareRuns(a, b codec.RunID) int { return strings.Compare(string(a[:]), string(b[:])) }
