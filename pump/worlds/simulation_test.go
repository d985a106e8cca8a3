package worlds

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

var (
	simSeeds    = flag.Int("simulate.seeds", 200, "how many seeds are played")
	simFrom     = flag.Uint64("simulate.from", 0, "the first of them")
	simPlays    = flag.String("simulate.plan", "", "play the fault plan of this file, or of this seed, and print its history")
	simSame     = flag.Int("simulate.same", 6, "of how many seeds two histories are compared")
	simKindOnly = flag.String("simulate.kind", "", "play worlds of this kind only, whether seeds write it or not")
	simKept     = flag.String("simulate.state", "", "keep what was played in this file, and go on with what it says")
	simReport   = flag.String("simulate.report", "", "write what was played to this file")
)

// simFewRuns is the most runs of a world under -short: five worlds of 200 have hundreds of runs, and
// took a quarter of the time of all. Without -short they have theirs.
const simFewRuns = 60

// Whatever goes wrong (P1 to P7): every task of a sealed run is done, or quarantined as its
// handling says, none that no run holds is, and after the last fault it is all over
// within a bounded time.
func TestSimulationNothingIsLostWhateverGoesWrong(t *testing.T) {
	seeds := *simSeeds
	if testworld.RaceDetector { // a world takes half a minute
		seeds = min(seeds, 10)
	}
	sum, keep := resumeSim(t)
	histories := &simHistories{made: map[uint64]string{}}
	t.Cleanup(func() {
		fmt.Print(sum)
		keep()
		for _, what := range sum.unmet() {
			t.Error(what)
		}
		if histories.keeps() {
			histories.compare(t)
		}
		if *simReport != "" {
			proof.Is(t, os.WriteFile(*simReport, sum.report(*simFrom), 0o644), nil)
		}
	})
	for seed := *simFrom; seed < *simFrom+uint64(seeds); seed++ {
		if sum.Played[seed] {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			plan := simPlanOf(seed)
			if testing.Short() {
				plan.runs = min(plan.runs, simFewRuns)
			}
			w := playSim(t, plan, func(w *simWorld) { w.records = histories.keeps() })
			if histories.keeps() {
				histories.add(seed, w)
			}
			if n := sum.add(w, time.Since(began)); n%500 == 0 {
				fmt.Printf("%d worlds\n", n)
			} else if n%25 == 0 {
				keep()
			}
			failOnSim(t, w)
		})
	}
	proof.Same(t, len(sum.Wrong), 0, "seeds wrong in an earlier part of this play", sum.Wrong)
}

// failOnSim reports what a plan showed, with the plan, which plays it again.
func failOnSim(t *testing.T, w *simWorld) {
	t.Helper()
	if len(w.wrong) > 0 {
		t.Errorf("%s\nthis plan plays it again (make simulate PLAN=file):\n%s", strings.Join(w.wrong, "\n"), w.plan)
	}
}

// TestSimulationPlays plays one plan and prints its history.
func TestSimulationPlays(t *testing.T) {
	if *simPlays == "" {
		t.Skip("there is no -simulate.plan")
	}
	plan := simPlanOf
	seed, err := strconv.ParseUint(*simPlays, 10, 64)
	if err != nil {
		text, err := os.ReadFile(*simPlays)
		must(t, err)
		read, err := parseSimPlan(string(text))
		must(t, err)
		plan = func(uint64) *simPlan { return read }
	}
	w := playSim(t, plan(seed), func(w *simWorld) { w.records, w.tell = true, simLog() })
	for _, e := range w.history {
		fmt.Println(e)
	}
	failOnSim(t, w)
}

// P9: two plays of one seed are the same, request for request, on one processor and on two.
func TestSimulationTheSameSeedGivesTheSameHistory(t *testing.T) {
	same := *simSame
	if testing.Short() {
		same = min(same, 1)
	}
	for seed := *simFrom; seed < *simFrom+uint64(same); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { // not in parallel: the number is the program's
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			var lines [2][]string
			for i := range lines {
				runtime.GOMAXPROCS(i + 1)
				w := playSim(t, simPlanOf(seed*17), func(w *simWorld) { w.records = true })
				for _, e := range w.history {
					lines[i] = append(lines[i], e.String())
				}
			}
			if len(lines[0]) < 500 {
				t.Fatalf("only %d lines", len(lines[0]))
			}
			requireSameHistory(t, seed*17, lines[0], lines[1])
		})
	}
}
