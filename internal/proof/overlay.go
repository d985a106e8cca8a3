package proof

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	module = "github.com/queuepump/queuepump"
	self   = "internal/proof" // this package's folder, from the module's root
)

// Overlay writes a build with all mutants of the module into a folder, and gives the path of the
// file for go build's -overlay. It fails if a mutant does not apply to the code as it is.
func Overlay(root, out string) (string, error) {
	list, err := ReadAll(root)
	if err != nil {
		return "", err
	}
	files, err := build(root, list)
	if err != nil {
		return "", err
	}
	files[filepath.Join(root, self, "built.go")] = "package proof\n\nconst built = true\n"
	if out, err = filepath.Abs(out); err != nil {
		return "", err
	}
	if err := os.RemoveAll(out); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		inside, err := filepath.Rel(root, name)
		if err != nil {
			return "", err
		}
		replace[name] = filepath.Join(out, inside+".txt") // no Go file, or ./... had them
		if err := os.MkdirAll(filepath.Dir(replace[name]), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(replace[name], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	name := filepath.Join(out, "overlay.json")
	return name, os.WriteFile(name, text, 0o644)
}

// mutation is one function's copy for a mutant.
type mutation struct {
	mutant  string
	f       *function
	body    string
	imports []string
}

// build gives the texts of the files that mutants change, by path.
func build(root string, list []Mutant) (map[string]string, error) {
	packages := map[string]map[string]*function{}
	byFile := map[*mutantsSource][]mutation{}
	var errs []error
	for i := range list {
		m := &list[i]
		for j := range m.Edits {
			e := &m.Edits[j]
			functions := packages[e.Folder]
			if functions == nil {
				var err error
				if functions, err = functionsOf(root, e.Folder); err != nil {
					return nil, err
				}
				packages[e.Folder] = functions
			}
			f := functions[e.Function]
			if f == nil {
				errs = append(errs, fmt.Errorf("%s: there is no function %s in %s.\n"+
					"Write the mutant anew for the code as it is now; delete it if what it spoils is gone", m,
					e.Function, e.Folder))
				continue
			}
			body, err := f.mutated(e)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %w", m, err))
				continue
			}
			byFile[f.file] = append(byFile[f.file], mutation{m.Name, f, body, e.Imports})
		}
	}
	files := map[string]string{}
	for s, changes := range byFile {
		files[s.name] = s.with(changes)
	}
	return files, errors.Join(errs...)
}

// with gives a file's text with its mutants: copies of functions behind its end, and switches in
// the functions themselves. No line moves.
func (s *mutantsSource) with(changes []mutation) string {
	head := s.at(s.tree.Name.End())
	spans := []span{{head, head, "; import " + strconv.Quote(module+"/"+self) + s.lacking(changes)}}
	var behind strings.Builder
	byFunction := map[*function]string{}
	for _, c := range changes {
		sig := c.f.signature()
		call := sig.call("__" + c.mutant)
		if c.f.decl.Type.Results != nil {
			call = "return " + call
		} else {
			call += "; return"
		}
		byFunction[c.f] += fmt.Sprintf(" if proof.On(%q) { %s };", c.mutant, call)
		fmt.Fprintf(&behind, "\n//line mutant-%s.go:1\n%s__%s%s{%s\n}\n", c.mutant, sig.before, c.mutant,
			sig.after, c.body)
	}
	for f, switches := range byFunction {
		sig := f.signature()
		spans = append(spans, span{
			s.at(f.decl.Pos()), s.at(f.decl.Body.Lbrace) + 1, sig.before + sig.after + "{" + switches,
		})
	}
	return replaced(s.text, 0, spans) + behind.String()
}

// lacking gives the imports that mutants need and the file does not have.
func (s *mutantsSource) lacking(changes []mutation) (imports string) {
	has := map[string]bool{}
	for _, i := range s.tree.Imports {
		has[strings.Trim(i.Path.Value, `"`)] = true
	}
	for _, c := range changes {
		for _, path := range c.imports {
			if !has[path] {
				imports += "; import " + strconv.Quote(path)
			}
			has[path] = true
		}
	}
	return imports
}

// signature is what stands before a function's body, all parameters named.
type signature struct {
	before, after  string // up to its name, and behind that
	receiver, name string // "r." or ""
	types, args    []string
}

func (f *function) signature() signature {
	s, d := f.file, f.decl
	sig := signature{name: d.Name.Name}
	var names []span
	number := 0
	name := func(list *ast.FieldList) (all []string) {
		if list == nil {
			return nil
		}
		for _, field := range list.List {
			more := ""
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				more = "..."
			}
			if len(field.Names) == 0 {
				number++
				given := fmt.Sprintf("arg%d__", number)
				names = append(names, span{s.at(field.Type.Pos()), s.at(field.Type.Pos()), given + " "})
				all = append(all, given+more)
			}
			for _, id := range field.Names {
				given := id.Name
				if given == "_" {
					number++
					given = fmt.Sprintf("arg%d__", number)
					names = append(names, span{s.at(id.Pos()), s.at(id.End()), given})
				}
				all = append(all, given+more)
			}
		}
		return all
	}
	if receiver := name(d.Recv); len(receiver) > 0 {
		sig.receiver = receiver[0] + "."
	}
	sig.types = name(d.Type.TypeParams)
	sig.args = name(d.Type.Params)
	start, end := s.at(d.Pos()), s.at(d.Name.End())
	sig.before = replaced(s.between(d.Pos(), d.Name.End()), start, names)
	sig.after = replaced(s.between(d.Name.End(), d.Body.Lbrace), end, names)
	return sig
}

// call gives a call of the function with an ending added to its name.
func (sig *signature) call(ending string) string {
	types := ""
	if len(sig.types) > 0 {
		types = "[" + strings.Join(sig.types, ", ") + "]"
	}
	return sig.receiver + sig.name + ending + types + "(" + strings.Join(sig.args, ", ") + ")"
}

// span is a part of a file and what takes its place.
type span struct {
	from, to int
	text     string
}

// replaced replaces the spans that lie in a part of a file, which begins at an offset.
func replaced(part string, offset int, spans []span) string {
	var b strings.Builder
	done := 0
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spans {
		if from, to := s.from-offset, s.to-offset; from >= done && to <= len(part) {
			b.WriteString(part[done:from])
			b.WriteString(s.text)
			done = to
		}
	}
	return b.String() + part[done:]
}
