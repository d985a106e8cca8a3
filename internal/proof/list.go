package proof

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// listFile is where a package's mutants are listed, in the package's folder.
const listFile = "testdata/mutants.txt"

// Mutant is a mistake that tests must find.
type Mutant struct {
	Name    string // an identifier
	What    string // the mistake, as a sentence without a full stop
	FoundBy string // a way of searching, a file of testdata, or a test; folder.Test in another package
	Also    string // a way of searching, of any package, that must find it too; or ""
	Edits   []Edit
	Folder  string // of the package that lists it, from the module's root
	Line    int    // in its list
}

// Edit is what a mutant changes in one function.
type Edit struct {
	Folder   string // of the package, from the module's root
	Function string // as in "planOf", "(*recorder).begin" or "verdict.String"
	Imports  []string
	Changes  []Change
}

// Change replaces lines that stand in a function exactly once.
type Change struct {
	Old, New []string
	Line     int // in the list
}

func (m *Mutant) String() string {
	return fmt.Sprintf("%s/%s:%d: mutant %s", m.Folder, listFile, m.Line, m.Name)
}

// Root gives the module's root: the folder of go.mod, here or above.
func Root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("there is no go.mod here or above")
		}
		dir = up
	}
	return "", err
}

// ReadAll reads the lists of all packages below the root.
func ReadAll(root string) ([]Mutant, error) {
	var all []Mutant
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() &&
			(e.Name() == "node_modules" || e.Name() == "out" ||
				strings.HasPrefix(e.Name(), ".") && name != root) {
			return filepath.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(filepath.ToSlash(name), "/"+listFile) {
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(filepath.Dir(name)))
		if err != nil {
			return err
		}
		list, err := ReadMutants(root, filepath.ToSlash(folder))
		all = append(all, list...)
		return err
	})
	if err != nil {
		return nil, err
	}
	seen := map[string]*Mutant{}
	for i := range all {
		m := &all[i]
		if other := seen[m.Name]; other != nil {
			return nil, fmt.Errorf("%s has the name of another (%s)", m, other)
		}
		seen[m.Name] = m
	}
	return all, nil
}

// ReadMutants reads the list of the package in a folder, which is given from the root.
func ReadMutants(root, folder string) ([]Mutant, error) {
	text, err := os.ReadFile(
		filepath.Join(root, filepath.FromSlash(folder), filepath.FromSlash(listFile)),
	)
	if err != nil {
		return nil, err
	}
	return parse(folder, string(text))
}

func parse(folder, text string) ([]Mutant, error) {
	p := lister{folder: folder}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(i+1, strings.TrimRight(line, " \t\r")); err != nil {
			return nil, fmt.Errorf("%s/%s:%d: %w", folder, listFile, i+1, err)
		}
	}
	for i := range p.all {
		if err := p.all[i].check(); err != nil {
			return nil, fmt.Errorf("%s: %w", &p.all[i], err)
		}
	}
	return p.all, nil
}

// lister reads a list line by line.
type lister struct {
	folder string
	all    []Mutant
	apart  bool // the next line of a change begins another one
}

func (p *lister) line(number int, line string) error {
	switch {
	case line == "" || line[0] == '#':
		return nil
	case strings.HasPrefix(line, "mutant "):
		name, what, ok := strings.Cut(strings.TrimPrefix(line, "mutant "), ": ")
		if !ok {
			return errors.New("write \"mutant NAME: the mistake\"")
		}
		p.all = append(p.all, Mutant{Name: name, What: what, Folder: p.folder, Line: number})
		return nil
	case len(p.all) == 0:
		return errors.New("a line before the first \"mutant NAME: the mistake\"")
	}
	m := &p.all[len(p.all)-1]
	switch {
	case strings.HasPrefix(line, "found by "):
		m.FoundBy = strings.TrimPrefix(line, "found by ")
	case strings.HasPrefix(line, "and by "):
		m.Also = strings.TrimPrefix(line, "and by ")
	case strings.HasPrefix(line, "in "):
		e := Edit{Folder: p.folder, Function: strings.TrimPrefix(line, "in ")}
		if folder, function, ok := strings.Cut(e.Function, " "); ok {
			e.Folder, e.Function = path.Clean(folder), function
		}
		m.Edits = append(m.Edits, e)
		p.apart = true
	case len(m.Edits) == 0:
		return fmt.Errorf("%q is neither \"found by ...\" nor \"and by ...\" nor \"in FUNCTION\"", line)
	case strings.HasPrefix(line, "import "):
		e := &m.Edits[len(m.Edits)-1]
		e.Imports = append(e.Imports, strings.TrimPrefix(line, "import "))
	case line == "@@":
		p.apart = true
	default:
		return p.change(&m.Edits[len(m.Edits)-1], number, line)
	}
	return nil
}

// change adds a line of a change to an edit.
func (p *lister) change(e *Edit, number int, line string) error {
	if p.apart {
		e.Changes = append(e.Changes, Change{Line: number})
		p.apart = false
	}
	c := &e.Changes[len(e.Changes)-1]
	text := line[1:]
	switch line[0] {
	case '-':
		c.Old = append(c.Old, text)
	case '+':
		c.New = append(c.New, text)
	case ' ', '\t':
		c.Old, c.New = append(c.Old, text), append(c.New, text)
	default:
		return fmt.Errorf("%q: a line of a change begins with -, + or a blank", line)
	}
	return nil
}

func (m *Mutant) check() error {
	switch {
	case strings.Trim(m.Name,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" || m.Name == "":
		return errors.New("a name is letters and digits")
	case m.FoundBy == "":
		return errors.New("it is not said what it is \"found by\"")
	case len(m.Edits) == 0:
		return errors.New("it changes nothing")
	}
	for _, e := range m.Edits {
		if len(e.Changes) == 0 {
			return fmt.Errorf("it changes nothing in %s", e.Function)
		}
		for _, c := range e.Changes {
			if len(c.Old) == 0 {
				return fmt.Errorf("line %d: no line tells where in %s it belongs", c.Line, e.Function)
			}
			if slices.Equal(c.Old, c.New) {
				return fmt.Errorf("line %d: nothing is changed in %s", c.Line, e.Function)
			}
		}
	}
	return nil
}
