package proof

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

const (
	mutantsTableHead = "\n| mutant | seeds it took, or what found it | what was " +
		"wrong first |\n|---|---|---|\n"
	alsoHead = "\nThese are found by a test of their own, and by worlds as well:\n"
)

// page is a package's part of the report: what found a mutant and what was wrong, by the mutant's
// sentence.
type page struct {
	file         string
	title        string
	before, rest string // what stands around the part, other packages' parts
	rows         map[string][2]string
	also         map[string][2]string // of second finders
}

// readPage reads a package's part of the report as it is, so that the report can be written in
// parts. A missing part is empty, and comes last.
func readPage(file, title string) page {
	p := page{file: file, title: title, rows: map[string][2]string{}, also: map[string][2]string{}}
	all, _ := os.ReadFile(file)
	head := "\n## " + title + "\n"
	before, part, _ := strings.Cut(string(all), head)
	part, rest, more := strings.Cut(part, "\n## ")
	if p.before = before; more {
		p.rest = "\n## " + rest
	}
	first, second, _ := strings.Cut(part, alsoHead)
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

// write writes the part: rows of the mutants that the folder's package lists, and of mutants in all
// lists whose second finder it is. Packages write one after the other.
func (p page) write(t *testing.T, text, folder string, all []Mutant) {
	var b strings.Builder
	b.WriteString(p.before + "\n## " + p.title + "\n\nThe list: [" + folder + "](../../" + folder +
		"/testdata/mutants.txt).\n" + text + mutantsTableHead)
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
		b.WriteString(alsoHead + mutantsTableHead)
	}
	for i := range all {
		if all[i].Also != "" {
			line(&all[i], p.also)
		}
	}
	b.WriteString(p.rest)
	if err := os.WriteFile(p.file, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
