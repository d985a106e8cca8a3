package internal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// size is what one person can hold: files and lines of a package, tests not counted, lines of a
// file and of a function, those of tests as well, and characters of a line of what is no test.
type size struct{ files, lines, file, function, line int }

var (
	usual = size{files: 30, lines: 5000, file: 500, function: 80, line: 100}
	// The simulator is the service for queues, tables and blobs, whose requests have a file each; so have
	// commands of an operator.
	larger = map[string]size{
		"loadtest/azsim":   {files: 60, lines: 8700, file: 500, function: 80, line: 100},
		"internal/operate": {files: 36, lines: 6200, file: 500, function: 80, line: 100},
	}
)

// TestPackagesFilesAndFunctionsCanBeHeld holds the sizes that docs/design.md promises.
func TestPackagesFilesAndFunctionsCanBeHeld(t *testing.T) {
	const fields = "ImportPath,Dir,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles"
	out, err := exec.Command("go", "list", "-json="+fields, "../...").Output()
	must(t, err)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir                                    string
			GoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		most, ok := larger[name]
		if !ok {
			most = usual
		}
		tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		// Those of other systems are read by people as well.
		code := slices.DeleteFunc(slices.Concat(p.GoFiles, p.IgnoredGoFiles),
			func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		for _, problem := range slices.Concat(
			tooLarge(t, name, p.Dir, p.GoFiles, most),
			tooLong(t, name, p.Dir, tests, most),
			tooWide(t, name, p.Dir, code, most),
			misnamed(t, name, p.Dir, code),
			untested(t, name, p.Dir, p.GoFiles, len(tests)),
		) {
			t.Error(problem)
		}
	}
}

// tooLong names the files and the functions that have more lines than most: tests count by that
// alone.
func tooLong(t *testing.T, name, dir string, files []string, most size) (problems []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		if n := strings.Count(string(text), "\n"); n > most.file {
			problems = append(problems, fmt.Sprintf("%s/%s has %d lines, more than %d", name, file, n, most.file))
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; n > most.function {
				problems = append(problems,
					fmt.Sprintf("%s of %s/%s has %d lines, more than %d", f.Name.Name, name, file, n, most.function))
			}
		}
	}
	return problems
}

// tooWide names the lines that have more characters than most, of which a tab is one.
func tooWide(t *testing.T, name, dir string, files []string, most size) (problems []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			if n := utf8.RuneCountInString(line); n > most.line {
				problems = append(problems,
					fmt.Sprintf("%s/%s:%d has %d characters, more than %d", name, file, i+1, n, most.line))
			}
		}
	}
	return problems
}

// tooLarge names what of a package is more than most.
func tooLarge(t *testing.T, name, dir string, files []string, most size) (problems []string) {
	t.Helper()
	lines := 0
	problems = tooLong(t, name, dir, files, most)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		lines += strings.Count(string(text), "\n")
	}
	if len(files) > most.files || lines > most.lines {
		problems = append(problems, fmt.Sprintf("%s has %d files and %d lines, more than %d or %d", name, len(files), lines, most.files, most.lines))
	}
	return problems
}

// untested names a package that has much code, and no test in its folder.
func untested(t *testing.T, name, dir string, files []string, tests int) (problems []string) {
	t.Helper()
	const most = 300
	lines := 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		lines += countLines(file, text)
	}
	if lines > most && tests == 0 {
		problems = append(problems, fmt.Sprintf("%s has %d lines of code and no test in its folder", name, lines))
	}
	return problems
}

// The rule itself: what it finds.
func TestWhatIsTooLargeIsNamed(t *testing.T) {
	dir := t.TempDir()
	text := "package p\n\nfunc f() {\n\n\t// ääääää\n}\n"
	must(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o600))
	for problem, most := range map[string]size{
		"":                     {1, 6, 6, 4, 10},
		"6 lines, more than 5": {1, 6, 5, 4, 10},
		"f of p":               {1, 6, 6, 3, 10},
		"1 files and 6 lines":  {1, 5, 6, 4, 10},
		"p.go:3 has 10":        {1, 6, 6, 4, 9},
	} {
		files := []string{"p.go"}
		found := append(tooLarge(t, "p", dir, files, most), tooWide(t, "p", dir, files, most)...)
		got := strings.Join(found, "\n")
		if problem == "" && got != "" || !strings.Contains(got, problem) {
			t.Errorf("%+v: %q, want %q", most, got, problem)
		}
	}
}

func TestMuchCodeWithoutATestIsNamed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte("package p\n"+strings.Repeat("var _ = 1\n", 300)), 0o600))
	files := []string{"p.go"}
	if found := untested(t, "p", dir, files, 0); len(found) != 1 || len(untested(t, "p", dir, files, 1)) > 0 {
		t.Errorf("%q", found)
	}
}

// misnamed names the doc comments that speak of what a function or a type was called before.
func misnamed(t *testing.T, name, dir string, files []string) (problems []string) {
	t.Helper()
	begins := func(of string, doc *ast.CommentGroup) {
		words := strings.Fields(doc.Text()) // nil has none
		if len(words) > 1 && !strings.HasPrefix(words[0], of) && !strings.HasPrefix(words[1], of) {
			problems = append(problems,
				fmt.Sprintf("the comment of %s in %s begins with %q", of, name, words[0]))
		}
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.ParseComments)
		must(t, err)
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				begins(f.Name.Name, f.Doc)
			} else if g, is := d.(*ast.GenDecl); is && g.Tok == token.TYPE && !g.Lparen.IsValid() {
				begins(g.Specs[0].(*ast.TypeSpec).Name.Name, g.Doc)
			}
		}
	}
	return problems
}

// TestTheFrontDoorIsSmall holds how many names package pump exports. The constants of a type are
// read with it, as `go doc` shows them, and count as part of it.
func TestTheFrontDoorIsSmall(t *testing.T) {
	const most = 46 // prices, states, outcomes, limits and how a run ended are words, too
	files, err := filepath.Glob("../pump/*.go")
	must(t, err)
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range parsed.Decls {
			names = append(names, exported(d)...)
		}
	}
	if len(names) > most || len(names) < most/2 {
		t.Errorf("package pump exports %d names, at most %d should be: %s", len(names), most, strings.Join(names, " "))
	}
}

// exported are the names at the top of a package that a declaration exports.
func exported(d ast.Decl) (names []string) {
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				add(s.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					if d.Tok != token.CONST || s.Type == nil {
						add(id)
					}
				}
			}
		}
	}
	return names
}

// requirements are how many modules the project requires itself. One that a single call needs is
// seldom worth its updates. The last is azblob: it makes and signs the requests to blobs, as azqueue
// and aztables do to queues and tables.
const requirements = 34

func TestFewModulesAreRequired(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	must(t, err)
	direct := regexp.MustCompile(`(?m)^(\t|require )[a-z.]+/\S+ v\S+$`).FindAllString(string(text), -1)
	if len(direct) > requirements || len(direct) < requirements/2 {
		t.Errorf("%d modules are required directly, of at most %d: %q", len(direct), requirements, direct)
	}
}
