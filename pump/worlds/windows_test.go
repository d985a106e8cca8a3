package worlds

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

var windowsWrite = flag.Bool("windows.write", false, "write docs/reports/windows.md instead of comparing it")

// windowRow is a window of vulnerability (docs/protocols.md), a message of origins W1 that is lost,
// or a crash between two steps, and what hits it.
type windowRow struct {
	number string
	window string
	done   string

	// plan is what goes wrong in a world of windowBase. The world is played in both delivery modes, or
	// in once only, and judged as every simulation is. Each task of the sealed run is done or in
	// quarantine, none that no run holds is, in mode once each is recorded once, and it is all over in
	// time. hits are what must have been counted in it; none: the faults themselves.
	plan     string
	onlyOnce bool
	// onlyPlain: it is played in at-least-once only.
	onlyPlain bool
	hits      []string
	// open: a processor dies, or loses its lease, with tasks in hand. Effects outside may then be
	// repeated in mode once too. Those of a reducer may not, so a reducer is played as well. In all
	// other windows nothing is done twice in mode once.
	open bool
	// many: how often depends on more than the plan, so that only "at all" is said.
	many bool

	// play are tests of this package that hit it and say so by windowHit.
	play []func(*testing.T)
	// tests are others that guard it: "package.Name".
	tests []string
}

// windowBase is the world that plans of windows add to.
const windowBase = `
accounts 2
queues 2
tasks 160
keys 40
pack 4
pace 8s
handlers 4
work 400ms
trouble 0
visibility 15s
0.1s start d1
0.2s start p1
`

// windowHits are what tests have counted by windowHit, by name.
var windowHits = struct {
	sync.Mutex
	of map[string]int
}{of: map[string]int{}}

// windowHit notes in a test that it hit its window n times.
func windowHit(t *testing.T, n int) {
	windowHits.Lock()
	defer windowHits.Unlock()
	windowHits.of[t.Name()] += n
}

// W1 of origins: every window, each message that is lost, and each crash between two steps is
// hit on the real code; a counter proves it. The hits are written down in docs/reports/windows.md.
func TestWindows(t *testing.T) {
	proof.Only(t)
	var table bytes.Buffer
	for _, row := range windowRows {
		var hits, came []string
		t.Run(row.number, func(t *testing.T) { hits, came = row.run(t) })
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s |\n", row.number, row.window, row.done, row.by(), strings.Join(hits, ", "), strings.Join(came, "; "))
	}
	if t.Failed() {
		return
	}
	const file = "../../docs/reports/windows.md"
	made := slices.Concat([]byte(windowsHead), table.Bytes())
	if *windowsWrite {
		must(t, os.WriteFile(file, made, 0o644))
		return
	}
	if there, err := os.ReadFile(file); err != nil || !bytes.Equal(withoutNumbers(there), withoutNumbers(made)) {
		t.Errorf("%s is not what the tests give: run `make windows` (%v)", file, err)
	}
}

// withoutNumbers leaves of what came of a window only whether there was any: how many tasks were
// on their way in that moment changes with whatever changes the time that anything takes.
func withoutNumbers(text []byte) []byte { return someTasks.ReplaceAll(text, []byte("some $1")) }

var someTasks = regexp.MustCompile(`[1-9]\d* (done again|handled again|recognised)`)

// by names the tests that hit a window.
func (r *windowRow) by() string {
	var names []string
	if r.plan != "" {
		names = append(names, "TestWindows/"+r.number)
	}
	for _, p := range r.play {
		names = append(names, testName(p))
	}
	names = append(names, r.tests...)
	for i, name := range names {
		names[i] = "`" + strings.TrimPrefix(name, "worlds.") + "`"
	}
	return strings.Join(names, ", ")
}

const windowsHead = `# Windows of vulnerability, and what hits them

Made by ` + "`make windows`" + `; ` + "`make verify`" + ` fails when it is not what the tests give. The
numbers are those of [protocols.md](../protocols.md#windows-of-vulnerability). A to D are the four
messages of get, process and delete that can be lost (origins W1). Then come the crashes between any
two steps of a distributor and of a processor.

` + "`TestWindows/N`" + ` plays a whole pump (two accounts, distributors, processors, 160 tasks) on the real
code in which that goes wrong. The test fails unless afterwards

- each task of the sealed run was done or is in quarantine,
- no task was done that no run holds,
- in delivery mode once the ledger has each task once,
- and all is over within a bounded time.

"Hits" are how often the window was met; a test fails when it was not. "What came of it" counts the
tasks whose effect was repeated and the copies that the ledger recognised, when the table was made.
Where a process dies, or loses its lease, with tasks in hand, effects outside may be repeated in
mode once as well: a world with a reducer is played there, whose state must be exact. The other
tests named guard the same window by other means.

| # | window | what is done | hit by | hits | what came of it |
|---|---|---|---|---|---|
`

// windowWorld is a kind of world that a row's plan is played in.
type windowWorld struct {
	name, settings string
	once           bool
}

func (r *windowRow) worlds() (list []windowWorld) {
	if r.plan == "" {
		return nil
	}
	if !r.onlyOnce {
		list = append(list, windowWorld{"at-least-once", "delivery at-least-once", false})
	}
	if r.onlyPlain {
		return list
	}
	list = append(list, windowWorld{"once", "delivery once", true})
	if r.open && !strings.Contains(r.plan, "results yes") { // a reducer has none
		list = append(list, windowWorld{"reducer", "delivery once\nreducer yes", true})
	}
	return list
}

// run plays a row and says how often it was hit, and what came of it.
func (r *windowRow) run(t *testing.T) (hits, came []string) {
	for _, name := range r.tests {
		requireTest(t, name)
	}
	for _, world := range r.worlds() {
		t.Run(world.name, func(t *testing.T) {
			plan, err := parseSimPlan(windowBase + r.plan + "\n" + world.settings)
			must(t, err)
			w := playSim(t, plan)
			failOnSim(t, w)
			if world.once && !r.open && w.judge.repeated > 0 {
				t.Errorf("%d tasks were done again in mode once", w.judge.repeated)
			}
			hits = append(hits, r.count(t, w)+" "+world.name)
			came = append(came, world.name+": "+world.cameOf(w))
		})
	}
	for _, play := range r.play {
		name := testName(play)
		n := windowHitsWithin(name) // it may have been run before this one
		if n == 0 {
			within := ""
			t.Run(name, func(t *testing.T) { within = t.Name(); play(t) })
			n = windowHitsWithin(within)
		}
		hits = append(hits, r.times(t, n))
	}
	return hits, came
}

// cameOf says what came of a plan, for people.
func (world windowWorld) cameOf(w *simWorld) string {
	again, n := "none done again", w.judge.repeated
	switch {
	case w.plan.reducer && n > 0:
		again = fmt.Sprint("the state is exact, ", n, " handled again")
	case w.plan.reducer:
		again = "the state is exact"
	case n > 0:
		again = fmt.Sprint(n, " done again")
	}
	if n := w.counts["duplicates recognised"]; world.once && n > 0 {
		again += fmt.Sprintf(", %d recognised", n)
	}
	return again
}

// count is how often the window was hit in a world.
func (r *windowRow) count(t *testing.T, w *simWorld) string {
	t.Helper()
	n := 0
	if len(r.hits) == 0 {
		for _, f := range w.faults {
			if f.Hits() == 0 {
				t.Errorf("nothing went wrong by %v", f)
			}
			n += int(f.Hits())
		}
	}
	for _, what := range r.hits {
		if w.counts[what] == 0 {
			t.Errorf("there was no %q; there were %v", what, w.counts)
		}
		n += w.counts[what]
	}
	return r.times(t, n)
}

func (r *windowRow) times(t *testing.T, n int) string {
	t.Helper()
	if n == 0 && !t.Failed() {
		t.Error("the window was not hit")
	}
	if r.many {
		return "some"
	}
	return fmt.Sprint(n)
}

// windowHitsWithin takes what a test and those within it have counted.
func windowHitsWithin(test string) (n int) {
	windowHits.Lock()
	defer windowHits.Unlock()
	for name, times := range windowHits.of {
		if name == test || strings.HasPrefix(name, test+"/") {
			n += times
			delete(windowHits.of, name)
		}
	}
	return n
}

// testName is the name of a test function.
func testName(test func(*testing.T)) string {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// testFolders is where the tests of a package are.
var testFolders = map[string]string{
	"worlds": ".", "closing": "../internal/closing", "quarantine": "../quarantine",
	"record": "../processor/internal/record", "settle": "../processor/internal/settle", "trial": "../processor/internal/trial", "processor": "../processor", "distributor": "../distributor", "source": "../source",
	"row": "../internal/row", "election": "../internal/election", "cluster": "../internal/cluster", "ledger": "../internal/ledger",
	"codec": "../../codec", "azure": "../storage/azure", "storagetest": "../storage/storagetest", "azsim": "../../loadtest/azsim",
}

// requireTest makes sure that a test that is named is there.
func requireTest(t *testing.T, name string) {
	t.Helper()
	pack, test, _ := strings.Cut(name, ".")
	files, err := filepath.Glob(filepath.Join(testFolders[pack], "*_test.go"))
	if err != nil || testFolders[pack] == "" {
		t.Fatalf("no tests of package %q: %v", pack, err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(\w+ \*testing\.[TF]\)`)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && declared.Match(text) {
			return
		}
	}
	t.Errorf("there is no test %s", name)
}
