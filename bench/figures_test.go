package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/proof"
)

var (
	figuresFlag = flag.String("figures", "", "say what the benchmarks of this file come to")
	oldFlag     = flag.String("figures.old", "", "and what those of an older file came to")
	writeFlag   = flag.Bool("figures.write", false, "and write it into the documents")
)

// results are what benchmarks printed, a value for each round.
type results struct {
	config map[string]string // lines "key: value"
	names  []string          // of benchmarks, in the order of the first round
	values map[string]map[string][]float64
}

// readResults reads the format of `go test -bench`. Of the configuration the first of a key counts.
func readResults(r io.Reader) (*results, error) {
	rs := &results{config: map[string]string{}, values: map[string]map[string][]float64{}}
	part := "" // the package, without the module and if it is another
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if lines.Text() == "FAIL" {
			return nil, errors.New("a benchmark has failed")
		}
		if key, value, ok := strings.Cut(lines.Text(), ": "); ok && !strings.ContainsAny(key, " \t") {
			rs.config[key] = cmp.Or(rs.config[key], strings.TrimSpace(value))
			if in, found := strings.CutPrefix(lines.Text(), "pkg: github.com/queuepump/queuepump/"); found {
				part = strings.TrimPrefix(in+" ", "bench ")
			}
		}
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := part + strings.TrimPrefix(fields[0], "Benchmark")
		if rs.values[name] == nil {
			rs.names, rs.values[name] = append(rs.names, name), map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rs.values[name][fields[i+1]] = append(rs.values[name][fields[i+1]], v)
		}
	}
	if len(rs.names) == 0 {
		var names []string
		for _, w := range ways {
			names = append(names, w.name)
		}
		return nil, fmt.Errorf("nothing was measured: ONLY is some of %s", strings.Join(names, "|"))
	}
	return rs, nil
}

// of is what the rounds said of a way.
func (rs *results) of(way, unit string) []float64 { return rs.values["Way/"+way][unit] }

// ratio is the median over the rounds of what they said of one way, divided by what they said of
// another.
func (rs *results) ratio(way, other, unit string) (v float64) {
	var values []float64
	a, b := rs.of(way, unit), rs.of(other, unit)
	for i := range min(len(a), len(b)) {
		values = append(values, a[i]/b[i])
	}
	return median(values)
}

// median is the middle value, of an even number the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// figure is one of the numbers that the pump is held to, or that stand beside them.
type figure struct {
	what    string
	value   float64
	unit    string
	atLeast float64 // 0: no bound
	atMost  float64
	aim     float64 // what is wanted beyond the bound; 0: nothing
	brief   bool    // README.md has it
}

// figures are computed from what was measured; those for which it was not measured are left out.
// One task a message may cost 15 % more than with the rival, and as much is the aim: of the
// transports only net/http keeps the contract of package storage (each call is one request, answers
// are bounded, contexts end them), so the requests cost what the rival's cost, and the pump has to
// keep leases and owners besides.
func (rs *results) figures() []figure {
	cpu := "cpu-ns/task"
	mostOf := func(unit string) float64 {
		return slices.Max(append(slices.Concat(rs.of("File", unit), rs.of("FileOnce", unit)), 0))
	}
	all := []figure{
		{
			"results written to a file: tasks per CPU-second of both binaries beside azqueue's, a message a task",
			rs.ratio("Rival", "File", cpu), "x", 50, 0, 60, true,
		},
		{"the same with a handler in Go that reads each task", rs.ratio("Rival", "Handler", cpu), "x", 55, 0, 0, true},
		{
			"that handler: CPU per task, beside bare gzip, base64, gunzip of the same bytes by the same library and level",
			rs.ratio("Handler", "Floor", cpu), "x", 0, 4.2, 0, false,
		},
		{"requests per thousand tasks", median(rs.of("Handler", "requests/ktask")), "", 0, 2.5, 0, true},
		{
			"`once` beside at-least-once: throughput of the processor",
			rs.ratio("FileOnce", "File", "back-tasks/s"), "x", 0.9, 0, 0, true,
		},
		{"`once` beside at-least-once: CPU of the processor", rs.ratio("FileOnce", "File", "back-cpu-ns"), "x", 0, 1.15, 0, false},
		{
			"messages per CPU-second beside azqueue's, with one task a message",
			rs.ratio("Rival", "OneAMessage", cpu), "x", 1 / 1.15, 0, 1, true,
		},
		{"most memory of a processor that writes results", mostOf("back-MiB"), "MiB", 0, 192, 0, true},
		{"most memory of a distributor", mostOf("out-MiB"), "MiB", 0, 256, 0, false},
		{number(median(rs.of("File", "tasks"))) + " tasks through a distributor on one core", median(rs.of("File", "out-tasks/s")), "tasks/s", 0, 0, 0, true},
		{"the same through a processor on one core", median(rs.of("File", "back-tasks/s")), "tasks/s", 0, 0, 0, true},
	}
	return slices.DeleteFunc(all, func(f figure) bool { return f.value == 0 })
}

// kept reports whether the figure keeps to its bound. Both are judged as they are shown.
func (f figure) kept() bool {
	v := shown(f.value)
	return (f.atLeast == 0 || v >= shown(f.atLeast)) && (f.atMost == 0 || v <= f.atMost)
}

// wanted is the bound of a figure, and that it is missed if it is.
func (f figure) wanted() (text string) {
	switch {
	case f.atLeast != 0:
		text = "at least " + number(f.atLeast)
	case f.atMost != 0:
		text = "at most " + number(f.atMost)
	}
	if f.aim != 0 {
		text += ", aim " + number(f.aim)
	}
	if !f.kept() {
		text += ": **missed**"
	}
	return text
}

func (f figure) String() string { return strings.TrimSpace(number(f.value) + " " + f.unit) }

// shown is v as it is printed: with three significant digits, and whole from 100 on.
func shown(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow10(max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0))
	return math.Round(v*scale) / scale
}

// number prints v as shown: 0.0123, 1.23, 12.3, 123, 1,234,567.
func number(v float64) string {
	if v = shown(v); math.Abs(v) >= 1000 {
		return humanize.Comma(int64(v))
	}
	return fmt.Sprintf("%g", v)
}

// table is one of Markdown.
func table(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// summary is the table of figures; a brief one is for README.md.
func (rs *results) summary(brief bool) string {
	rows := [][]string{{"what", "result", "wanted"}}
	for _, f := range rs.figures() {
		if f.brief || !brief {
			rows = append(rows, []string{f.what, f.String(), f.wanted()})
		}
	}
	if brief {
		for i := range rows {
			rows[i] = rows[i][:2]
		}
	}
	return table(rows...)
}

// beside is the table of figures with those of older results, of other sources.
func (rs *results) beside(older *results) string {
	same := older != nil && older.config["commit"] == rs.config["commit"] && !strings.HasSuffix(rs.config["commit"], " with changes")
	if older == nil || same {
		return rs.summary(false)
	}
	was := map[string]string{}
	for _, f := range older.figures() {
		was[f.what] = f.String()
	}
	rows := [][]string{{"what", "result", "wanted", older.config["date"] + ", " + older.config["commit"]}}
	for _, f := range rs.figures() {
		rows = append(rows, []string{f.what, f.String(), f.wanted(), was[f.what]})
	}
	return table(rows...)
}

// medians is a table of benchmarks whose names begin so, with the units that they have.
func (rs *results) medians(has func(name string) bool) string {
	var units []string
	names := slices.DeleteFunc(slices.Clone(rs.names), func(n string) bool { return !has(n) })
	if len(names) == 0 {
		return ""
	}
	for _, name := range names {
		for unit := range rs.values[name] {
			if !slices.Contains(units, unit) {
				units = append(units, unit)
			}
		}
	}
	slices.Sort(units)
	rows := [][]string{append([]string{"benchmark"}, units...)}
	for _, name := range names {
		row := []string{strings.TrimPrefix(name, "Way/")}
		for _, unit := range units {
			text := ""
			if v := median(rs.values[name][unit]); v != 0 {
				text = number(v)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return table(rows...)
}

func isWay(name string) bool { return strings.HasPrefix(name, "Way/") }

// provenance is what stands above the figures.
func (rs *results) provenance() string {
	c := rs.config
	return fmt.Sprintf("`%s` on %s, %s cores, %s, %s,\ncommit %s, %s, load average before it %s;\nazqueue %s; %s; "+
		"the simulator answers after %d ms:\n\n", c["command"], c["cpu"], c["cores"], cmp.Or(c["system"], c["goos"]), c["go"], c["commit"], c["date"], c["load"], c["azqueue"],
		cmp.Or(c["placement"], "the client and the simulator have a core each"), latency.Milliseconds())
}

// entry is the part of RESULTS.md that shows the results, beside older ones.
func (rs *results) entry(older *results) string {
	note := strings.TrimSuffix(rs.config["note"], ".")
	if note != "" {
		note += ".\n\n"
	}
	return fmt.Sprintf("## %s, commit %s\n\n%s%s%s\nMedians of %d rounds. \"out\" is putting, or compressing; \"back\" is getting, handling and deleting, or decompressing.\n"+
		"Of File, which is both binaries, they are the processes from start to end. azqueue and the floor have their lines in memory;\nthe pump reads a file and looks for keys. Bodies are lines of %d bytes.\n\n%s\n%s",
		rs.config["date"], rs.config["commit"], note, rs.provenance(), rs.beside(older), rs.rounds(), lineBytes-1,
		rs.medians(isWay), rs.medians(func(name string) bool { return !isWay(name) }))
}

// rounds is how often the way was measured that was measured most.
func (rs *results) rounds() (n int) {
	for _, w := range ways {
		n = max(n, len(rs.of(w.name, "tasks")))
	}
	return n
}

// replaceBetween puts text between two lines of a document.
func replaceBetween(doc, begins, ends, text string) (string, error) {
	head, rest, ok := strings.Cut(doc, begins+"\n")
	_, tail, ends2 := strings.Cut(rest, ends+"\n")
	if !ok || !ends2 {
		return "", fmt.Errorf("there are no lines %q and %q", begins, ends)
	}
	return head + begins + "\n" + text + ends + "\n" + tail, nil
}

// documents are the files that have the results, as they are with them. An entry of the same commit
// that is the newest is replaced.
func (rs *results) documents(older *results) map[string]func(doc string) (string, error) {
	const begins, ends = "<!-- make bench -->", "<!-- end of make bench -->"
	return map[string]func(string) (string, error){
		"RESULTS.md": func(doc string) (string, error) {
			const first = "<!-- make bench puts its newest entry below -->\n"
			head, rest, ok := strings.Cut(doc, first)
			if !ok {
				return "", fmt.Errorf("there is no line %q", first)
			}
			newest, earlier, more := strings.Cut(strings.TrimLeft(rest, "\n"), "\n## ")
			if title, _, _ := strings.Cut(newest, "\n"); more && strings.HasSuffix(title, ", commit "+rs.config["commit"]) {
				rest = "\n## " + earlier
			}
			return head + first + "\n" + rs.entry(older) + rest, nil
		},
		"../docs/reports/performance.md": func(doc string) (string, error) {
			return replaceBetween(doc, begins, ends, rs.provenance()+rs.summary(false)+"\n"+rs.medians(isWay))
		},
		"../README.md": func(doc string) (string, error) {
			return replaceBetween(doc, begins, ends, fmt.Sprintf("CPU time of the client, tasks of 130 bytes, beside azqueue %s, a simulator that answers after\n"+
				"%d ms (%s, %s cores, commit %s;\n[all figures](docs/reports/performance.md)):\n\n%s", rs.config["azqueue"], latency.Milliseconds(),
				rs.config["cpu"], rs.config["cores"], rs.config["commit"], rs.summary(true)))
		},
	}
}

// TestFigures fails if what a whole `make bench` measured misses a bound. Fewer tasks or rounds only
// say that they do.
func TestFigures(t *testing.T) {
	if *figuresFlag == "" {
		t.Skip("nothing was measured: make bench")
	}
	read := func(file string) *results {
		text, err := os.ReadFile(file)
		must(t, err)
		rs, err := readResults(bytes.NewReader(text))
		must(t, err)
		return rs
	}
	rs := read(*figuresFlag)
	var older *results
	if *oldFlag != "" {
		older = read(*oldFlag)
	}
	fmt.Print(rs.entry(older))
	if !*writeFlag {
		return
	}
	for _, f := range rs.figures() {
		if !f.kept() {
			t.Errorf("%s: %v, wanted %s", f.what, f, f.wanted())
		}
	}
	text, err := os.ReadFile(*figuresFlag)
	must(t, errors.Join(err, os.WriteFile("results.txt", text, 0o644)))
	for file, change := range rs.documents(older) {
		old, err := os.ReadFile(file)
		must(t, err)
		text, err := change(string(old))
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		proof.Is(t, err, nil, file)
	}
}

const someResults = `commit: abc1234
note: nothing
cpu: one
BenchmarkWay/Rival  1  100 cpu-ns/task  10000 tasks
BenchmarkWay/File   1  1.5 cpu-ns/task  400 out-MiB  1000000 tasks  5 out-tasks/s
pkg: github.com/queuepump/queuepump/codec
BenchmarkOther-2    7  9 ns/op
pkg: github.com/queuepump/queuepump/bench
cpu: another
BenchmarkWay/Rival  1  300 cpu-ns/task  10000 tasks
BenchmarkWay/File   1  10 cpu-ns/task   600 out-MiB
`

func TestRatiosAreTakenWithinARoundAndJudged(t *testing.T) {
	rs, err := readResults(strings.NewReader(someResults))
	must(t, err)
	if got, want := rs.ratio("Rival", "File", "cpu-ns/task"), (100/1.5+30)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the ratio is %v, want %v", got, want)
	}
	summary := rs.summary(false)
	for _, part := range []string{"| 48.3 x | at least 50, aim 60: **missed** |", "| 600 MiB | at most 256: **missed** |", "| 1,000,000 tasks through"} {
		proof.Has(t, summary, part)
	}
	if strings.Contains(summary, "handler") {
		t.Errorf("what was not measured has a figure:\n%s", summary)
	}
	if entry := rs.entry(nil); !strings.Contains(entry, "Medians of 2 rounds") || !strings.Contains(entry, "| codec Other-2 | 9 |") {
		t.Error(entry)
	}
	if strings.Contains(rs.entry(nil), "Floor") || !strings.Contains(rs.entry(nil), "\n\nnothing.\n\n") {
		t.Error(rs.entry(nil))
	}
	for text, want := range map[string]string{"PASS\n": "some of Floor|Handler|", someResults + "FAIL\n": "has failed"} {
		proof.Says(t, proof.ErrOf(readResults(strings.NewReader(text))), want)
	}
}

func TestTheDocumentsHaveTheResults(t *testing.T) {
	rs, err := readResults(strings.NewReader(someResults))
	must(t, err)
	for file, change := range rs.documents(nil) {
		old, err := os.ReadFile(file)
		must(t, err)
		text, err := change(string(old))
		if err != nil || !strings.Contains(text, "commit abc1234") || !strings.Contains(text, "| 48.3 x |") {
			t.Errorf("%s: %v", file, err)
		}
		if again, err := change(text); again != text {
			t.Errorf("%s: the results of one commit stand in it twice, %v", file, err)
		}
		proof.Says(t, proof.ErrOf(change("nothing")), "make bench", file)
	}
}

func TestAnEntryHasTheFiguresOfOlderResults(t *testing.T) {
	rs, err := readResults(strings.NewReader(someResults))
	must(t, err)
	older, err := readResults(strings.NewReader(strings.NewReplacer("abc1234", "fff0000", "600 out", "700 out").Replace("date: 2026-01-02\n" + someResults)))
	must(t, err)
	for _, part := range []string{"| wanted | 2026-01-02, fff0000 |", "| 600 MiB | at most 256: **missed** | 700 MiB |"} {
		if !strings.Contains(rs.entry(older), part) || strings.Contains(rs.entry(rs), part) {
			t.Errorf("%q is missing in\n%s", part, rs.entry(older))
		}
	}
}
