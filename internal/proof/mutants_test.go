package proof

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEveryMutantAppliesToTheCodeAsItIs(t *testing.T) {
	root, err := Root()
	must(t, err)
	list, err := ReadAll(root)
	must(t, err)
	if len(list) < 29 {
		t.Fatalf("%d mutants are listed", len(list))
	}
	for i := range list {
		if m := &list[i]; m.Also != "" && !strings.HasPrefix(m.Also, "worlds") {
			t.Errorf("%s is found by %q as well, and no package has that way", m, m.Also)
		}
	}
	files, err := build(root, list)
	must(t, err)
	for name, text := range files {
		Is(t, ErrOf(parser.ParseFile(token.NewFileSet(), name, text, 0)), nil)
	}
}

// ofProof are the packages beside this one that only tests and measuring programs use.
var ofProof = regexp.MustCompile(`^(internal/mutants|internal/packaging|pump/internal/test(kit|world))/`)

func TestNoProductionCodeKnowsOfMutants(t *testing.T) {
	root, err := Root()
	must(t, err)
	err = filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		inside, _ := filepath.Rel(root, name)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (inside == filepath.FromSlash(self) || e.Name() == "out" || e.Name() == "node_modules"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if strings.Contains(string(text), self+`"`) && !ofProof.MatchString(filepath.ToSlash(inside)) {
			t.Errorf("%s imports %s", inside, self)
		}
		return err
	})
	Is(t, err, nil)
}

// folderWith makes a module with one package, p, of one file, and its list.
func folderWith(t *testing.T, code, list string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                 "module example.com/m\n",
		"p/p.go":                 code,
		"p/testdata/mutants.txt": list,
	} {
		name = filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return root
}

const someCode = `package p

import "fmt"

type box[T any] struct{ all []T }

func (b *box[T]) put(_ string, many ...T) (n int, err error) {
	// A remark.
	if len(many) == 0 {
		return 0, fmt.Errorf("nothing")
	}

	b.all = append(b.all, many...)
	return len(many), nil
}

func first[T any, U comparable](all []T, _ U) T {
	return all[0]
}

func (box[T]) say(int) { fmt.Println("a") }
`

func TestAMutatedFunctionAsksWhichMutantIsAtWorkAndKeepsItsLines(t *testing.T) {
	root := folderWith(t, someCode, `
# two in one function
mutant empty: nothing is put and that is no error
found by TestX
in (*box).put
import time
import fmt
-	if len(many) == 0 {
-		return 0, fmt.Errorf("nothing")
-	}
@@
 	b.all = append(b.all, many...)
-return len(many), nil
+return len(b.all), nil

mutant twice: all is put twice
found by TestX
in (*box).put
+	b.all = append(b.all, many...)
 	b.all = append(b.all, many...)
in first
-	return all[0]
+	return all[1]
in box.say
-	fmt.Println("a")
+	fmt.Println("b")
`)
	list, err := ReadAll(root)
	must(t, err)
	files, err := build(root, list)
	must(t, err)
	text := files[filepath.Join(root, "p", "p.go")]
	lines, old := strings.Split(text, "\n"), strings.Split(someCode, "\n")
	for i := range old {
		if !strings.Contains(old[i], "func ") && !strings.HasPrefix(old[i], "package") && lines[i] != old[i] {
			t.Errorf("line %d is %q now", i+1, lines[i])
		}
	}
	for _, want := range []string{
		`package p; import "github.com/queuepump/queuepump/internal/proof"; import "time"` + "\n",
		`func (b *box[T]) put(arg1__ string, many ...T) (n int, err error) {` +
			` if proof.On("empty") { return b.put__empty(arg1__, many...) }; if proof.On("twice") { return b.put__twice(arg1__, many...) };` + "\n",
		`if proof.On("twice") { return first__twice[T, U](all, arg1__) };`,
		`func (arg1__ box[T]) say(arg2__ int) { if proof.On("twice") { arg1__.say__twice(arg2__); return };`,
		"//line mutant-empty.go:1\nfunc (b *box[T]) put__empty(arg1__ string, many ...T) (n int, err error) {\n",
		"\tb.all = append(b.all, many...)\nreturn len(b.all), nil\n\n}\n",
	} {
		Has(t, text, want)
	}
}

func TestAMutantThatDoesNotApplyIsAnErrorThatSaysWhere(t *testing.T) {
	const head = "mutant m: a mistake\nfound by TestX\n"
	for list, want := range map[string]string{
		head + "in gone\n-x\n+y":                      "p/testdata/mutants.txt:1: mutant m: there is no function gone in p",
		head + "in first\n-return all[2]\n+y":         "line 4 of the list: first of p has no such lines:\nreturn all[2]",
		head + "in (*box).put\n-}\n+{":                "", // the closing brace of the if stands once
		head + "in first\n-return all[0]":             "",
		head + "in first\n+return all[0]":             "line 4: no line tells where in first it belongs",
		head + "in first\n return all[0]":             "line 4: nothing is changed in first",
		head + "in first":                             "it changes nothing in first",
		head:                                          "it changes nothing",
		"mutant m: a mistake\nin first\n-x":           `it is not said what it is "found by"`,
		"mutant m\n":                                  `write "mutant NAME: the mistake"`,
		"mutant a-b: a mistake\nfound by x\nin f\n-x": "a name is letters and digits",
		"in first\n":                                  "a line before the first",
		head + "on first\n":                           `"on first" is neither`,
		head + "in first\n-return all[0]\n" + head + "in first\n-return all[0]": "mutant m has the name of another",
		head + "in first\nreturn all[0]\n":                                      "a line of a change begins with -, + or a blank",
	} {
		root := folderWith(t, someCode, list)
		all, err := ReadAll(root)
		if err == nil {
			_, err = build(root, all)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
	twice := strings.Replace(
		someCode, "	return all[0]\n", "	all[0] = all[0]\n	all[0] = all[0]\n	return all[0]\n", 1,
	)
	root := folderWith(t, twice, head+"in first\n-all[0] = all[0]")
	all, err := ReadAll(root)
	if err == nil {
		_, err = build(root, all)
	}
	Says(t, err, "has these lines 2 times")
}
