package mutants

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

const tableHead = "\n| mutant | seeds it took, or what found it | what was wrong first |\n|---|---|---|\n"

// page is a package's report: what found a mutant and what was wrong, by the mutant's sentence.
type page struct{ rows map[string][2]string }

// readPage reads the report as it is, so that it can be written in parts. One that cannot be read
// is empty.
func readPage() page {
	p := page{map[string][2]string{}}
	text, _ := os.ReadFile(report)
	for _, line := range strings.Split(string(text), "\n") {
		if cells := strings.Split(strings.Trim(line, "| "), " | "); len(cells) == 3 {
			p.rows[cells[0]] = [2]string{cells[1], cells[2]}
		}
	}
	return p
}

// seed gives how many seeds a mutant took, or 0.
func (p page) seed(m *Mutant) uint64 {
	number, _, _ := strings.Cut(p.rows[m.What][0], " ")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// write writes the report with the rows of the listed mutants.
func (p page) write(t *testing.T, head string, list []Mutant) {
	var b strings.Builder
	b.WriteString(head + tableHead)
	for _, m := range list {
		if row, ok := p.rows[m.What]; ok {
			b.WriteString("| " + m.What + " | " + row[0] + " | " + row[1] + " |\n")
		}
	}
	if err := os.WriteFile(report, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
