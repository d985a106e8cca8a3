package proof

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	seedsFlag = flag.Int(
		"mutants.seeds", 0,
		"how many seeds may be played to find a mutant; 0: as many as the package says",
	)
	onlyFlag = flag.String("mutants.only", "",
		"play only the mutants with these names, separated by commas")
	byFlag = flag.String("mutants.by", "",
		"search in this way, whatever the list says; nothing is written")
	alsoFlag  = flag.Bool("mutants.also", false, "search by second finders only")
	writeFlag = flag.Bool("mutants.write", false, "count the seeds anew and write "+report)
)

// Hunt says how a package searches for its mutants.
type Hunt struct {
	Title string // of the package's part of the report
	Text  string // how the package searches, in lines; "" where tests of its own find all
	Seeds int    // how many may be played to find a mutant

	// Ways are what plays one seed, by the name that the list has after "found by". They return
	// what was wrong first, or "". Those of several seeds run at the same time.
	Ways map[string]func(t *testing.T, seed uint64) (wrong string)

	// Kinds are the Ways that play only a part of all worlds; the report says which part.
	Kinds map[string]string

	// Counted says for a way how many seeds are played to count the seeds that find a mutant, if the
	// way is the mutant's second finder. They are only counted when the report is written.
	Counted map[string]int

	// Files are what plays a file of testdata, by the ending of its name.
	Files map[string]func(t *testing.T, text string) (wrong string)
}

// ownTries is how often a test may pass with its mutant before the mutant counts as not found: the
// runtime draws at random which goroutine of a bubble goes first, and some mistakes show in one
// order only.
const ownTries = 3

// report is where the report stands, with a part for each package.
const report = "docs/reports/mutants.md"

// Find plays each mutant that the list of the package under test has, and fails if something is not
// found. It skips in a build without mutants. It calls t.Run and must not run beside other tests.
// Unless -mutants.write is set, the seed that found a mutant for the report is played first.
func Find(t *testing.T, h Hunt) {
	if !built {
		t.Skip("the mutants are not in this build: make mutants")
	}
	root, err := Root()
	Must(t, err)
	here, err := os.Getwd()
	Must(t, err)
	folder, err := filepath.Rel(root, here)
	Must(t, err)
	all, err := ReadAll(root)
	Must(t, err)
	if *seedsFlag > 0 {
		h.Seeds = *seedsFlag
	}
	p := readPage(filepath.Join(root, report), h.Title)
	for i := range all {
		m := &all[i]
		if *onlyFlag != "" && !slices.Contains(strings.Split(*onlyFlag, ","), m.Name) {
			continue
		}
		here := m.Folder == filepath.ToSlash(folder)
		if here && !*alsoFlag && (*byFlag == "" || m.Also == "") {
			h.find(t, m, cmp.Or(*byFlag, m.FoundBy), p.rows)
		}
		if h.Ways[m.Also] != nil {
			h.find(t, m, cmp.Or(*byFlag, m.Also), p.also)
		}
	}
	if *writeFlag && *byFlag == "" {
		p.write(t, h.Text, filepath.ToSlash(folder), all)
	}
}

// find plays what must find a mutant, and fails if that does not.
func (h *Hunt) find(t *testing.T, m *Mutant, how string, rows map[string][2]string) {
	by, wrong := h.search(t, m, how, seedOf(rows[m.What]))
	if wrong == "" {
		t.Errorf("%s: %s: not found by %s", m, m.What, by)
		return
	}
	if n := h.Counted[how]; n > 0 && how == m.Also && *writeFlag {
		by += h.count(t, m, how, n)
	}
	t.Logf("%-24s %-30s %.200s", m.Name, by, wrong)
	rows[m.What] = [2]string{
		by,
		strings.ReplaceAll(strings.ReplaceAll(fmt.Sprintf("%.160s", wrong), "|", "/"), "\n", " "),
	}
}

// count says how many of the first seeds find a mutant.
func (h *Hunt) count(t *testing.T, m *Mutant, how string, seeds int) string {
	plant(m.Name)
	defer plant("")
	found := 0
	batch := runtime.GOMAXPROCS(0)
	for from := 0; from < seeds; from += batch {
		found += len(playSeeds(t, m.Name, uint64(from), uint64(min(batch, seeds-from)), h.Ways[how]))
	}
	return fmt.Sprintf("; %d of the first %d", found, seeds)
}

// search plays what must find a mutant, and tells what was wrong first. It tries the seed that is
// known to find the mutant before any other.
func (h *Hunt) search(t *testing.T, m *Mutant, how string, known uint64) (by, wrong string) {
	if play := h.Files[path.Ext(how)]; play != nil {
		text, err := os.ReadFile(filepath.Join("testdata", how))
		if err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		plant(m.Name)
		defer plant("")
		return how, play(t, string(text))
	}
	if strings.Contains(how, "Test") {
		by = fmt.Sprintf("`%s`", how)
		for range ownTries {
			if wrong = ownTest(t, m); wrong != "" {
				break
			}
			t.Logf("%s: %s passed with the mutant", m, by)
		}
		return by, wrong
	}
	play := h.Ways[how]
	if play == nil {
		t.Fatalf(
			"%s is found by %q: this package has only %q, files of testdata and tests", m,
			how, slices.Sorted(maps.Keys(h.Ways)),
		)
	}
	plant(m.Name)
	defer plant("")
	if known > 0 && !*writeFlag && known <= uint64(h.Seeds) {
		wrong := playSeeds(t, m.Name, known-1, 1, play)[known-1]
		if wrong != "" && innocent(t, m, how, known-1, play) {
			return h.took(how, known-1), wrong
		}
	}
	batch := uint64(runtime.GOMAXPROCS(0))
	for from := uint64(0); from < uint64(h.Seeds); from += batch {
		wrong := playSeeds(t, m.Name, from, batch, play)
		for _, seed := range slices.Sorted(maps.Keys(wrong)) {
			if innocent(t, m, how, seed, play) {
				return h.took(how, seed), wrong[seed]
			}
		}
	}
	return fmt.Sprintf("%d seeds of %s", h.Seeds, how), ""
}

// took tells that a seed found a mutant.
func (h *Hunt) took(how string, seed uint64) string {
	if kind, ok := h.Kinds[how]; ok {
		return fmt.Sprintf("%d of %s", seed+1, kind)
	}
	return fmt.Sprint(seed + 1)
}

// innocent reports whether a seed shows nothing wrong without the mutant; else it has found
// something else.
func innocent(
	t *testing.T, m *Mutant, how string, seed uint64, play func(*testing.T, uint64) string,
) bool {
	plant("")
	defer plant(m.Name)
	wrong := playSeeds(t, m.Name+", not built in", seed, 1, play)[seed]
	if wrong != "" {
		t.Logf("seed %d of %s shows something wrong without any mutant: %.200s", seed, how, wrong)
	}
	return wrong == ""
}

// playSeeds plays several seeds at once and gives what was wrong, by seed.
func playSeeds(
	t *testing.T, name string, from, n uint64, play func(*testing.T, uint64) string,
) map[uint64]string {
	var mu sync.Mutex
	wrong := map[uint64]string{}
	t.Run(name, func(t *testing.T) {
		for seed := from; seed < from+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if first := play(t, seed); first != "" {
					mu.Lock()
					defer mu.Unlock()
					wrong[seed] = first
				}
			})
		}
	})
	return wrong
}

// ownTest runs a test of this binary, or of the package before the dot, in a process of its own in
// which the mutant is at work, and gives the first thing that it said when it failed.
func ownTest(t *testing.T, m *Mutant) (wrong string) {
	binary, err := os.Executable()
	Must(t, err)
	cmd := exec.CommandContext(
		t.Context(), binary, "-test.run", "^"+m.FoundBy+"$", "-test.count", "1", "-test.timeout",
		"5m",
	)
	if folder, test, other := strings.Cut(m.FoundBy, "."); other {
		cmd = exec.CommandContext(t.Context(), "go", "test", "-overlay", "out/mutants/overlay.json",
			"-run", "^"+test+"$", "-count", "1", "-timeout", "5m", "./"+folder)
		cmd.Dir, err = Root()
		Must(t, err)
	}
	cmd.Env = append(os.Environ(), environment+"="+m.Name)
	out, err := cmd.CombinedOutput()
	if regexp.MustCompile(`no tests to run|\[(build|setup) failed\]`).Match(out) {
		t.Fatalf("%s: the test %s did not run: %s", m, m.FoundBy, out)
	}
	if err == nil {
		return ""
	}
	if first := regexp.MustCompile(`(?m)^(?:\s+\S+_test\.go:\d+: |panic: )(.+)$`).
		FindSubmatch(out); first != nil {
		return string(first[1])
	}
	return err.Error()
}
