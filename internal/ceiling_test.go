package internal_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/proof"
)

// The ceiling bounds the sum of all lines, which sizes of packages, files and functions do not.
// A commit that raises it says what was removed for it, or why nothing could be.
//
// The counted lines are neither blank nor only a comment. They are those of Go outside _test.go, and
// of every other tracked text file but these:
//   - documents: docs/ with its pictures, every *.md, licences;
//   - testdata folders;
//   - vendored assets: uPlot, which stands in internal/admin;
//   - lock files: go.sum, package-lock.json, and those of the tools that releases are made by;
//   - what is generated, because its generator counts: bench/results.txt, which `make bench` writes.
//
// A line counts once for each 100 characters begun, so that no one line holds ten.
//
// On commit dcc8c78d this test counts 93,035 lines:
//   - Go 88,833: pump 47,216, internal 18,221, loadtest 17,263 (azsim 6,630 of them), bench 2,518,
//     cmd 1,451, codec 1,330, shardmap 834;
//   - the page 2,152: scripts and styles 1,383, what drives it in a browser 769;
//   - templates of internal/admin 1,274;
//   - the rest 776: Makefile, units, packaging, configurations, go.mod.
//
// Beside them stand 88,703 lines of tests.
//
// The ceiling was 91,035, 2,000 less, with 91,030 lines below it, before runs with a name, schedules,
// HTTP in, results, bodies in blobs, limits by key and a release came. Those have 6,000 lines more.
const (
	ceilingAtStart = 93035
	ceiling        = ceilingAtStart - 2000 + came
	came           = 6000
	testsBeside    = 5000 // more than there is code
)

// lineCount is how many lines each folder has, apart from its tests, and how many its tests have.
type lineCount struct{ code, tests map[string]int }

func (c lineCount) sums() (code, tests int) {
	for n := range maps.Values(c.code) {
		code += n
	}
	for n := range maps.Values(c.tests) {
		tests += n
	}
	return code, tests
}

// problems says which bound is passed, and what is largest.
func (c lineCount) problems(ceiling, beside int) (problems []string) {
	code, tests := c.sums()
	if code > ceiling {
		problems = append(problems, fmt.Sprintf("there are %d lines, more than %d: %s",
			code, ceiling, largest(c.code, 12)))
	}
	if tests > code+beside {
		problems = append(problems, fmt.Sprintf("there are %d lines of tests, more than %d and %d: %s",
			tests, code, beside, largest(c.tests, 12)))
	}
	return problems
}

// largest names the folders with the most lines.
func largest(of map[string]int, most int) string {
	folders := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(of[b]-of[a], strings.Compare(a, b))
	})
	for i, folder := range folders {
		folders[i] = fmt.Sprintf("%s %d", folder, of[folder])
	}
	return strings.Join(folders[:min(most, len(folders))], ", ")
}

// TestTheSumOfAllLinesStaysUnderItsCeiling holds the ceiling.
func TestTheSumOfAllLinesStaysUnderItsCeiling(t *testing.T) {
	out, err := exec.Command("git", "-C", "..", "ls-files", "-z").Output()
	if err != nil || len(out) == 0 {
		t.Skipf("only tracked files are counted, and git lists none here: %v", err)
	}
	counted := lineCount{map[string]int{}, map[string]int{}}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if uncounted(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if errors.Is(err, os.ErrNotExist) { // it is removed, and that is not committed yet
			continue
		}
		must(t, err)
		if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		if strings.HasSuffix(name, "_test.go") {
			counted.tests[path.Dir(name)] += countLines(name, text)
		} else {
			counted.code[path.Dir(name)] += countLines(name, text)
		}
	}
	code, tests := counted.sums()
	t.Logf("%d lines of at most %d, and %d lines of tests", code, ceiling, tests)
	if code < ceiling/4 {
		t.Errorf("only %d lines are found: not all files were counted", code)
	}
	for _, problem := range counted.problems(ceiling, testsBeside) {
		t.Error(problem)
	}
}

// uncounted reports whether a tracked file is a document, data of a test, vendored, a lock file or
// generated.
func uncounted(name string) bool {
	base := path.Base(name)
	switch {
	case strings.HasPrefix(name, "docs/"), strings.HasSuffix(base, ".md"),
		base == "LICENSE", strings.HasSuffix(base, ".LICENSE"),
		slices.Contains(strings.Split(path.Dir(name), "/"), "testdata"),
		strings.HasPrefix(base, "uPlot."),
		base == "go.sum", base == "package-lock.json", strings.HasPrefix(base, "tools."),
		name == "bench/results.txt":
		return true
	}
	return false
}

// countLines counts the lines of a file that are neither blank nor only a comment, a long one more
// than once.
func countLines(name string, text []byte) (n int) {
	comment := commentOnly(name, text)
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimRight(line, " \t\r"); line != "" && !comment[i] {
			n += (utf8.RuneCountInString(line) + 99) / 100
		}
	}
	return n
}

// commentOnly are the lines of a file, from 0, on which nothing but a comment stands.
func commentOnly(name string, text []byte) map[int]bool {
	switch path.Ext(strings.TrimSuffix(name, ".tmpl")) {
	case ".go":
		return commentsOfGo(text)
	case ".js", ".mjs", ".css", ".bicep", ".mod":
		return comments(string(text), "//", "/*", "*/")
	case ".html", ".svg":
		return comments(string(text), "<!--", "<!--", "-->")
	case ".json":
		return nil
	}
	return comments(string(text), "#", "", "")
}

// commentsOfGo finds the lines that have no token but a comment.
func commentsOfGo(text []byte) map[int]bool {
	comment := map[int]bool{}
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	code := map[int]bool{}
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			break
		}
		lines := code
		if kind == token.COMMENT {
			lines = comment
		} else if kind == token.SEMICOLON {
			continue // the scanner puts one where a line ends
		}
		first := file.Line(at) - 1
		for i := range strings.Count(literal, "\n") + 1 {
			lines[first+i] = true
		}
	}
	maps.DeleteFunc(comment, func(line int, _ bool) bool { return code[line] })
	return comment
}

// comments finds the lines that begin with a word, and those from one that begins with another to
// one that has its end, unless something follows there.
func comments(text, word, begin, end string) map[int]bool {
	comment := map[int]bool{}
	inside := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		inside = inside || begin != "" && strings.HasPrefix(line, begin)
		if !inside {
			comment[i] = strings.HasPrefix(line, word)
			continue
		}
		_, after, ended := strings.Cut(line, end)
		inside = !ended
		comment[i] = after == ""
	}
	return comment
}

// The rules themselves: what counts, and what is said.
func TestWhatCountsAsALine(t *testing.T) {
	long := strings.Repeat("ä", 101)
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"a.go", "// Package a.\npackage a\n\n/* one\ntwo */\nvar b = 1 // b\n", 2},
		{"a.go", "package a\n\nvar s = `\n// in it\n\n`\n", 4},
		{"a.go", "package a\n\n/* of */ var s int\n", 2},
		{"a.go", "package a\n\nvar s = \"" + long + "\"\n", 3},
		{"a.js", "// a\nf(); // b\n/* c\n d */\n/* e */ g();\n", 2},
		{"a.css", "#id {\n}\n", 2},
		{"a.html", "<p>\n<!-- a\n b -->\n</p>\n", 2},
		{"a.yaml.tmpl", "# a\nb: 1 # c\n\n", 1},
		{"a.json", "{}\n", 1},
		{"Makefile", "all: ## builds\n# so\n", 1},
	} {
		proof.Same(t, countLines(c.name, []byte(c.text)), c.want, c.name, c.text, "has … lines")
	}
	for name, want := range map[string]bool{
		"docs/runs.svg": true, "loadtest/azsim/AZURE.md": true, "LICENSE": true, "go.sum": true,
		"codec/testdata/a.txt": true, "internal/admin/uPlot.iife.min.js": true,
		"bench/results.txt": true, "internal/admin/e2e/package-lock.json": true,
		"go.mod": false, "internal/admin/assets/page.js": false, "pump/config.go": false,
		"internal/admin/files/queuepump-alerts.yaml.tmpl": false, ".ci/run": false,
	} {
		proof.Same(t, uncounted(name), want, name, "left out")
	}
	c := lineCount{map[string]int{"a": 1, "b": 3, "c": 2}, map[string]int{"a": 8}}
	for want, bounds := range map[string][2]int{
		"":                                  {6, 2},
		"6 lines, more than 5: b 3, c 2, a": {5, 2},
		"8 lines of tests, more than 6 and": {6, 1},
	} {
		got := strings.Join(c.problems(bounds[0], bounds[1]), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", bounds, got, want)
		}
	}
}
