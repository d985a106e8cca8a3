package proof

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// What a document calls the code's: Type.method, package.Name or a name of two words. Keys of a
	// configuration are small letters, and those of rows have a number in capitals.
	dotted = regexp.MustCompile(`^(\w*[A-Z]\w*|[a-z]+)\.(\w+)$`)
	public = regexp.MustCompile(`^[A-Z]\w*[a-z]`)
	humped = regexp.MustCompile(`^[a-z]+[A-Z]\w*$`)
	// A file and the names of it that follow: start.go `Prepare`, `MakeQueues`.
	filed  = regexp.MustCompile("\\b(\\w+\\.go)((?:,? `[\\w.]+`)+)")
	quotes = regexp.MustCompile("`([^`]+)`")
	placed = regexp.MustCompile(`[\w./-]+/\w+\.go\b`) // a file in its folder
)

// TestNamesOfTheDesignAreThoseOfTheCode: in the design and the protocols a reader who looks a name up finds it.
func TestNamesOfTheDesignAreThoseOfTheCode(t *testing.T) {
	known := names(t)
	all := 0
	for _, name := range []string{"design.md", "protocols.md"} {
		d, err := ReadFile(root, filepath.Join(root, "docs", name))
		must(t, err)
		looked, unknown := known.unknown(d)
		for _, problem := range unknown {
			t.Error(problem)
		}
		all += looked
	}
	if all < 90 {
		t.Errorf("only %d names were looked up", all)
	}
	// The rule itself: what it finds.
	text := "# A\n`cutWire`, (put.go\n`Putter.Send`, `picks`), `Putter.sends`, `distributor.New`,\n" +
		"`distributor.Newer`, `json.Decoder`, `start`, `max-rate`, `Put` and back/put.go\n"
	_, unknown := known.unknown(Document{Path: "a.md", Lines: strings.Split(text, "\n")})
	want := []string{"cutWire", "picks of put.go", "Putter.sends", "distributor.Newer", "back/put.go"}
	Same(t, len(unknown), len(want), "names are unknown:", unknown, "of", want)
	for _, w := range want {
		if !slices.ContainsFunc(unknown, func(u string) bool { return strings.HasSuffix(u, w) }) {
			t.Errorf("unknown are %q, and not %q", unknown, w)
		}
	}
}

// declared are the names of the code.
type declared struct {
	names   map[string]bool // at the top of a package, methods and fields
	members map[string]bool // Type.method, Type.field, package.Name
	in      map[string]bool // file.go name
	ours    map[string]bool // packages
	types   map[string]bool
	files   []string // with their folders
}

// unknown says what of a document is in no code, and how many names it looked up.
func (k *declared) unknown(d Document) (looked int, problems []string) {
	text := strings.Join(d.Prose(), " ")
	add := func(what string) {
		what = fmt.Sprintf("%s: the code has no %s", d.Path, what)
		if !slices.Contains(problems, what) {
			problems = append(problems, what)
		}
	}
	for _, path := range placed.FindAllString(text, -1) {
		looked++
		if !slices.ContainsFunc(k.files, func(f string) bool { return strings.HasSuffix(f, "/"+path) }) {
			add(path)
		}
	}
	for _, m := range filed.FindAllStringSubmatch(text, -1) {
		for _, name := range quotes.FindAllStringSubmatch(m[2], -1) {
			looked++
			if last := name[1][strings.LastIndex(name[1], ".")+1:]; !k.in[m[1]+" "+last] {
				add(last + " of " + m[1])
			}
		}
	}
	for _, m := range quotes.FindAllStringSubmatch(text, -1) {
		name := m[1]
		switch part := dotted.FindStringSubmatch(name); {
		case part != nil && k.owns(part[1], part[2]):
			if looked++; !k.members[name] {
				add(name)
			}
		case humped.MatchString(name):
			if looked++; !k.names[name] {
				add(name)
			}
		}
	}
	return looked, problems
}

// owns reports whether what is named must be the code's, and not another program's or a key.
func (k *declared) owns(owner, name string) bool {
	return k.ours[owner] && public.MatchString(name) || k.types[owner] && owner != strings.ToLower(owner)
}

// names reads all of the code, tests too.
func names(t *testing.T) *declared {
	t.Helper()
	k := &declared{
		names: map[string]bool{}, members: map[string]bool{}, in: map[string]bool{},
		ours: map[string]bool{}, types: map[string]bool{},
	}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		switch name := e.Name(); {
		case err != nil:
			return err
		case e.IsDir() && (name == ".git" || name == "node_modules" || name == "out"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		k.ours[f.Name.Name], k.files = true, append(k.files, filepath.ToSlash(path))
		for _, d := range f.Decls {
			k.add(filepath.Base(path), f.Name.Name, d)
		}
		return nil
	})
	must(t, err)
	return k
}

func (k *declared) add(file, pkg string, d ast.Decl) {
	note := func(owner, name string) {
		k.names[name], k.members[owner+"."+name], k.in[file+" "+name] = true, true, true
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			note(pkg, d.Name.Name)
		} else {
			note(receiver(d.Recv.List[0].Type), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				note(pkg, s.Name.Name)
				k.types[s.Name.Name] = true
				ast.Inspect(s.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok {
						for _, name := range f.Names {
							note(s.Name.Name, name.Name)
						}
					}
					return true
				})
			case *ast.ValueSpec:
				for _, name := range s.Names {
					note(pkg, name.Name)
				}
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
