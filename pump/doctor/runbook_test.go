package doctor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// checks are the names of all checks, read from the source: a list here would miss a new one.
func checks(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "doctor.go", nil, 0)
	proof.Must(t, err)
	for n := range ast.Preorder(file) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Check") || len(spec.Values) != 1 {
			continue
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		proof.Must(t, err)
		names = append(names, name)
	}
	return names
}

// A finding says one command. The runbook says what it means and what happens otherwise.
func TestEachFindingHasAnEntryInTheRunbook(t *testing.T) {
	doc, err := proof.ReadFile("../..", "../../docs/runbook.md")
	proof.Must(t, err)
	entries := doc.Runbook("Findings of doctor")
	names := checks(t)
	if len(names) < 22 {
		t.Fatalf("only %q were found in doctor.go", names)
	}
	for _, name := range names {
		entry, ok := entries[name]
		if lacks := proof.Lacks(entry); !ok || len(lacks) > 0 {
			t.Errorf("docs/runbook.md: the entry of %s lacks %q", name, lacks)
		}
		delete(entries, name)
	}
	for title := range entries {
		t.Errorf("docs/runbook.md has an entry of %s, which is no check", title)
	}
}
