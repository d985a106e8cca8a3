package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

var writeLicences = flag.Bool("licences.write", false, "write the table of docs/reports/licences.md")

const licencesDoc = "docs/reports/licences.md"

// table is that of the document: the parts of the programs of all platforms.
func table(t *testing.T) string {
	t.Helper()
	var lines []string
	parts, err := partsOf(platforms...)
	must(t, err)
	for _, p := range parts {
		lines = append(lines, fmt.Sprintf("| %s | %s |\n", p.name, strings.Join(p.kinds, ", ")))
	}
	slices.Sort(lines)
	return "| part | licence |\n|---|---|\n" + strings.Join(slices.Compact(lines), "")
}

// Each part that both binaries link has a permissive licence, and the document names all of them.
func TestAllThatIsLinkedMayBeLinkedAndIsNamed(t *testing.T) {
	t.Chdir("../../..")
	const begin, end = "<!-- the test writes what follows -->\n\n", "\n<!-- until here -->"
	text, err := os.ReadFile(licencesDoc)
	must(t, err)
	before, rest, _ := strings.Cut(string(text), begin)
	found, after, whole := strings.Cut(rest, end)
	if !whole {
		t.Fatalf("%s has no place for the table", licencesDoc)
	}
	want := table(t)
	if *writeLicences {
		must(t, os.WriteFile(licencesDoc, []byte(before+begin+want+end+after), 0o600))
		return
	}
	if found != want {
		t.Errorf("%s does not name what is linked; look at the licences of what is new, and run: "+
			"go test ./internal/packaging/build -run AllThatIsLinked -licences.write\n%s", licencesDoc, want)
	}
}

// The copyright file of packages and image has the text of each licence, and the notices that must
// go with it.
func TestTheCopyrightFileHasAllTexts(t *testing.T) {
	b := small(t)
	file := filepath.Join(b.out, "copyright")
	must(t, b.copyright(file, platforms...))
	text, err := os.ReadFile(file)
	must(t, err)
	got := string(text)
	own, err := os.ReadFile("LICENSE")
	must(t, err)
	if !strings.Contains(got, strings.TrimSpace(string(own))) {
		t.Error("the project's own licence is not there")
	}
	parts, err := partsOf(platforms...)
	must(t, err)
	notices := 0
	for _, p := range parts {
		for _, text := range p.texts {
			if !strings.Contains(got, text) {
				t.Errorf("a text of %s is not there: %.80s", p.name, text)
			}
			if strings.Contains(text, "This product includes software developed") {
				notices++
			}
		}
		if !strings.Contains(got, "\n"+p.name) {
			t.Errorf("%s is not named", p.name)
		}
	}
	const charm = "github.com/charmbracelet/"
	for _, name := range []string{"Go go1.", "uPlot", charm + "bubbletea v", charm + "lipgloss v"} {
		if !strings.Contains(got, "\n"+name) {
			t.Errorf("%s is not there", name)
		}
	}
	if notices == 0 {
		t.Error("no notice goes along")
	}
	if n := strings.Count(got, "Licensed under the Apache License"); n > 60 || len(got) > 400<<10 {
		t.Errorf("%d bytes: texts stand there more than once", len(got))
	}
}

func TestWhatMayNotBeLinkedIsFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "LICENSE")
	must(t, os.WriteFile(file, []byte("All rights reserved. Ask us."), 0o600))
	err := (&part{name: "theirs"}).read(file)
	proof.Says(t, err, "not a known licence", "a text that is no licence")
	own, err := os.ReadFile("../../../LICENSE")
	must(t, err)
	for _, more := range []string{"GNU General\n Public License", `the "Commons Clause"`} {
		must(t, os.WriteFile(file, append(own, more...), 0o600))
		p := part{name: "theirs"}
		must(t, p.read(file))
		if p.judge() == nil {
			t.Errorf("the MIT licence with %q: %v", more, p.kinds)
		}
	}
	for _, kinds := range [][]string{nil, {"MIT", "GPL-3.0"}, {"MPL-2.0"}} {
		p := part{name: "theirs", kinds: kinds}
		proof.Says(t, p.judge(), "theirs has", p.kinds)
	}
	proof.Is(t, (&part{kinds: []string{"MIT", "Apache-2.0"}}).judge(), nil)
}
