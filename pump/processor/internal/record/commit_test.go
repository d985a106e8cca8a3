package record

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/ledger"
)

// Two hundred processors commit as often as they may, some all that they hold, some a part of it:
// no partition is asked for more than a quarter of its limit of 2,000 entities a second, nor the
// account for more than a quarter of its 20,000. Few processors are not held to much less.
func TestTwoHundredProcessorsAskAPartitionForAQuarter(t *testing.T) {
	for _, c := range []struct {
		processors, segments int
		most                 float64 // entities a second of a partition
	}{
		{200, 64, 500},
		{200, 512, 500},
		{200, 4096, 5000. / 64},
		{200, 16384, 5000. / 256},
		{3, 64, 500},
		{1, 64, 1280},
		{1, 256, 1250},
	} {
		t.Run(fmt.Sprintf("%d processors, %d segments", c.processors, c.segments), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(c.segments)))
			held, all := map[[2]int]int{}, make([]int, c.processors) // by processor, and partition
			for s := range c.segments {
				p := random.IntN(c.processors)
				held[[2]int{p, s / ledger.PartitionSegments}]++
				all[p]++
			}
			full := make([]float64, c.segments/ledger.PartitionSegments)
			parts := make([]float64, len(full))
			for of, n := range held {
				rate := func(entities int) float64 {
					return float64(entities) / apart(entities, n, all[of[0]], c.segments, time.Minute).Seconds()
				}
				full[of[1]] += rate(n)
				parts[of[1]] += rate(1 + random.IntN(2*n)) // pages are entities too
			}
			for i := range full {
				if full[i] > 1.01*c.most || parts[i] > 1.01*c.most || full[i] < 0.99*c.most {
					t.Fatalf("a partition is asked for %.0f or %.0f entities a second, want %.0f at most",
						full[i], parts[i], c.most)
				}
			}
		})
	}
}

// However much there is to write, a result does not wait until its message's lease is to be renewed,
// and however little, commits stay apart.
func TestACommitIsNeverSoonNorLate(t *testing.T) {
	for _, entities := range []int{0, 1, 64, 10_000} {
		for _, held := range []int{0, 1, 64} {
			d := apart(entities, held, held, 16384, time.Minute)
			if d < commitEvery || d > 10*time.Second {
				t.Errorf("%d entities, %d segments held: %v", entities, held, d)
			}
		}
	}
}
