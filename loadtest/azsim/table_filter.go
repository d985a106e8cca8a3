package azsim

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file parses $filter. The grammar is what the service supports of OData:
//
//	or      = and { "or" and }
//	and     = not { "and" not }
//	not     = "not" not | primary
//	primary = "(" or ")" | operand [ operator operand ]
//	operand = name | literal
//
// One side of a comparison is a property and the other a constant. Keywords
// are case-sensitive and there are no functions (AZURE.md T41).

// Bounds of a filter. The reference permits no more than 15 comparisons; the
// other two keep a hostile filter from costing more than it should.
const (
	maxComparisons = 15
	maxFilterDepth = 64
	maxFilterBytes = 32 << 10
)

// filter is a parsed $filter; nil matches everything.
type filter interface {
	// match judges one row; find gives its properties.
	match(find func(string) (value, bool)) bool

	// bounds is a range of keys; nothing matches outside it.
	bounds() keyBounds
}

type (
	filterAnd  struct{ a, b filter }
	filterOr   struct{ a, b filter }
	filterNot  struct{ a filter }
	comparison struct {
		name     string
		operator string
		value    value
	}
	// boolean is a property, or true and false, that stands alone.
	boolean struct {
		name     string
		constant bool // used if name is ""
	}
)

func (f filterAnd) match(find func(string) (value, bool)) bool {
	return f.a.match(find) && f.b.match(find)
}

func (f filterOr) match(find func(string) (value, bool)) bool {
	return f.a.match(find) || f.b.match(find)
}

func (f filterNot) match(find func(string) (value, bool)) bool { return !f.a.match(find) }

func (f boolean) match(find func(string) (value, bool)) bool {
	if f.name == "" {
		return f.constant
	}
	v, ok := find(f.name)
	return ok && v.kind == edmBoolean && v.num != 0
}

// match is false for a property that is missing or of another type, with any operator.
func (f comparison) match(find func(string) (value, bool)) bool {
	v, ok := find(f.name)
	if !ok {
		return false
	}
	order, ok := v.compare(f.value)
	if !ok {
		return false
	}
	switch f.operator {
	case "eq":
		return order == 0
	case "ne":
		return order != 0
	case "gt":
		return order > 0
	case "ge":
		return order >= 0
	case "lt":
		return order < 0
	default:
		return order <= 0
	}
}

// mirrored is the operator with its sides exchanged.
var mirrored = map[string]string{
	"eq": "eq", "ne": "ne", "gt": "lt", "ge": "le", "lt": "gt", "le": "ge",
}

// parseFilter parses $filter; an empty text means no filter.
func parseFilter(s string) (filter, *tableError) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	if len(s) > maxFilterBytes || !utf8.ValidString(s) {
		return nil, errInvalidInput
	}
	p := filterParser{rest: s}
	p.next()
	f := p.or(0)
	if p.failed || p.token.kind != 'e' {
		return nil, errInvalidInput
	}
	return f, nil
}

// filterToken is a piece of the text: a word (name, keyword, number: 'w'), a
// quoted string with its prefix ('q'), a parenthesis, or the end ('e').
type filterToken struct {
	kind   byte
	text   string
	prefix string // of 'q': "", "datetime", "guid", "X", "binary"
}

type filterParser struct {
	rest        string
	token       filterToken
	comparisons int
	failed      bool
}

func (p *filterParser) fail() filter {
	p.failed = true
	p.rest, p.token = "", filterToken{kind: 'e'}
	return nil
}

func (p *filterParser) next() {
	s := strings.TrimLeft(p.rest, " \t\r\n")
	if s == "" {
		p.rest, p.token = "", filterToken{kind: 'e'}
		return
	}
	switch s[0] {
	case '(', ')':
		p.token, p.rest = filterToken{kind: s[0]}, s[1:]
		return
	case '\'':
		p.quoted("", s)
		return
	}
	n := 0
	for n < len(s) {
		c, size := utf8.DecodeRuneInString(s[n:])
		if !wordRune(c) {
			break
		}
		n += size
	}
	if n < len(s) && s[n] == '\'' {
		p.quoted(s[:n], s[n:])
		return
	}
	if n == 0 {
		p.fail()
		return
	}
	p.token, p.rest = filterToken{kind: 'w', text: s[:n]}, s[n:]
}

func wordRune(c rune) bool {
	return strings.ContainsRune("_.-+", c) ||
		unicode.In(c, unicode.L, unicode.Nl, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc, unicode.Cf)
}

// quoted reads a quoted string at the start of s; two quotes in it mean one.
func (p *filterParser) quoted(prefix, s string) {
	var b strings.Builder
	s = s[1:]
	for {
		i := strings.IndexByte(s, '\'')
		if i < 0 {
			p.fail()
			return
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		if !strings.HasPrefix(s, "'") {
			break
		}
		b.WriteByte('\'')
		s = s[1:]
	}
	p.token, p.rest = filterToken{'q', b.String(), prefix}, s
}

func (p *filterParser) keyword(word string) bool {
	if p.token.kind != 'w' || p.token.text != word {
		return false
	}
	p.next()
	return true
}

func (p *filterParser) or(depth int) filter {
	f := p.and(depth)
	for !p.failed && p.keyword("or") {
		f = filterOr{f, p.and(depth)}
	}
	return f
}

func (p *filterParser) and(depth int) filter {
	f := p.not(depth)
	for !p.failed && p.keyword("and") {
		f = filterAnd{f, p.not(depth)}
	}
	return f
}

func (p *filterParser) not(depth int) filter {
	if depth >= maxFilterDepth {
		return p.fail()
	}
	if p.keyword("not") {
		return filterNot{p.not(depth + 1)}
	}
	return p.primary(depth)
}

func (p *filterParser) primary(depth int) filter {
	if p.token.kind == '(' {
		p.next()
		f := p.or(depth + 1)
		if p.token.kind != ')' {
			return p.fail()
		}
		p.next()
		return f
	}
	leftName, left, ok := p.operand()
	if !ok {
		return p.fail()
	}
	// Lone properties and constants count like comparisons: each is evaluated.
	if p.comparisons++; p.comparisons > maxComparisons {
		return p.fail()
	}
	operator := p.token.text
	if p.token.kind != 'w' || mirrored[operator] == "" {
		if leftName == "" && left.kind != edmBoolean {
			return p.fail()
		}
		return boolean{leftName, left.num != 0}
	}
	p.next()
	rightName, right, ok := p.operand()
	switch {
	case !ok || (leftName == "") == (rightName == ""):
		return p.fail()
	case leftName == "":
		return comparison{rightName, mirrored[operator], left}
	default:
		return comparison{leftName, operator, right}
	}
}

// operand reads a property's name, or a constant; then the name is "".
func (p *filterParser) operand() (name string, constant value, ok bool) {
	t := p.token
	switch t.kind {
	case 'q':
		constant, ok = quotedConstant(t)
	case 'w':
		name, constant, ok = wordOperand(t.text)
	}
	if ok {
		p.next()
	}
	return name, constant, ok
}

func quotedConstant(t filterToken) (value, bool) {
	switch t.prefix {
	case "":
		return value{kind: edmString, text: t.text}, true
	case "datetime":
		v, err := parseText(edmDateTime, t.text)
		if errors.Is(err, errValueRange) { // compares well enough, though no row can hold it
			err = nil
		}
		return v, err == nil
	case "guid":
		v, err := parseText(edmGUID, t.text)
		return v, err == nil
	case "X", "binary":
		b, err := hex.DecodeString(t.text)
		return value{kind: edmBinary, text: string(b)}, err == nil
	}
	return value{}, false
}

func wordOperand(s string) (name string, constant value, ok bool) {
	switch s {
	case "true", "false":
		v := value{kind: edmBoolean}
		if s == "true" {
			v.num = 1
		}
		return "", v, true
	case "and", "or", "not", "null", "eq", "ne", "gt", "ge", "lt", "le":
		return "", value{}, false
	}
	if s[0] == '-' || s[0] == '+' || s[0] == '.' || '0' <= s[0] && s[0] <= '9' {
		v, ok := numericConstant(s)
		return "", v, ok
	}
	return s, value{}, checkPropertyName(s) == nil
}

// numericConstant reads 123 (Int32, or Int64 if it needs to be), 123L (Int64)
// and 1.5, 1e3, 2d (Double).
func numericConstant(s string) (value, bool) {
	if long, ok := strings.CutSuffix(strings.ToUpper(s), "L"); ok {
		n, err := strconv.ParseInt(long, 10, 64)
		return value{kind: edmInt64, num: n}, err == nil
	}
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		return value{kind: edmInt32, num: n}, true
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return value{kind: edmInt64, num: n}, true
	}
	if strings.ContainsAny(s, "xXpP_iInN") { // forms of Go's that OData has not
		return value{}, false
	}
	f, err := strconv.ParseFloat(strings.TrimRight(s, "dD"), 64)
	return value{kind: edmDouble, real: f}, err == nil
}
