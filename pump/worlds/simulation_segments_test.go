package worlds

import (
	"fmt"
	"testing"
)

// A number of segments that is no power of two makes no difference to what becomes of tasks: S only
// divides hashes. The worlds are those of ledgers with several partitions.
func TestSimulationOfNumbersOfSegmentsThatAreNoPowersOfTwo(t *testing.T) {
	kind, err := simKindNamed("partitions")
	must(t, err)
	for i, segments := range []int{192, 320, 448, 576, 960, 1984} {
		t.Run(fmt.Sprint(segments), func(t *testing.T) {
			t.Parallel()
			p := kind.planOf(uint64(1000 + i))
			p.segments = segments
			failOnSim(t, playSim(t, p))
		})
	}
}
