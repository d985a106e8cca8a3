package configfile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/queuepump/queuepump/internal/logs"
)

// decoder reads the parsed file into a [File]. It notes the line of every field, and collects what
// is wrong. The YAML library's decoder into structs of Go is not used: it stops at the first error,
// takes 1.5 and "8" for the whole numbers 1 and 8, follows aliases, and its errors quote the
// source.
type decoder struct {
	*File
	env  func(string) (string, bool)
	errs Errors
}

// field is one field of a mapping: where its value goes, and what to write instead of a wrong one.
type field struct {
	name         string
	to           any // a group, an item, a text, or a pointer to what the value is
	problem, fix string
	zero         int // the value that 0 stands for; 0: 0 is out of range
}

type (
	// group is a mapping. Then checks it as a whole; ok says whether each of its fields is right.
	group struct {
		fields []field
		then   func(path string, ok bool)
	}
	// item takes one item of a list. The field's fix is an example of one.
	item func(path string, n ast.Node)
	// text takes a value of one or more characters. If it is not ok, it has the field's problem.
	text func(s string) (ok bool)
)

// maxErrors is how many errors are reported: no reader takes in more.
const maxErrors = 20

func (d *decoder) fail(field, problem, fix string) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, d.wrong(field, problem, fix))
	}
}

// mistyped is the error for a node of the wrong kind.
func (d *decoder) mistyped(path string, n ast.Node, wanted, fix string) {
	problem := "has no value"
	if n.Type() != ast.NullType {
		problem = "is a YAML " + n.Type().YAMLName() + ", not " + wanted
	}
	d.fail(path, problem, fix)
}

// root parses the text to its one mapping. The parser's own errors quote the
// source, which may hold a secret: only its fixed words and the line are kept.
func (d *decoder) root(text []byte) (root ast.Node, e *Error) {
	broken := d.wrong("", "is not valid YAML", "check its indentation, quotes and brackets")
	defer func() {
		if recover() != nil { // the parser panics on input that its authors did not expect
			root, e = nil, broken
		}
	}()
	// The decoder finds duplicates; its message quotes no values.
	f, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if ye, ok := errors.AsType[yaml.Error](err); ok {
			what, _, _ := strings.Cut(ye.GetMessage(), `"`)
			broken.Problem += ": " + strings.TrimSpace(what)
			broken.Line = ye.GetToken().Position.Line
		}
		return nil, broken
	}
	docs := slices.DeleteFunc(f.Docs, func(doc *ast.DocumentNode) bool { return doc.Body == nil })
	if len(docs) == 0 {
		return nil, d.wrong("", "is empty", "give at least workload and accounts")
	}
	root, e = docs[0].Body, d.wrong("", "is not a list of fields", "begin with `workload: NAME`")
	_, ok := root.(ast.MapNode)
	if len(docs) > 1 {
		root, ok = docs[1].Body, false
		e = d.wrong("", "holds more than one YAML document", "keep one, without ---")
	}
	if ok {
		return root, nil
	}
	e.Line = root.GetToken().Position.Line
	return nil, e
}

func (d *decoder) read(path string, n ast.Node, f field) {
	switch to := f.to.(type) {
	case group:
		d.group(path, n, to)
	case item:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			d.mistyped(path, n, "a list", "begin each item with a dash: `  - "+f.fix+"`")
			return
		}
		for i, v := range list.Values {
			p := fmt.Sprintf("%s[%d]", path, i)
			d.lines[p] = v.GetToken().Position.Line
			to(p, v)
		}
	default:
		d.scalar(path, n, f)
	}
}

// group reads the fields of a mapping; what it does not know is an error.
func (d *decoder) group(path string, n ast.Node, g group) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.mistyped(path, n, "a list of fields",
			"indent its fields below it, as in `"+g.fields[0].name+": ...`")
		return
	}
	failed := len(d.errs)
	for i := m.MapRange(); i.Next(); {
		key := i.Key().GetToken()
		name := key.Value
		known := slices.IndexFunc(g.fields, func(f field) bool { return f.name == name })
		if !fieldName.MatchString(name) { // such as a value, after a lost line break
			name = "(not a field's name)"
		}
		p := strings.TrimPrefix(path+"."+name, ".")
		first := d.lines[p]
		d.lines[p] = key.Position.Line
		switch {
		case known < 0:
			d.fail(p, "is not a field", suggestion(key.Value, g.fields))
		case first > 0:
			d.fail(p, fmt.Sprintf("is given twice (first on line %d)", first), "keep one")
		default:
			d.read(p, i.Value(), g.fields[known])
		}
	}
	if g.then != nil {
		g.then(path, len(d.errs) == failed)
	}
}

var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,39}$`)

// scalar reads a single value. A text may be a number as it was written: `name: 123` is a name.
func (d *decoder) scalar(path string, n ast.Node, f field) {
	var written string
	quoted := false
	switch v := n.(type) {
	case *ast.StringNode:
		written, quoted = v.Value, true
	case *ast.LiteralNode:
		written = v.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		written = n.GetToken().Value
	default:
		d.mistyped(path, n, "a single value", "write its value out, or remove the line")
		return
	}
	s, names, err := Expand(written, d.env)
	if err != nil {
		d.unexpanded(path, err)
		return
	}
	d.Variables = append(d.Variables, names...)
	if s == "" {
		d.fail(path, "is empty", "give a value, or remove the line")
		return
	}
	shown := logs.Quoted(s)
	if s != written { // no error shows what a variable or a file holds
		shown, quoted = "the variable's value", false
	}
	problem, fix := "", f.fix
	switch to := f.to.(type) {
	case *string:
		*to = s
	case text:
		if !to(s) {
			problem = f.problem
		}
	case *bool:
		if *to = s == "true"; !*to && s != "false" {
			problem, fix = "is neither true nor false", "write true or false without quotes"
		}
	case *time.Duration:
		if *to, err = time.ParseDuration(s); err != nil {
			problem, fix = "is not a length of time", "write it as 168h, 36h or 90m"
		}
	case *int:
		switch *to, err = strconv.Atoi(strings.ReplaceAll(s, "_", "")); {
		case err != nil || quoted:
			problem, fix = "is not a whole number", "write it as digits without quotes, as in 8"
		case *to < 0 || *to == 0 && f.zero == 0:
			problem, shown = "is out of range", fmt.Sprint(*to)
		}
		*to = cmp.Or(*to, f.zero)
	case *float64:
		switch *to, err = strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64); {
		case err != nil || quoted || math.IsNaN(*to) || math.IsInf(*to, 0):
			problem, fix = "is not a number", "write it as digits without quotes, as in 1.5"
		case *to <= 0:
			problem, shown = "is out of range", fmt.Sprint(*to)
		}
	}
	if problem != "" {
		d.fail(path, shown+" "+problem, fix)
	}
}

// unexpanded says that a value refers to a variable or file that cannot be read. Only a command
// that opens an admin port needs the variables of that port.
func (d *decoder) unexpanded(path string, err error) {
	ue, unset := errors.AsType[*undefinedError](err)
	switch {
	case !unset:
		d.fail(path, err.Error(), "write ${NAME} or ${file:PATH}, or $${ for a literal ${")
	case strings.HasPrefix(path, "admin."):
		d.unset = append(d.unset, d.wrong(path, err.Error(), ue.fix()))
	default:
		d.fail(path, err.Error(), ue.fix())
	}
}
