package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Between these lines of docs/performance.md stands what [Results.Table] renders, and between
// those of README.md what [Results.Brief] does.
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
		{"cores", r.Placement},
		{"rival", "azqueue " + r.Rival},
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
	rounds := slices.MaxFunc(r.Runs, func(a, b Measured) int {
		return cmp.Compare(a.Round, b.Round)
	}).Round
	fmt.Fprintf(b, "\nCPU time of the client's process, medians of %d rounds. "+
		"Over TCP the simulator is a process of its own and answers after\n%d ms; "+
		"in process it is in the client's and left out by a CPU profile. "+
		`"out" is putting, or compressing; "back" is getting,`+
		"\nhandling and deleting, or decompressing. "+
		"azqueue and the floor have their lines in memory; the pump reads a file and looks\nfor keys. "+
		`Of results in a file, "out" and "back" are the processes of the two binaries from start to `+
		"end. Bodies are lines\nof %d bytes.\n\n",
		rounds, Latency.Milliseconds(), LineBytes-1)
	b.WriteString(head(
		"way", "over", "tasks", "tasks a message", "µs of CPU a task", "out", "back",
		"tasks per CPU-second", "requests per thousand", "allocations a task", "connections",
		"tasks/s out", "back", "MiB out", "back",
	))
	for _, k := range r.ways() {
		r.writeWay(b, k)
	}
}

// columns are what the table of ways says of one.
var columns = []func(Measurement) float64{
	func(m Measurement) float64 { return float64(m.Tasks) },
	func(m Measurement) float64 { return float64(m.Tasks) / float64(m.Messages) },
	func(m Measurement) float64 { return 1e6 * m.CPUPerTask() },
	func(m Measurement) float64 { return 1e6 * m.Put.CPUSeconds / float64(m.Tasks) },
	func(m Measurement) float64 { return 1e6 * m.Take.CPUSeconds / float64(m.Tasks) },
	Measurement.TasksPerCPU,
	Measurement.RequestsPerThousand,
	Measurement.AllocsPerTask,
	func(m Measurement) float64 { return float64(m.Connections) },
	Measurement.sentRate,
	Measurement.doneRate,
	func(m Measurement) float64 { return float64(m.Put.PeakBytes >> 20) },
	func(m Measurement) float64 { return float64(m.Take.PeakBytes >> 20) },
}

// writeWay writes the row of a way. A value of zero, or not known, is left empty.
func (r *Results) writeWay(b *strings.Builder, k Run) {
	fmt.Fprintf(b, "| %s | %s |", k.Way, k.Over)
	for _, column := range columns {
		v, _ := r.typical(k.Way, k.Over, column)
		fmt.Fprintf(b, " %s |", orEmpty(v))
	}
	b.WriteString("\n")
}

func orEmpty(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
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
	fmt.Fprintf(
		&b, "%s on %s, %d cores, %s, %s,\ncommit %s, %s", code(r.Command), r.CPU, r.Cores, r.System,
		r.Go, r.revision(), r.Began.Format("2006-01-02"),
	)
	if r.Load != "" {
		fmt.Fprintf(&b, ", load average before it %s", r.Load)
	}
	fmt.Fprintf(&b, ";\nazqueue %s; %s:\n\n| what | result | wanted |\n|---|---|---|\n", r.Rival,
		r.Placement)
	for _, f := range r.Figures() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.What, f.value(), f.verdict())
	}
	b.WriteString("\n" + head("way of 130-byte tasks through queues and back",
		"µs of client CPU a task", "requests per thousand tasks", "allocations a task"))
	for _, k := range r.ways() {
		fmt.Fprintf(&b, "| %s |", k.name())
		for _, f := range []func(Measurement) float64{
			func(m Measurement) float64 { return 1e6 * m.CPUPerTask() }, Measurement.RequestsPerThousand,
			Measurement.AllocsPerTask,
		} {
			v, _ := r.typical(k.Way, k.Over, f)
			fmt.Fprintf(&b, " %s |", orEmpty(v))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// head is the head of a table of Markdown.
func head(columns ...string) string {
	return "| " + strings.Join(columns, " | ") + " |\n" + strings.Repeat("|---", len(columns)) + "|\n"
}

// Brief is the part of README.md that shows the results.
func (r *Results) Brief() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CPU time of the client, tasks of 130 bytes, beside azqueue %s, a "+
		"simulator that answers after\n%d ms (%s, %d cores, commit %s;\n[all "+
		"figures](docs/performance.md)):\n\n| what | result |\n|---|---|\n",
		r.Rival, Latency.Milliseconds(), r.CPU, r.Cores, r.revision())
	for _, f := range r.Figures() {
		if f.Brief != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", f.Brief, f.value())
		}
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
	if _, commit, _ := strings.Cut(first, ", commit "); commit == r.Commit &&
		strings.HasPrefix(first, "## ") {
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

// ReplaceTable puts the table of the results into docs/performance.md. Its error says what the file
// lacks.
func (r *Results) ReplaceTable(doc string) (string, error) {
	return replaceBetween(doc, tableBegins, tableEnds, r.Table())
}

// ReplaceBrief puts the table of the results into README.md. An error says what the file lacks.
func (r *Results) ReplaceBrief(doc string) (string, error) {
	return replaceBetween(doc, tableBegins, tableEnds, r.Brief())
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
