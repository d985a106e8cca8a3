package proof

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A command of ours in a text that a program prints, with the folder or the prefix before it. Words
// that may be a sentence's, as in "a distributor runs", are commands only with a second word.
var hinted = regexp.MustCompile(`([-\w./]*)\b(distributor|processor|loadtest) ` +
	`((?:runs (?:list|show|wait|repair|end)|run|accounts|check|completion|counts|demo|doctor|gate|` +
	`generate|help|ids|page|peek|plan|quarantine|report|results|serve|status|top|version|workload)\b[^\n` + "`" +
	`;,()"|<]*)`)

// installed are the commands that packages and archives install, as .goreleaser.yaml has them.
func installed(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(root + "/.goreleaser.yaml")
	must(t, err)
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bbinary: ([\w-]+)`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = true
	}
	return found
}

// unusable says why a command that a program prints cannot be typed where the package is installed;
// nothing if all of the text can.
func (p *programs) unusable(t *testing.T, text string, have map[string]bool) (problems []string) {
	t.Helper()
	for _, m := range hinted.FindAllStringSubmatch(text, -1) {
		if m[1] != "" || !have[m[2]] {
			problems = append(problems, "no package installs "+m[1]+m[2]+" ("+m[0]+")")
			continue
		}
		// A sentence may go on behind a command: its words are no flags.
		if problem := p.problem(t, strings.Fields(strings.TrimRight(m[2]+" "+m[3], ".:?!"))); problem != "" {
			problems = append(problems, m[0]+": "+problem)
		}
	}
	return problems
}

// texts are the strings of a file of Go, in which sums of strings are one.
func texts(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	must(t, err)
	var value func(e ast.Expr) string
	value = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			return value(e.X) + value(e.Y)
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
				return s
			}
		}
		return "X"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			all = append(all, value(e))
			return e.Op != token.ADD
		case *ast.BasicLit:
			all = append(all, value(e))
		}
		return true
	})
	return all
}

// hintsAreInstalled looks at every text in the code that the programs link, and at the page.
func (p *programs) hintsAreInstalled(t *testing.T) {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f",
		`{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`+
			`{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`,
		root+"/cmd/distributor", root+"/cmd/processor", root+"/loadtest", root+"/loadtest/azsim/cmd/azsim").Output()
	must(t, err)
	have, hints := installed(t), 0
	for _, file := range strings.Fields(string(out)) {
		parts := []string{}
		if filepath.Ext(file) == ".go" {
			parts = texts(t, file)
		} else if text, err := os.ReadFile(file); !strings.HasPrefix(filepath.Base(file), "uPlot") {
			must(t, err)
			parts = append(parts, string(text))
		}
		for _, text := range parts {
			hints += len(hinted.FindAllString(text, -1))
			for _, problem := range p.unusable(t, text, have) {
				t.Errorf("%s: %s", file, problem)
			}
		}
	}
	if hints < 100 {
		t.Errorf("only %d commands were found in what the programs print", hints)
	}
	for text, wrong := range map[string]bool{
		"see: distributor status":                    false,
		"a processor runs, or distributor runs list": false,
		"try `bin/processor run --quiet`":            true,
		"see: queuepump-distributor runs list":       true,
		"see: distributor runs list --no-such":       true,
		"bin/loadtest demo --files x":                true,
	} {
		if found := p.unusable(t, text, have); len(found) > 0 != wrong {
			t.Errorf("%s: %q", text, found)
		}
	}
}
