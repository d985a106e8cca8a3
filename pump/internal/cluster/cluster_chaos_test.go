package cluster

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	clusterSeeds = flag.Int("cluster.seeds", 500, "how many seeds are played")
	clusterFrom  = flag.Uint64("cluster.from", 0, "the first of them")
	clusterPlays = flag.String("cluster.script", "", "play this script instead of those in testdata, and print its history")
)

// clusterSum adds up what was played.
type clusterSum struct {
	mu       sync.Mutex
	scripts  int
	virtual  time.Duration
	requests int
	looks    int
	terms    int
	evicted  int
	longest  time.Duration
	settling time.Duration
	faults   map[string]int
	events   map[string]int
}

func (sum *clusterSum) add(w *clusterWorld) {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	if sum.faults == nil {
		sum.faults, sum.events = map[string]int{}, map[string]int{}
	}
	sum.scripts++
	sum.virtual += w.lasted
	sum.requests += w.requests
	sum.looks += w.judge.looks
	sum.terms += w.judge.terms
	sum.evicted += w.judge.evictions
	sum.longest = max(sum.longest, w.judge.longest)
	for _, d := range w.judge.settling {
		sum.settling = max(sum.settling, d)
	}
	for kind, n := range w.faults {
		sum.faults[kind] += n
	}
	for kind, n := range w.events {
		sum.events[kind] += n
	}
}

func (sum *clusterSum) String() string {
	counts := func(of map[string]int) string {
		var list []string
		for _, kind := range slices.Sorted(maps.Keys(of)) {
			list = append(list, fmt.Sprintf("%s %d", kind, of[kind]))
		}
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf(`%d scripts, %.1f hours of virtual time, %d requests, looked at %d times
events: %s
requests that went wrong: %s
%d terms, %d evictions; a segment was without an owner for %v at most, and the slowest settled in %v`,
		sum.scripts, sum.virtual.Hours(), sum.requests, sum.looks, counts(sum.events), counts(sum.faults),
		sum.terms, sum.evicted, sum.longest.Round(time.Millisecond), sum.settling.Round(time.Millisecond))
}

// failOn reports what a script showed, with the script, which plays it again.
func failOn(t *testing.T, w *clusterWorld) {
	t.Helper()
	if len(w.wrong) > 0 {
		t.Errorf("%s\nthis script plays it again (make play WHAT=cluster SCRIPT=file):\n%s", strings.Join(w.wrong, "\n"), w.script)
	}
}

// Of any history, no two processes trust the same segment at the
// same instant, nor do handlers of two work on it; epochs rise; no two trusted
// leaders; a segment is owned again within two leases and a margin; once nothing
// goes wrong any more all is shared out as P5.5 says; and after a minute in the
// dark all own what they owned, and none was declared dead (P5.3, P5.6).
func TestAClusterHasOneOwnerForEachSegmentWhateverGoesWrong(t *testing.T) {
	seeds := *clusterSeeds
	if testing.Short() {
		seeds = min(seeds, 10) // a second of a core each
	}
	sum := &clusterSum{}
	t.Cleanup(func() { t.Log(sum) })
	const together = 5
	for first := *clusterFrom; first < *clusterFrom+uint64(seeds); first += together {
		last := min(first+together, *clusterFrom+uint64(seeds)) - 1
		t.Run(fmt.Sprintf("seeds %d to %d", first, last), func(t *testing.T) {
			t.Parallel()
			for seed := first; seed <= last; seed++ {
				w := playCluster(t, clusterScriptOf(seed))
				sum.add(w)
				failOn(t, w)
			}
		})
	}
}

func TestTheSameSeedGivesTheSameClusterHistory(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			seed := *clusterFrom + seed*41
			a, b := playCluster(t, clusterScriptOf(seed)).history, playCluster(t, clusterScriptOf(seed)).history
			if len(a) < 100 {
				t.Fatalf("only %d events", len(a))
			}
			for i := range max(len(a), len(b)) {
				if i >= len(a) || i >= len(b) || a[i] != b[i] {
					t.Fatalf("seed %d: the histories of %d and %d events part at\n%v\nand\n%v", seed, len(a), len(b), around(a, i), around(b, i))
				}
			}
		})
	}
}

func around(history []clusterEvent, i int) string {
	var b strings.Builder
	for j := max(0, i-3); j < min(len(history), i+3); j++ {
		fmt.Fprintln(&b, history[j])
	}
	return b.String()
}

func TestClusterScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.cluster")
	if *clusterPlays != "" {
		files = []string{*clusterPlays}
	}
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			must(t, err)
			s, err := parseClusterScript(string(text))
			must(t, err)
			w := playCluster(t, s)
			if *clusterPlays != "" {
				for _, e := range w.history {
					t.Log(e)
				}
			}
			failOn(t, w)
		})
	}
}

// TestOneMoreInstanceMovesItsShareAndNoMore prints what each arrival moves.
func TestOneMoreInstanceMovesItsShareAndNoMore(t *testing.T) {
	const segments, most = 64, 20
	for _, queues := range []int{1, 16} {
		s := &clusterScript{seed: 1, accounts: 2, queues: queues, segments: segments}
		for n := 1; n <= most+1; n++ {
			s.steps = append(s.steps, clusterStep{verb: "join", machines: []int{n}}, clusterStep{verb: "settle"}, clusterStep{verb: "check"})
		}
		t.Run(fmt.Sprint(2*queues, " queues"), func(t *testing.T) {
			t.Parallel()
			w := playCluster(t, s)
			failOn(t, w)
			var table strings.Builder
			fmt.Fprintf(&table, "%d segments on %d queues\n  n  moved by one more  at most\n", segments, 2*queues)
			for n := 1; n < len(w.judge.moves); n++ {
				// Whole queues move where there are as many as instances, each with its segments.
				bound, moved := (segments+n)/(n+1), w.judge.moves[n]
				if 2*queues >= n+1 {
					bound = (2*queues + n) / (n + 1) * (segments / (2 * queues))
				}
				fmt.Fprintf(&table, "%3d  %17d  %7d\n", n, moved, bound)
				if moved > bound {
					t.Errorf("instance %d moved %d segments, at most %d", n+1, moved, bound)
				}
			}
			t.Log(table.String())
		})
	}
}
