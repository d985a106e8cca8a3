package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

const module = "github.com/queuepump/queuepump/"

// levels are the packages from the ground up. A package imports only what stands before it, in its
// level or in one below. Nothing imports the proof.
var levels = []struct {
	name     string
	packages []string
}{
	{"storage", []string{
		"codec", "shardmap", "pump/storage", "pump/storage/storagetest", "internal/upkeep",
		"internal/through", "internal/group", "internal/jsonline", "internal/logs", "pump/storage/azure",
	}},
	{"words", []string{
		"pump", "pump/source", "internal/taskline",
	}},
	{"rows", []string{
		"pump/internal/waits", "pump/internal/row", "pump/internal/workload",
		"pump/internal/failure", "pump/internal/results",
	}},
	{"cluster", []string{
		"pump/internal/election", "pump/internal/cluster",
	}},
	{"ledger", []string{
		"pump/internal/ledger", "pump/internal/sim", "pump/coordination",
	}},
	{"requests", []string{
		"pump/internal/queues", "pump/internal/tracing", "pump/nudge", "pump/internal/nudging",
		"pump/internal/bodies", "pump/internal/member", "pump/internal/setup",
		"pump/internal/sampling",
		"pump/internal/closing",
	}},
	{"halves", []string{
		"pump/runs", "pump/distributor/internal/pack", "pump/distributor/internal/send",
		"pump/distributor/internal/due",
		"pump/distributor", "pump/processor/internal/leases", "pump/processor/internal/message",
		"pump/reduce", "pump/processor/internal/base", "pump/processor/internal/record",
		"pump/processor/internal/poll", "pump/processor/internal/trial",
		"pump/processor/internal/settle", "pump/processor",
	}},
	{"operators", []string{
		"pump/accounts", "pump/workloads", "pump/quarantine", "pump/gates", "pump/status",
		"pump/doctor", "pump/metrics",
	}},
	{"binaries", []string{
		"internal/capacity", "internal/configfile", "internal/admin", "internal/handlers",
		"internal/service", "internal/serve", "internal/cli", "internal/telemetry", "internal/operate",
		"cmd/distributor", "cmd/processor",
	}},
	{"proof", []string{
		"internal", "internal/proof", "internal/mutants/overlay", "internal/packaging", "internal/packaging/build",
		"internal/packaging/service", "pump/internal/processtest", "pump/worlds",
		"loadtest/azsim", "pump/internal/testkit", "pump/internal/testworld", "loadtest/report",
		"loadtest/realaccounts", "loadtest/scenario", "loadtest/simserver", "loadtest/azsim/cmd/azsim",
		"loadtest", "bench", "pump/pumptest",
	}},
}

// TestImportsRunDown holds the walls of the house: the compiler refuses cycles, this test also
// refuses an import that runs up. See "Where to look" in docs/design.md.
func TestImportsRunDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "../...").Output()
	must(t, err)
	seen := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; seen++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, problem := range climbs(strings.TrimPrefix(p.ImportPath, module), p.Imports) {
			t.Error(problem)
		}
	}
	if seen < 60 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

// places are where the packages stand, counted from the ground; the proof's begin at proof.
func places() (at map[string]int, proof int) {
	at = map[string]int{}
	for _, level := range levels {
		if level.name == "proof" {
			proof = len(at)
		}
		for _, name := range level.packages {
			at[name] = len(at)
		}
	}
	return at, proof
}

// climbs names the imports of a package that do not run down.
func climbs(from string, imports []string) (problems []string) {
	at, proof := places()
	place, ok := at[from]
	if !ok {
		return []string{from + " has no level: give it one, behind all that it imports"}
	}
	for _, path := range imports {
		to, ours := strings.CutPrefix(path, module)
		under, known := at[to]
		half := strings.HasPrefix(from, "pump/processor") && strings.HasPrefix(to, "pump/distributor")
		if ours && (!known || half || under >= place || under >= proof && place < proof) {
			problems = append(problems, from+" imports "+to+", which does not stand below it")
		}
	}
	return problems
}

// The rule itself: what it refuses.
func TestAnImportThatRunsUpIsRefused(t *testing.T) {
	for _, c := range []struct {
		from, to string
		refused  bool
	}{
		{"pump", "pump/internal/ledger", true},
		{"pump", "pump/storage", false},
		{"pump/internal/row", "pump/storage", false},
		{"pump/internal/row", "pump/internal/workload", true},
		{"pump/internal/ledger", "pump", false},
		{"pump/internal/election", "pump/internal/cluster", true},
		{"loadtest/azsim", "codec", false},
		{"pump/status", "loadtest/azsim", true},
		{"pump/processor", "pump/distributor", true},
		{"pump/distributor", "pump/processor", true},
		{"pump/runs", "pump/distributor", true},
		{"pump/status", "pump/accounts", false},
		{"pump/internal/unheard", "codec", true},
	} {
		proof.Same(t, len(climbs(c.from, []string{"fmt", module + c.to})) > 0, c.refused,
			c.from, "imports", c.to, "refused")
	}
}

// drawn is a package for plots, pictures, fonts, PDF or formulas, by a word of its path.
var drawn = regexp.MustCompile(`(^|[/._-])(plot|plotter|charts?|vg|svgo?|gg|f?pdf|fonts?|liberation|freetype|latex|image)($|[/._-])`)

// TestTheBinariesAreBuiltWithoutDrawing holds what a first `make run` waits for: browsers draw the
// plots.
func TestTheBinariesAreBuiltWithoutDrawing(t *testing.T) {
	if found := drawing(t, "../cmd/...", "../loadtest"); len(found) > 0 {
		t.Errorf("the binaries are built with %s", strings.Join(found, ", "))
	}
	for _, path := range []string{"gonum.org/v1/plot/vg", "codeberg.org/go-pdf/fpdf", "golang.org/x/image/font"} {
		if !drawn.MatchString(path) {
			t.Errorf("%s would not be found", path)
		}
	}
}

// drawing lists the packages for drawing, not of the standard library, that packages are built
// with.
func drawing(t *testing.T, packages ...string) (found []string) {
	t.Helper()
	args := append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)
	out, err := exec.Command("go", args...).Output()
	must(t, err)
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); drawn.MatchString(path) {
			found = append(found, path)
		}
	}
	return found
}

// TestMovedTestsAreWhereTheTableSays holds that no test was lost when it was moved or renamed.
func TestMovedTestsAreWhereTheTableSays(t *testing.T) {
	text, err := os.ReadFile("testdata/tests_moved.txt")
	must(t, err)
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		_, now, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		folder, name, _ := strings.Cut(now, ".")
		if !known[folder] {
			known[folder] = true
			files, err := filepath.Glob("../" + folder + "/*_test.go")
			must(t, err)
			for _, file := range files {
				text, err := os.ReadFile(file)
				must(t, err)
				for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
					known[folder+"."+f[1]] = true
				}
			}
		}
		if !known[folder+"."+name] {
			t.Errorf("there is no %s", now)
		}
	}
	if len(known) < 300 {
		t.Errorf("only %d tests are known", len(known))
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
