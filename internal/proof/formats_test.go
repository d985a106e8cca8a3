package proof

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rowFolders have the code that writes rows of the table.
var rowFolders = []string{
	"pump/internal/cluster",
	"pump/internal/election",
	"pump/internal/sampling",
	"pump/internal/ledger",
	"pump/internal/workload",
	"pump/coordination",
	"pump/processor/internal/settle",
}

var (
	columnName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)
	// numbered is how the columns of a value are named that is spread over several.
	numbered = regexp.MustCompile(`^([A-Z][a-z]+)%d$`)
	// readers are the methods of row.Fields that read a column, and PutParts writes several.
	readers = []string{
		"Text", "Line", "Integer", "Count", "UpTo", "Number", "Flag", "Binary", "Moment", "Parts",
		"Duration", "Run", "PutParts",
	}
)

// columns are the names of columns that the code of a folder reads and writes.
func columns(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(files), err)
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		must(t, err)
		for n := range ast.Preorder(parsed) {
			for _, name := range columnsOf(n) {
				if columnName.MatchString(name) {
					found[name] = true
				}
			}
		}
	}
	return found
}

// columnsOf are the literals of a piece of code that may be names of columns.
func columnsOf(n ast.Node) (names []string) {
	add := func(e ast.Expr) {
		if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			name, _ := strconv.Unquote(literal.Value)
			names = append(names, name)
		}
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr: // {"State": ...}
		add(n.Key)
	case *ast.IndexExpr: // props["Reducer"]
		add(n.Index)
	case *ast.ValueSpec: // const epochProperty = "Epoch"
		if strings.HasSuffix(n.Names[0].Name, "Property") {
			for _, value := range n.Values {
				add(value)
			}
		}
	case *ast.CompositeLit: // {"Handled", &t.Handled}
		if len(n.Elts) == 2 {
			if _, ok := n.Elts[1].(*ast.UnaryExpr); ok {
				add(n.Elts[0])
			}
		}
	case *ast.CallExpr: // f.Text("State")
		if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(readers, method.Sel.Name) {
			for _, a := range n.Args {
				add(a)
			}
		}
	case *ast.BasicLit: // "Owners%d"
		if name, err := strconv.Unquote(n.Value); err == nil {
			if m := numbered.FindStringSubmatch(name); m != nil {
				names = append(names, m[1]+"0")
			}
		}
	}
	return names
}

func TestEveryColumnOfARowIsInTheTable(t *testing.T) {
	d, err := ReadFile(root, filepath.Join(root, "docs", "formats.md"))
	must(t, err)
	_, rows, _ := strings.Cut(strings.Join(d.Lines, "\n"), "\n## Rows\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	all := 0
	for _, folder := range rowFolders {
		found := columns(t, folder)
		all += len(found)
		for name := range found {
			if !strings.Contains(rows, "`"+name+"`") && !strings.Contains(rows, "`"+name+"0`") {
				t.Errorf("docs/formats.md lacks the column %s of %s", name, folder)
			}
		}
	}
	if all < 100 {
		t.Errorf("only %d columns were found", all)
	}
}
