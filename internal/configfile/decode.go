package configfile

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/queuepump/queuepump/internal/redact"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// decoder walks the parsed file. It notes the line of every field, for errors
// that are found later, and collects what is wrong rather than stopping at the first.
type decoder struct {
	file      string
	env       func(string) (string, bool)
	lines     map[string]int
	variables []string
	admin     Admin
	page      Page
	events    string
	inAdmin   bool // what is read now is the admin port's
	errs      Errors
	unset     Errors // variables of the admin port that are not set
}

// maxErrors is how many errors are reported: no reader takes in more.
const maxErrors = 20

func (d *decoder) fail(line int, field, problem, fix string) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, &Error{
			File: d.file, Line: line, Field: field, Problem: problem, Fix: fix,
		})
	}
}

// field is one field that a mapping may have.
type field struct {
	name string
	read func(path string, n ast.Node)
}

func (d *decoder) config(root *ast.MappingNode) pump.Config {
	var c pump.Config
	d.mapping("", root, []field{
		{"workload", func(path string, n ast.Node) { c.Workload, _ = d.text(path, n) }},
		{"accounts", func(path string, n ast.Node) {
			d.sequence(path, n, func(path string, n ast.Node) {
				c.Accounts = append(c.Accounts, d.account(path, n))
			})
		}},
		{"control", func(path string, n ast.Node) { c.Control, _ = d.text(path, n) }},
		{"segments", func(path string, n ast.Node) { c.Segments = d.segments(path, n) }},
		{"delivery", func(path string, n ast.Node) {
			s, _ := d.text(path, n)
			c.Delivery = pump.Delivery(s)
		}},
		{"foreign", func(path string, n ast.Node) { d.foreign(path, n, &c) }},
		{"retention", func(path string, n ast.Node) { c.Retention = d.duration(path, n) }},
		{"budget", func(path string, n ast.Node) { c.Budget = d.budget(path, n) }},
		{"prices", func(path string, n ast.Node) { c.Prices = d.prices(path, n) }},
		{"admin", d.readAdmin},
		{"page", d.readPage},
		{"scheduledEvents", d.readEvents},
	})
	for _, name := range []string{"workload", "accounts"} {
		if _, ok := d.lines[name]; !ok {
			d.fail(0, name, "is missing", map[string]string{
				"workload": "add `workload: NAME`, 3 to 40 of a-z, 0-9 and single dashes",
				"accounts": "add `accounts:` and under it `  - connectionString: ...` for each storage account",
			}[name])
		}
	}
	return c
}

// duration reads a length of time such as 168h.
func (d *decoder) duration(path string, n ast.Node) time.Duration {
	s, ok := d.text(path, n)
	if !ok {
		return 0
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		d.fail(line(n), path, fmt.Sprintf("%q is no length of time", s), "write it as 168h, 36h or 90m")
	}
	return t
}

func (d *decoder) account(path string, n ast.Node) pump.Account {
	var a pump.Account
	d.mapping(path, n, []field{
		{"connectionString", func(path string, n ast.Node) { a.ConnectionString, _ = d.text(path, n) }},
		{"endpoint", func(path string, n ast.Node) { a.Endpoint, _ = d.text(path, n) }},
		{"tableEndpoint", func(path string, n ast.Node) { a.TableEndpoint, _ = d.text(path, n) }},
		{"name", func(path string, n ast.Node) { a.Name, _ = d.text(path, n) }},
		{"queues", func(path string, n ast.Node) {
			if v, ok := d.integer(path, n); ok && v < 1 {
				d.fail(line(n), path, fmt.Sprintf("%d is out of range", v),
					fmt.Sprintf("use 1 to 100, or leave it out for %d", pump.DefaultQueues))
			} else {
				a.Queues = v
			}
		}},
		{"foreignQueues", func(path string, n ast.Node) {
			d.sequence(path, n, func(path string, n ast.Node) {
				if name, ok := d.text(path, n); ok {
					a.Foreign = append(a.Foreign, name)
				}
			})
		}},
		{"weight", func(path string, n ast.Node) {
			if v, ok := d.number(path, n); ok && v <= 0 {
				d.fail(line(n), path, fmt.Sprintf("%v is out of range", v),
					"use 0.01 to 100, or leave it out for 1")
			} else {
				a.Weight = v
			}
		}},
		{"serviceVersion", func(path string, n ast.Node) {
			s, ok := d.text(path, n)
			if err := azure.CheckServiceVersion(s); ok && (err != nil || s == "") {
				d.fail(line(n), path, fmt.Sprintf("%s is no version that can be used", redact.Quoted(s)),
					"write a date from 2017-07-29 on, such as 2019-07-07, or leave it out for the newest")
				return
			}
			a.ServiceVersion = s
		}},
		{"allowHTTP", func(path string, n ast.Node) { a.AllowHTTP, _ = d.boolean(path, n) }},
		{"identity", func(path string, n ast.Node) { a.Credential = d.identity(path, n) }},
	})
	if _, ok := asMapping(n); !ok {
		return a // reported by mapping
	}
	_, hasString := d.lines[path+".connectionString"]
	_, hasEndpoint := d.lines[path+".endpoint"]
	_, hasTable := d.lines[path+".tableEndpoint"]
	switch {
	case hasString && hasEndpoint:
		d.fail(d.lines[path+".endpoint"], path+".endpoint",
			"stands beside connectionString, which names the endpoint already", "keep one of the two")
	case hasString && hasTable:
		d.fail(d.lines[path+".tableEndpoint"], path+".tableEndpoint",
			"belongs to endpoint, not to connectionString",
			"write TableEndpoint= into the connection string")
	case a.Credential != nil && (hasString || strings.Contains(a.Endpoint, "?")):
		d.fail(d.lines[path+".identity"], path+".identity",
			"stands beside a key or a shared access signature", "keep one of the two")
	case !hasString && !hasEndpoint:
		d.fail(d.lines[path], path, "says nothing about where the account is",
			"add `connectionString: ...`, or `endpoint: https://NAME.queue.core.windows.net`")
	}
	return a
}

// segments maps the file's 0 to Shared, because in [pump.Config] 0 is "not set".
func (d *decoder) segments(path string, n ast.Node) int {
	v, ok := d.integer(path, n)
	switch {
	case ok && v == 0:
		return pump.Shared
	case ok && v < 0:
		d.fail(line(n), path, fmt.Sprintf("%d is not a possible number of segments", v),
			"use a multiple of 64 up to 16384, 0 for a shared workload, or leave it out")
		return 0
	}
	return v
}

// foreign reads how messages of other programs are read.
func (d *decoder) foreign(path string, n ast.Node, c *pump.Config) {
	d.mapping(path, n, []field{
		{"encoding", func(path string, n ast.Node) { c.ForeignEncoding, _ = d.text(path, n) }},
		{"key", func(path string, n ast.Node) { c.ForeignKey, _ = d.text(path, n) }},
	})
}

func (d *decoder) budget(path string, n ast.Node) pump.Budget {
	var b pump.Budget
	rate := func(dst *float64) func(string, ast.Node) {
		return func(path string, n ast.Node) {
			if v, ok := d.number(path, n); ok && v <= 0 {
				d.fail(line(n), path, fmt.Sprintf("%v is out of range", v),
					"use 1 to 1e9 messages a second, or leave it out for the published limit")
			} else {
				*dst = v
			}
		}
	}
	d.mapping(path, n, []field{
		{"account", rate(&b.Account)},
		{"queue", rate(&b.Queue)},
		{"costPerDay", func(path string, n ast.Node) {
			if v, ok := d.number(path, n); ok && v <= 0 {
				d.fail(line(n), path, fmt.Sprintf("%v is out of range", v),
					"use what a day may cost, or leave it out for no cap")
			} else {
				b.CostPerDay = v
			}
		}},
		{"getCost", func(path string, n ast.Node) {
			switch s, ok := d.text(path, n); {
			case !ok:
			case s == "messages":
				b.GetCostsMessages = new(true)
			case s == "request":
				b.GetCostsMessages = new(false)
			default:
				d.fail(line(n), path, fmt.Sprintf("%s is no way to count a get", redact.Quoted(s)),
					"use messages (each message counts) or request (a get counts as one)")
			}
		}},
	})
	return b
}

func (d *decoder) readAdmin(path string, n ast.Node) {
	d.inAdmin = true
	defer func() { d.inAdmin = false }()
	d.mapping(path, n, []field{
		{"listen", func(path string, n ast.Node) {
			if s, ok := d.text(path, n); ok &&
				(s == "off" || d.address(path, n, s, "127.0.0.1:9090, or off")) {
				d.admin.Listen = s
			}
		}},
		{"advertise", func(path string, n ast.Node) {
			if s, ok := d.text(path, n); ok && d.address(path, n, s, "worker1.internal:9090") {
				d.admin.Advertise = s
			}
		}},
		{"sample", func(path string, n ast.Node) {
			if s, ok := d.text(path, n); ok && s == "off" {
				d.admin.Sample = -1
			} else if ok {
				if d.admin.Sample = d.duration(path, n); d.admin.Sample < time.Second {
					d.fail(line(n), path, "is less than 1s", "write 15s, 1m or off")
				}
			}
		}},
	})
}

// address checks a host:port. Its name need not be known here, nor its port be free.
func (d *decoder) address(path string, n ast.Node, s, example string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		d.fail(line(n), path, "is not an address", "write host:port, as in "+example)
		return false
	}
	return true
}

// mapping reads the fields of a mapping; what it does not know is an error.
func (d *decoder) mapping(path string, n ast.Node, fields []field) {
	m, ok := asMapping(n)
	if !ok {
		d.fail(line(n), path, "is "+kind(n)+", not a list of fields",
			"indent its fields below it, as in `"+fields[0].name+": ...`")
		return
	}
	seen := map[string]int{}
	for _, v := range m.Values {
		name, at := keyName(v.Key), line(v.Key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			d.fail(at, join(path, shownName(name)), "is not a field", suggestion(name, fields))
			continue
		}
		if first, dup := seen[name]; dup {
			d.fail(at, join(path, name), fmt.Sprintf("is given twice (first on line %d)", first), "keep one")
			continue
		}
		seen[name] = at
		d.lines[join(path, name)] = at
		fields[i].read(join(path, name), v.Value)
	}
}

func (d *decoder) sequence(path string, n ast.Node, item func(path string, n ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		example := "connectionString: ..."
		if strings.HasSuffix(path, ".foreignQueues") {
			example = "orders"
		}
		d.fail(line(n), path, "is "+kind(n)+", not a list",
			"begin each item with a dash: `  - "+example+"`")
		return
	}
	for i, v := range s.Values {
		p := fmt.Sprintf("%s[%d]", path, i)
		d.lines[p] = line(v)
		if m, ok := asMapping(v); ok && len(m.Values) > 0 {
			d.lines[p] = line(m.Values[0].Key)
		}
		item(p, v)
	}
}

// scalar is a value's text after expansion. shown is that text as it may
// appear in an error: empty if it may be a secret.
type scalar struct {
	text, shown string
	expanded    bool
	node        ast.Node
}

func (d *decoder) scalar(path string, n ast.Node) (scalar, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return d.expand(path, n, v.Value)
	case *ast.LiteralNode:
		return d.expand(path, n, v.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		t := n.GetToken().Value
		return scalar{text: t, shown: t, node: n}, true
	case *ast.NullNode:
		d.fail(line(n), path, "has no value", "give one, or remove the line")
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		d.fail(line(n), path, "uses a YAML anchor, alias or tag", "write the value out")
	default:
		d.fail(line(n), path, "is "+kind(n)+", not a single value", "")
	}
	return scalar{}, false
}

func (d *decoder) expand(path string, n ast.Node, s string) (scalar, bool) {
	text, names, err := Expand(s, d.env)
	if err != nil {
		fix := "write ${NAME} or ${file:PATH}, or $${ for a literal ${"
		if ue, ok := errors.AsType[*undefinedError](err); ok {
			fix = "run `export " + ue.name + "=...` first"
			if d.inAdmin {
				d.unset = append(d.unset,
					&Error{File: d.file, Line: line(n), Field: path, Problem: err.Error(), Fix: fix})
				return scalar{}, false
			}
		}
		d.fail(line(n), path, err.Error(), fix)
		return scalar{}, false
	}
	for _, name := range names {
		if !strings.HasPrefix(name, filePrefix) {
			d.variables = append(d.variables, name)
		}
	}
	out := scalar{text: text, expanded: len(names) > 0, node: n}
	if !out.expanded {
		out.shown = text
	}
	return out, true
}

// text is a value of one or more characters. It may be a secret, so no error
// here shows it. A number is taken as it was written: `name: 123` is a name.
func (d *decoder) text(path string, n ast.Node) (string, bool) {
	s, ok := d.scalar(path, n)
	if ok && s.text == "" {
		d.fail(line(n), path, "is empty", "give a value, or remove the line")
		return "", false
	}
	return s.text, ok
}

func (d *decoder) integer(path string, n ast.Node) (int, bool) {
	s, ok := d.scalar(path, n)
	if !ok {
		return 0, false
	}
	v, err := strconv.Atoi(strings.ReplaceAll(s.text, "_", ""))
	if _, isText := s.node.(*ast.StringNode); err != nil || isText && !s.expanded {
		d.fail(line(n), path, s.show()+" is not a whole number",
			"write it as digits without quotes, as in 8")
		return 0, false
	}
	return v, true
}

func (d *decoder) number(path string, n ast.Node) (float64, bool) {
	s, ok := d.scalar(path, n)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s.text, "_", ""), 64)
	if _, isText := s.node.(*ast.StringNode); err != nil || isText && !s.expanded || math.IsNaN(v) ||
		math.IsInf(v, 0) {
		d.fail(line(n), path, s.show()+" is not a number", "write it as digits without quotes, as in 1.5")
		return 0, false
	}
	return v, true
}

func (d *decoder) boolean(path string, n ast.Node) (bool, bool) {
	s, ok := d.scalar(path, n)
	if !ok {
		return false, false
	}
	switch s.text {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	d.fail(line(n), path, s.show()+" is neither true nor false", "write true or false without quotes")
	return false, false
}

func (s scalar) show() string {
	if s.expanded {
		return "the variable's value"
	}
	return redact.Quoted(s.shown)
}

var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,39}$`)

// shownName guards against a value in the place of a key, as after a lost line break.
func shownName(s string) string {
	if fieldName.MatchString(s) {
		return s
	}
	return "(a name that is none)"
}

// asMapping hides that the parser has two forms for a mapping of one field.
func asMapping(n ast.Node) (*ast.MappingNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n, true
	case *ast.MappingValueNode:
		return &ast.MappingNode{
			BaseNode: &ast.BaseNode{}, Start: n.Start, Values: []*ast.MappingValueNode{n},
		}, true
	}
	return nil, false
}

func keyName(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	if t := k.GetToken(); t != nil {
		return t.Value
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a group of fields"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "empty"
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return "a YAML anchor, alias or tag"
	default:
		return "a single value"
	}
}
