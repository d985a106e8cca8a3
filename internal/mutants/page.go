package mutants

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

const (
	tableHead = "\n| mutant | seeds it took, or what found it | what was wrong first |\n|---|---|---|\n"
	alsoHead  = "\nThese are found by a test of their own, and by worlds as well:\n"
)

// page is a package's report: what found a mutant and what was wrong, by the mutant's sentence.
type page struct {
	rows map[string][2]string
	also map[string][2]string // of second finders
}

// readPage reads the report as it is, so that it can be written in parts. One that cannot be read
// is empty.
func readPage() page {
	p := page{map[string][2]string{}, map[string][2]string{}}
	text, _ := os.ReadFile(report)
	first, second, _ := strings.Cut(string(text), alsoHead)
	for part, rows := range map[string]map[string][2]string{first: p.rows, second: p.also} {
		for _, line := range strings.Split(part, "\n") {
			if cells := strings.Split(strings.Trim(line, "| "), " | "); len(cells) == 3 {
				rows[cells[0]] = [2]string{cells[1], cells[2]}
			}
		}
	}
	return p
}

// seedOf gives how many seeds a row says that a mutant took, or 0.
func seedOf(row [2]string) uint64 {
	number, _, _ := strings.Cut(row[0], " ")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// write writes the report: rows of the mutants that the folder's package lists, and those of
// which it is the second finder, whoever lists them.
func (p page) write(t *testing.T, head, folder string, all []Mutant) {
	var b strings.Builder
	b.WriteString(head + tableHead)
	line := func(m *Mutant, rows map[string][2]string) {
		if row, ok := rows[m.What]; ok {
			b.WriteString("| " + m.What + " | " + row[0] + " | " + row[1] + " |\n")
		}
	}
	for i := range all {
		if all[i].Folder == folder {
			line(&all[i], p.rows)
		}
	}
	if len(p.also) > 0 {
		b.WriteString(alsoHead + tableHead)
	}
	for i := range all {
		if all[i].Also != "" {
			line(&all[i], p.also)
		}
	}
	if err := os.WriteFile(report, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
