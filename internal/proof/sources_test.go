package proof

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	cited  = regexp.MustCompile(`\[(\d+)\]`)
	source = regexp.MustCompile(`(?m)^\| (\d+) \| \[[^\]]+\]\(https://[^)]+\) \|`)
)

// A fact about another system without the page that says it is hearsay.
func TestWhatTheComparisonCitesIsAmongItsSources(t *testing.T) {
	d, err := ReadFile(root, filepath.Join(root, "docs", "faq.md"))
	must(t, err)
	text, sources, _ := strings.Cut(strings.Join(d.Lines, "\n"), "\n### Sources\n")
	known, used := map[string]bool{}, map[string]bool{}
	for _, m := range source.FindAllStringSubmatch(sources, -1) {
		known[m[1]] = true
	}
	for _, m := range cited.FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
		if !known[m[1]] {
			t.Errorf("source %s is not listed", m[1])
		}
	}
	for number := range known {
		if !used[number] {
			t.Errorf("source %s is not cited", number)
		}
	}
	if len(known) < 10 {
		t.Errorf("only %d sources were found", len(known))
	}
}
