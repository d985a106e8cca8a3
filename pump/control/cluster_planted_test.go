//go:build planted

package control

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
	plantedSeeds = flag.Int("planted.seeds", 300, "how many seeds may be played to find a planted mistake")
	plantedOnly  = flag.String("planted.only", "", "plant only the mistake of this name")
	plantedWrite = flag.Bool("planted.write", false, "write PLANTED.md")
)

const plantedHead = `# Mistakes that the tests of the control plane must find

Made by ` + "`make planted`" + `. Each of these mistakes ([planted.go](planted.go), [planted_ledger.go](planted_ledger.go)) is planted by the build tag ` + "`planted`" + `, and
histories of one seed after the other are played until one breaks a promise; ` + "`make test`" + ` fails if 300 do not. Those of the whole pump
are [above](../PLANTED.md).

| mistake | seeds it took, or what found it | what was wrong first |
|---|---|---|
`

// plantedRows are what the tests of planted mistakes have found so far.
var plantedRows strings.Builder

// noteFound adds what found a mistake, and writes the page if that is wanted.
func noteFound(t *testing.T, what mistake, by, first string) {
	fmt.Fprintf(&plantedRows, "| %s | %s | %.160s |\n", what, by, strings.ReplaceAll(first, "|", "/"))
	if *plantedWrite {
		if err := os.WriteFile("PLANTED.md", []byte(plantedHead+plantedRows.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestPlantedMistakesAreFound is the proof of the proof: with each mistake that
// planted.go lists, and that a reader of this package might make, a script of
// testdata or some seed's history breaks a promise. It prints what that took.
func TestPlantedMistakesAreFound(t *testing.T) {
	source, err := os.ReadFile("planted.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile(`(?m)^\s+(\w+) +mistake = "(.+)"$`).FindAllSubmatch(source, -1)
	if len(listed) < 8 {
		t.Fatalf("planted.go lists %d mistakes", len(listed))
	}
	defer func() { planted = "" }()
	var table strings.Builder
	for _, found := range listed {
		name, what := string(found[1]), mistake(found[2])
		if *plantedOnly != "" && name != *plantedOnly {
			continue
		}
		planted = what
		by, first := searchCluster(t, name)
		if first == "" {
			t.Errorf("%s: %s: not found by %d seeds", name, what, *plantedSeeds)
			continue
		}
		fmt.Fprintf(&table, "%-17s %-17s %s\n", name, by, first)
		noteFound(t, what, by, first)
	}
	t.Logf("mistake, how many seeds it took or what found it, what was seen first\n%s", table.String())
}

// searchCluster plays seed after seed, as many at once as there are processors,
// until one shows something wrong; but first the script that was written for the
// mistake, if there is one.
func searchCluster(t *testing.T, name string) (by, first string) {
	script := "testdata/" + name + ".cluster"
	if text, err := os.ReadFile(script); err == nil {
		s, err := parseClusterScript(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if w := playCluster(t, s); len(w.wrong) > 0 {
			return name + ".cluster", w.wrong[0]
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
					if w := playCluster(t, clusterScriptOf(uint64(seed))); len(w.wrong) > 0 {
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
