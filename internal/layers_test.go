package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/testbuf"
)

// must ends a test with an error.
var must = testbuf.Must

const module = "github.com/queuepump/queuepump/"

// levels are the packages in the order in which they stand on each other: a package imports those
// of lower levels only. A name that ends in a slash stands for all packages below that folder.
var levels = map[string]int{
	"codec":                         0,
	"internal":                      0,
	"internal/alloctest":            0,
	"internal/awake":                0,
	"internal/docscheck":            0,
	"internal/group":                0,
	"internal/journald":             0,
	"internal/look":                 0,
	"internal/jsonline":             0,
	"internal/mutants":              0,
	"internal/redact":               0,
	"internal/packaging":            0,
	"internal/logs":                 0,
	"internal/telemetry":            1,
	"internal/testbuf":              0,
	"internal/upkeep":               0,
	"internal/verify":               0,
	"loadtest/azsim":                0,
	"loadtest/azsim/internal/draw":  -1,
	"loadtest/azsim/internal/order": -1,
	"pump/internal/grace":           0,
	"pump/internal/inputtest":       1,

	"pump/loop":                         0,
	"pump/prices":                       0,
	"pump/internal/operations":          2,
	"pump/waiting":                      0,
	"pump/internal/rounds":              0,
	"pump/storage":                      0,
	"shardmap":                          0,
	"internal/foreign":                  1,
	"internal/generate":                 1,
	"internal/mutants/overlay":          1,
	"internal/tables":                   1,
	"loadtest/report":                   1,
	"internal/packaging/build":          1,
	"internal/packaging/lifecycle":      1,
	"loadtest/simserver":                1,
	"pump/internal/row":                 1,
	"pump/internal/tombstone":           1,
	"pump/storage/azure":                1,
	"pump/storage/storagetest":          1,
	"loadtest/realaccounts":             2,
	"pump/internal/backoff":             2,
	"pump/internal/faketable":           2,
	"pump/internal/rowtest":             2,
	"pump/internal/workload":            2,
	"pump/internal/failure":             3,
	"pump/internal/cluster":             3,
	"pump/internal/election":            3,
	"pump/internal/history":             3,
	"pump/coordination":                 4,
	"pump/internal/ledger":              4,
	"pump/internal/quota":               4,
	"pump/internal/deletion":            5,
	"pump/internal/sim":                 7,
	"pump":                              6,
	"pump/internal/nudgetest":           7,
	"pump/internal/money":               7,
	"pump/internal/reason":              7,
	"pump/internal/tracing":             7,
	"pump/nudge":                        7,
	"pump/source":                       7,
	"pump/internal/nudging":             8,
	"pump/internal/queues":              8,
	"pump/internal/reading":             8,
	"pump/distributor/internal/pack":    9,
	"pump/internal/closing":             9,
	"pump/internal/setup":               9,
	"pump/internal/member":              9,
	"pump/internal/testworld":           10,
	"pump/processor/internal/claim":     9,
	"pump/processor/internal/message":   9,
	"pump/distributor/internal/send":    10,
	"internal/capacity":                 10,
	"pump/gates":                        10,
	"pump/internal/sampling":            10,
	"pump/processor/internal/leases":    10,
	"pump/processor/internal/ownership": 10,
	"pump/quarantine":                   10,
	"pump/reduce":                       10,
	"pump/accounts":                     11,
	"pump/processor/internal/backlog":   11,
	"pump/processor/internal/base":      11,
	"pump/runs":                         11,
	"pump/peek":                         11,
	"pump/processor/internal/record":    12,
	"pump/status":                       12,
	"pump/workloads":                    12,
	"pump/doctor":                       13,
	"pump/processor/internal/poll":      13,
	"pump/processor/internal/trial":     13,
	"pump/processor/internal/settle":    14,
	"pump/distributor":                  16,
	"pump/processor":                    16,
	"internal/page":                     16,
	"internal/admin":                    17,
	"pump/metrics":                      17,
	"internal/configfile":               17,
	"internal/handlers":                 17,
	"internal/handlers/count":           17,
	"internal/renew":                    17,
	"loadtest/scenario":                 17,
	"pump/worlds":                       17,
	"internal/cli":                      18,
	"internal/top":                      19,
	"internal/service":                  18,
	"pump/internal/processtest":         18,
	"bench":                             19,
	"internal/operate":                  20,
	"internal/sourceflags":              19,
	"loadtest":                          19,
	"cmd/":                              21,
}

// besides are imports of the same level: who may import what.
var besides = map[[2]string]bool{
	{"internal/admin", "pump/metrics"}: true,
}

// TestImportsRunDown holds the walls of the house: the compiler refuses cycles, this test also
// refuses an import that runs up. See Layout in docs/design.md.
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
	if seen < len(levels)/2 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

// climbs names the imports of a package that do not run down.
func climbs(from string, imports []string) (problems []string) {
	level, ok := levelOf(from)
	if !ok {
		return []string{from + " has no level: give it one, above all that it imports"}
	}
	for _, path := range imports {
		to, ours := strings.CutPrefix(path, module)
		if !ours {
			continue
		}
		if under, ok := levelOf(to); ok && under >= level && !besides[[2]string{from, to}] {
			problems = append(problems, from+" imports "+to+", which does not stand below it")
		}
	}
	return problems
}

func levelOf(name string) (int, bool) {
	if level, ok := levels[name]; ok {
		return level, true
	}
	folder, _, _ := strings.Cut(name, "/")
	level, ok := levels[folder+"/"]
	return level, ok
}

// The rule itself: what it refuses.
func TestAnImportThatRunsUpIsRefused(t *testing.T) {
	for _, c := range []struct {
		from, to string
		refused  bool
	}{
		{"pump", "pump/internal/ledger", false},
		{"pump/internal/row", "pump/storage", false},
		{"pump/internal/row", "pump/internal/workload", true},
		{"pump/internal/ledger", "pump", true},
		{"pump/internal/election", "pump/internal/cluster", true},
		{"loadtest/azsim", "codec", true},
		{"pump/processor", "pump/distributor", true},
		{"pump/distributor", "pump/processor", true},
		{"pump/runs", "pump/distributor", true},
		{"pump/status", "pump/accounts", false},
		{"pump/internal/unheard", "codec", true},
	} {
		if got := len(climbs(c.from, []string{"fmt", module + c.to})) > 0; got != c.refused {
			t.Errorf("%s imports %s: refused %v", c.from, c.to, got)
		}
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
