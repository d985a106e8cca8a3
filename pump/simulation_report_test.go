package pump

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// simSum adds up what was played.
type simSum struct {
	mu       sync.Mutex
	worlds   int
	wrong    int
	virtual  time.Duration
	requests int
	tasks    int
	longest  time.Duration // recovery
	slowest  uint64        // the seed of it
	closest  float64       // of a recovery to its bound
	counts   map[string]int
}

func newSimSum() *simSum { return &simSum{counts: map[string]int{}} }

func (sum *simSum) add(w *simWorld) {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.worlds++
	if len(w.wrong) > 0 {
		sum.wrong++
	}
	sum.virtual += w.lasted
	sum.requests += w.requests
	sum.tasks += len(w.tasks)
	if w.recovery > sum.longest {
		sum.longest, sum.slowest = w.recovery, w.plan.seed
	}
	sum.closest = max(sum.closest, float64(w.recovery)/float64(w.bound()))
	for what, n := range w.counts {
		sum.counts[what] += n
	}
}

func (sum *simSum) String() string {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d worlds, %d of them with something wrong, %.1f hours of virtual time, %d requests, %d tasks\n", sum.worlds, sum.wrong, sum.virtual.Hours(), sum.requests, sum.tasks)
	fmt.Fprintf(&b, "slowest to recover: %v (seed %d); closest to its bound: %.0f %%\n", sum.longest.Round(time.Millisecond), sum.slowest, 100*sum.closest)
	for _, what := range slices.Sorted(maps.Keys(sum.counts)) {
		fmt.Fprintf(&b, "  %8d %s\n", sum.counts[what], what)
	}
	return b.String()
}

func (sum *simSum) report(from uint64, seeds int) []byte { return []byte(sum.String()) }
