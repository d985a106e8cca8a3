package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// Between these lines of docs/performance.md stands what [Results.Table] renders.
const (
	tableBegins = "<!-- make bench -->"
	tableEnds   = "<!-- end of make bench -->"
)

// entriesBegin is the line of RESULTS.md under which the newest entry stands.
const entriesBegin = "<!-- make bench puts its newest entry below -->"

// Entry is the part of RESULTS.md that shows the results.
func (r *Results) Entry() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| | |\n|---|---|\n", r.heading())
	for _, row := range [][2]string{
		{"commit", r.revision()},
		{"what changed", r.Note},
		{"CPU", fmt.Sprintf("%s, %d cores", r.CPU, r.Cores)},
		{"load before", r.Load},
		{"system", r.System},
		{"Go", r.Go},
		{"date", fmt.Sprintf("%s, %.0f s", r.Began.Format("2006-01-02 15:04 MST"), r.Seconds)},
		{"command", code(r.Command)},
	} {
		if row[1] != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
		}
	}
	r.writeFigures(&b)
	r.writeWays(&b)
	r.writeBinaries(&b)
	r.writeStages(&b)
	return b.String()
}

func (r *Results) heading() string {
	return fmt.Sprintf("## %s, commit %s", r.Began.Format("2006-01-02"), cmp.Or(r.Commit, "unknown"))
}

func (r *Results) writeFigures(b *strings.Builder) {
	figures := r.Figures()
	if len(figures) == 0 {
		return
	}
	b.WriteString("\n| what | result | wanted |")
	if r.Before != nil {
		fmt.Fprintf(b, " %s, %s |", r.Before.Began.Format("2006-01-02"), r.Before.Commit)
	}
	b.WriteString("\n|---|---|---|")
	if r.Before != nil {
		b.WriteString("---|")
	}
	b.WriteString("\n")
	for _, f := range figures {
		fmt.Fprintf(b, "| %s | %s | %s |", f.What, f.value(), f.verdict())
		if r.Before != nil {
			if v, ok := r.Before.Figures[f.Name]; ok {
				older := f
				older.Value = v
				fmt.Fprintf(b, " %s |", older.value())
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
}

// verdict is the bound of a figure, and that it is missed if it is.
func (f Figure) verdict() string {
	if !f.Kept() {
		return f.Wanted.String() + ": **missed**"
	}
	return f.Wanted.String()
}

// ways are the pairs of way and place that were measured, in the order of their first measurement.
func (r *Results) ways() (keys []Run) {
	for _, m := range r.Runs {
		if k := (Run{Way: m.Way, Over: m.Over}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (r *Results) writeWays(b *strings.Builder) {
	if len(r.Runs) == 0 {
		return
	}
	rounds := slices.MaxFunc(r.Runs, func(a, b Measured) int { return cmp.Compare(a.Round, b.Round) }).Round
	fmt.Fprintf(b, `
CPU time of the client's process, medians of %d rounds; the simulator is a process of its own and answers after %v, or is in the
client's process and left out by a CPU profile. "out" is putting, or compressing; "back" is getting, handling and deleting, or decompressing. The rivals
have their lines in memory; the pump reads a file and looks for keys. Bodies are lines of %d bytes.

| way | over | tasks | tasks a message | µs of CPU a task | out | back | tasks per CPU-second | requests per thousand | allocations a task | connections | tasks/s out | back |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
`, rounds, Latency, LineBytes-1)
	for _, k := range r.ways() {
		typical := func(f func(Measurement) float64) string {
			v, _ := r.typical(k.Way, k.Over, f)
			return number(v)
		}
		requests, connections := "", ""
		if k.Over != Nowhere {
			requests = typical(Measurement.RequestsPerThousand)
		}
		if k.Over == OverTCP || k.Over == OverTLS {
			connections = typical(func(m Measurement) float64 { return float64(m.Connections) })
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", k.Way, k.Over,
			typical(func(m Measurement) float64 { return float64(m.Tasks) }),
			typical(func(m Measurement) float64 { return float64(m.Tasks) / float64(m.Messages) }),
			typical(func(m Measurement) float64 { return 1e6 * m.CPUPerTask() }),
			typical(func(m Measurement) float64 { return 1e6 * m.Put.CPUSeconds / float64(m.Tasks) }),
			typical(func(m Measurement) float64 { return 1e6 * m.Take.CPUSeconds / float64(m.Tasks) }),
			typical(func(m Measurement) float64 { return 1 / m.CPUPerTask() }),
			requests, typical(Measurement.AllocsPerTask), connections,
			typical(func(m Measurement) float64 { return float64(m.Tasks) / m.Put.Seconds }),
			typical(func(m Measurement) float64 { return float64(m.Tasks) / m.Take.Seconds }))
	}
}

func (r *Results) writeBinaries(b *strings.Builder) {
	if len(r.Binaries) == 0 {
		return
	}
	fmt.Fprintf(b, `
Both binaries with default settings, over TCP, on %d simulated accounts without limits and without latency in a third process; the processor writes
nothing down (`+"`--out /dev/null`"+`). Seconds leave out the idle time at whose end the processor leaves.

| delivery | tasks | sent in | CPU | memory | done in | CPU | memory | requests per thousand |
|---|---|---|---|---|---|---|---|---|
`, pumpAccounts)
	for _, t := range r.Binaries {
		fmt.Fprintf(b, "| %s | %s | %.1f s | %.1f s | %d MiB | %.1f s | %.1f s | %d MiB | %s |\n", t.Delivery, humanize.Comma(t.Handled),
			t.Sent.Seconds, t.Sent.CPUSeconds, t.Sent.PeakBytes>>20, t.Seconds, t.CPUSeconds, t.PeakBytes>>20, number(1000*float64(t.Requests)/float64(t.Handled)))
	}
}

// stageUnits are the columns of their own in the table of stages; other units follow in one.
var stageUnits = []string{"ns/op", "B/op", "allocs/op"}

func (r *Results) writeStages(b *strings.Builder) {
	if len(r.Stages) == 0 {
		return
	}
	b.WriteString("\n| part | benchmark | ns/op | B/op | allocs/op | |\n|---|---|---|---|---|---|\n")
	for _, s := range r.Stages {
		var more []string
		for unit, v := range s.Values {
			if !slices.Contains(stageUnits, unit) {
				more = append(more, number(v)+" "+unit)
			}
		}
		slices.Sort(more)
		fmt.Fprintf(b, "| %s | %s |", s.Package, s.Name)
		for _, unit := range stageUnits {
			if v, ok := s.Values[unit]; ok {
				fmt.Fprintf(b, " %s", number(v))
			}
			b.WriteString(" |")
		}
		fmt.Fprintf(b, " %s |\n", strings.Join(more, ", "))
	}
}

// Table is the part of docs/performance.md that shows the results.
func (r *Results) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, %d cores, %s, %s,\ncommit %s, %s", code(r.Command), r.CPU, r.Cores, r.System, r.Go, r.revision(), r.Began.Format("2006-01-02"))
	if r.Load != "" {
		fmt.Fprintf(&b, ", load average before it %s", r.Load)
	}
	b.WriteString(":\n\n| what | result | wanted |\n|---|---|---|\n")
	for _, f := range r.Figures() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.What, f.value(), f.verdict())
	}
	b.WriteString("\n| way of 130-byte tasks through queues and back | µs of client CPU a task | requests per thousand tasks | allocations a task |\n|---|---|---|---|\n")
	for _, k := range r.ways() {
		cpu, _ := r.typical(k.Way, k.Over, Measurement.CPUPerTask)
		allocs, _ := r.typical(k.Way, k.Over, Measurement.AllocsPerTask)
		requests, _ := r.typical(k.Way, k.Over, Measurement.RequestsPerThousand)
		name, sent := string(k.Way), ""
		if k.Over != Nowhere {
			name, sent = name+", "+k.Over, number(requests)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, number(1e6*cpu), sent, number(allocs))
	}
	return b.String()
}

// InsertEntry puts the entry of the results first among those of RESULTS.md. One that is first
// already and of the same commit is replaced. An error says what the file lacks.
func (r *Results) InsertEntry(doc string) (string, error) {
	head, rest, ok := strings.Cut(doc, entriesBegin+"\n")
	if !ok {
		return "", fmt.Errorf("there is no line %q", entriesBegin)
	}
	rest = strings.TrimLeft(rest, "\n")
	first, _, _ := strings.Cut(rest, "\n")
	if _, commit, _ := strings.Cut(first, ", commit "); commit == r.Commit && strings.HasPrefix(first, "## ") {
		if i := strings.Index(rest, "\n## "); i >= 0 {
			rest = rest[i+1:]
		} else {
			rest = ""
		}
	}
	doc = head + entriesBegin + "\n\n" + r.Entry()
	if rest != "" {
		doc += "\n" + rest
	}
	return doc, nil
}

// ReplaceTable puts the table of the results into docs/performance.md. An error says what the file lacks.
func (r *Results) ReplaceTable(doc string) (string, error) {
	return replaceBetween(doc, tableBegins, tableEnds, r.Table())
}

// replaceBetween puts text between two lines of a document.
func replaceBetween(doc, begins, ends, text string) (string, error) {
	head, rest, ok := strings.Cut(doc, begins+"\n")
	if !ok {
		return "", fmt.Errorf("there is no line %q", begins)
	}
	_, tail, ok := strings.Cut(rest, ends+"\n")
	if !ok {
		return "", fmt.Errorf("there is no line %q below %q", ends, begins)
	}
	return head + begins + "\n" + text + ends + "\n" + tail, nil
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
