package proof

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// function is a function of a package, as it stands in its file.
type function struct {
	file *mutantsSource
	decl *ast.FuncDecl
}

// mutantsSource is a file of Go.
type mutantsSource struct {
	name string // its path
	text string
	set  *token.FileSet
	tree *ast.File
}

// functionsOf gives the functions and methods of the package in a folder by name, those
// of tests left out.
func functionsOf(root, folder string) (map[string]*function, error) {
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]*function{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s := &mutantsSource{name: name, text: string(text), set: token.NewFileSet()}
		if s.tree, err = parser.ParseFile(s.set, name, text, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				all[nameOf(f)] = &function{s, f}
			}
		}
	}
	return all, nil
}

// nameOf gives the name of a function as lists have it.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	switch t := f.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return "(*" + typeName(t.X) + ")." + f.Name.Name
	default:
		return typeName(t) + "." + f.Name.Name
	}
}

func typeName(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	}
	return "?"
}

func (s *mutantsSource) at(p token.Pos) int { return s.set.Position(p).Offset }

// between gives the text of a node's place.
func (s *mutantsSource) between(from, to token.Pos) string { return s.text[s.at(from):s.at(to)] }

// body gives what stands between a function's braces.
func (f *function) body() string {
	return f.file.between(f.decl.Body.Lbrace+1, f.decl.Body.Rbrace)
}

// mutated gives the body with an edit's changes.
func (f *function) mutated(e *Edit) (string, error) {
	lines := strings.Split(f.body(), "\n")
	for _, c := range e.Changes {
		from, to, err := place(lines, c.Old)
		if err != nil {
			return "", fmt.Errorf("line %d of the list: %s of %s %w:\n%s\n"+
				"Write the change anew for the code as it is now; delete the mutant if what it spoils is gone",
				c.Line, e.Function, e.Folder, err, strings.Join(c.Old, "\n"))
		}
		lines = append(append(append([]string(nil), lines[:from]...), c.New...), lines[to:]...)
	}
	return strings.Join(lines, "\n"), nil
}

// place finds where some lines stand one after the other. Blank lines and comments between them do
// not count, and indentation does not matter.
func place(lines, old []string) (from, to int, err error) {
	found := 0
	for i := range lines {
		if silent(lines[i]) {
			continue
		}
		if end, ok := match(lines, i, old); ok {
			found++
			from, to = i, end
		}
	}
	switch found {
	case 0:
		return 0, 0, errors.New("has no such lines")
	case 1:
		return from, to, nil
	}
	return 0, 0, fmt.Errorf("has these lines %d times", found)
}

// match reports whether lines stand at a place, and where they end.
func match(lines []string, at int, old []string) (end int, ok bool) {
	for _, want := range old {
		if silent(want) {
			continue
		}
		for at < len(lines) && silent(lines[at]) {
			at++
		}
		if at == len(lines) || strings.TrimSpace(lines[at]) != strings.TrimSpace(want) {
			return 0, false
		}
		at++
	}
	return at, true
}

// silent reports whether a line says nothing to the compiler.
func silent(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "//")
}
