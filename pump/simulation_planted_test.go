//go:build planted

package pump

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var (
	plantedSeeds = flag.Int("planted.seeds", 200, "how many seeds may be played to find a planted mistake")
	plantedOnly  = flag.String("planted.only", "", "plant only the mistake of this name")
	plantedWrite = flag.Bool("planted.write", false, "write PLANTED.md")
)

const plantedHead = `# Mistakes that the simulation must find

Made by ` + "`make planted`" + `. Each of these mistakes ([planted.go](planted.go)) is planted in the pump by the build tag ` + "`planted`" + `, and worlds of one seed after
the other are played until one shows something wrong; ` + "`make test`" + ` fails if 200 do not. Those of the ledger, the cluster and
the election are [beside them](control/PLANTED.md).

| mistake | seeds it took, or what found it | what was wrong first |
|---|---|---|
`

// TestPlantedMistakesAreFound is the proof of the simulation: with each mistake that
// planted.go lists, a plan of testdata or that of some
// seed shows something wrong. It prints what that took.
func TestPlantedMistakesAreFound(t *testing.T) {
	source, err := os.ReadFile("planted.go")
	if err != nil {
		t.Fatal(err)
	}
	type planting struct{ name, what string }
	var all []planting
	for _, m := range regexp.MustCompile(`(?m)^\s+(\w+) +mistake = "(.+?)"`).FindAllSubmatch(source, -1) {
		all = append(all, planting{string(m[1]), string(m[2])})
	}
	if len(all) < 11 {
		t.Fatalf("planted.go lists %d mistakes", len(all))
	}
	defer func() { planted = "" }()
	var table, page strings.Builder
	for _, m := range all {
		if *plantedOnly != "" && m.name != *plantedOnly {
			continue
		}
		planted = mistake(m.what)
		by, first := searchSim(t, m.name)
		if first == "" {
			t.Errorf("%s: %s: not found by %d seeds", m.name, m.what, *plantedSeeds)
			continue
		}
		t.Logf("%-20s %-26s %.200s", m.name, by, first)
		fmt.Fprintf(&table, "%-20s %-26s %.160s\n", m.name, by, first)
		fmt.Fprintf(&page, "| %s | %s | %.160s |\n", m.what, by, strings.ReplaceAll(first, "|", "/"))
	}
	if *plantedWrite && !t.Failed() {
		if err := os.WriteFile("PLANTED.md", []byte(plantedHead+page.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Logf("mistake, how many seeds it took or what found it, what was seen first\n%s", table.String())
}

// searchSim plays the plan that was written for a mistake, if there is one, and
// then seed after seed, as many at once as there are processors, until one shows something wrong.
func searchSim(t *testing.T, name string) (by, first string) {
	if play := simDirected[name]; play != nil {
		return "a test of its own", play(t)
	}
	if text, err := os.ReadFile("testdata/" + name + ".plan"); err == nil {
		plan, err := parseSimPlan(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if w := playSim(t, plan); len(w.wrong) > 0 {
			return name + ".plan", w.wrong[0]
		}
	}
	batch := runtime.GOMAXPROCS(0)
	for from := 0; from < *plantedSeeds; from += batch {
		var mu sync.Mutex
		wrong := map[int]string{}
		t.Run(name, func(t *testing.T) {
			for seed := from; seed < from+batch; seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					if w := playSim(t, simPlanOf(uint64(seed))); len(w.wrong) > 0 {
						mu.Lock()
						wrong[seed] = w.wrong[0]
						mu.Unlock()
					}
				})
			}
		})
		for seed := from; seed < from+batch; seed++ {
			if wrong[seed] != "" {
				return fmt.Sprint(seed + 1), wrong[seed]
			}
		}
	}
	return "", ""
}

// simDirected are tests for what no simulated history can come to.
var simDirected = map[string]func(t *testing.T) string{
	// No message is ever lost there, so empty queues always mean that all is done.
	"completeByCount": func(t *testing.T) (wrong string) {
		inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			run := w.distributed(100)
			w.empty()
			g := w.wait(t.Context(), run.ID, WaitOptions{})
			<-g.done
			if g.State != CompletionStuck {
				wrong = fmt.Sprintf("a run of which nothing was done is %q", g.State)
			}
		})
		return wrong
	},
}
