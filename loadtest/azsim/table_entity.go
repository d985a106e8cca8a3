package azsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of one entity, from the data model page (AZURE.md A2).
const (
	maxProperties   = 252     // 255 with PartitionKey, RowKey and Timestamp
	maxPropertyName = 255     // characters
	maxKeyUnits     = 512     // UTF-16 code units: 1 KiB
	maxPropertySize = 1 << 16 // bytes, strings counted in UTF-16
	maxEntitySize   = 1 << 20 // bytes, by the page's formula
	longestName     = 4096    // bytes read of a JSON name before its length is judged
)

// property is one named value of an entity.
type property struct {
	name  string
	value value
}

// entity is one version of a row. It is never changed once stored: a write
// makes another, so that readers may keep it without a lock.
type entity struct {
	pk, rk     string
	ticks      int64      // Timestamp, which is also the ETag
	properties []property // sorted by name; the system properties are not among them
}

// payload is an entity as a request carries it.
type payload struct {
	pk, rk     *string // nil: not given
	properties []property
}

// find returns the value of a property, the system properties included.
func (e *entity) find(name string) (value, bool) {
	switch name {
	case "PartitionKey":
		return value{kind: edmString, text: e.pk}, true
	case "RowKey":
		return value{kind: edmString, text: e.rk}, true
	case "Timestamp":
		return value{kind: edmDateTime, num: e.ticks}, true
	}
	i, ok := slices.BinarySearchFunc(e.properties, name, func(p property, name string) int {
		return strings.Compare(p.name, name)
	})
	if !ok {
		return value{}, false
	}
	return e.properties[i].value, true
}

// merged returns the properties of old with those of p put over them.
func merged(old, p []property) []property {
	out := make([]property, 0, len(old)+len(p))
	for len(old) > 0 && len(p) > 0 {
		switch c := strings.Compare(old[0].name, p[0].name); {
		case c < 0:
			out, old = append(out, old[0]), old[1:]
		case c > 0:
			out, p = append(out, p[0]), p[1:]
		default:
			out, old, p = append(out, p[0]), old[1:], p[1:]
		}
	}
	return append(append(out, old...), p...)
}

// check judges what only the whole entity shows: the number of its properties and its size.
func (e *entity) check() *tableError {
	if len(e.properties) > maxProperties {
		return errTooManyProperties
	}
	size := 4 + 2*(utf16Len(e.pk)+utf16Len(e.rk))
	for _, p := range e.properties {
		size += 8 + 2*utf16Len(p.name) + p.value.size()
	}
	if size > maxEntitySize {
		return errEntityTooLarge
	}
	return nil
}

// checkKey judges a partition or row key.
func checkKey(name, key string) *tableError {
	for _, c := range key {
		if c == '/' || c == '\\' || c == '#' || c == '?' || c < 0x20 || 0x7f <= c && c <= 0x9f {
			return errOutOfRange(name, key)
		}
	}
	if utf16Len(key) > maxKeyUnits {
		return errKeyTooLarge
	}
	return nil
}

// checkPropertyName holds a name to the rules of C# identifiers.
func checkPropertyName(name string) *tableError {
	if utf8.RuneCountInString(name) > maxPropertyName {
		return errPropertyNameLong
	}
	for i, c := range name {
		letter := c == '_' || unicode.IsLetter(c) || unicode.Is(unicode.Nl, c)
		if !letter &&
			(i == 0 || !unicode.In(c, unicode.Nd, unicode.Pc, unicode.Mn, unicode.Mc, unicode.Cf)) {
			return errPropertyName
		}
	}
	if name == "" {
		return errPropertyName
	}
	return nil
}

// jsonLiteral is a JSON scalar as the body has it.
type jsonLiteral struct {
	kind byte // 's', 'n', 'b', '0' for null
	text string
}

// jsonField is one member of a JSON object.
type jsonField struct {
	name string
	jsonLiteral
}

// parsePayload reads a JSON entity. Properties without a value are dropped, names that begin with
// "odata." and the Timestamp are the server's own and are passed over (AZURE.md A4, Types).
func parsePayload(body []byte) (*payload, *tableError) {
	if len(body) > maxTableBody {
		return nil, errBodyTooLarge
	}
	if !utf8.Valid(body) {
		return nil, errInvalidInput
	}
	fields, types, err := readObject(body)
	if err != nil {
		return nil, err
	}
	p := &payload{}
	for _, f := range fields {
		name := f.name
		switch {
		case name == "PartitionKey" || name == "RowKey":
			if f.kind == '0' {
				continue
			}
			if f.kind != 's' {
				return nil, errInvalidInput
			}
			if err := checkKey(name, f.text); err != nil {
				return nil, err
			}
			if name == "RowKey" {
				p.rk = &f.text
			} else {
				p.pk = &f.text
			}
		case name == "Timestamp" || strings.HasPrefix(name, "odata."):
		default:
			if err := checkPropertyName(name); err != nil {
				return nil, err
			}
			if f.kind == '0' {
				continue
			}
			typ, typed := types[name]
			v, err := f.value(name, typ, typed)
			if err != nil {
				return nil, err
			}
			p.properties = append(p.properties, property{name, v})
		}
	}
	if len(p.properties) > maxProperties {
		return nil, errTooManyProperties
	}
	slices.SortFunc(p.properties, func(a, b property) int { return strings.Compare(a.name, b.name) })
	return p, nil
}

// value makes the typed value of a jsonLiteral.
func (l jsonLiteral) value(name, typ string, typed bool) (value, *tableError) {
	kind := edmString
	if typed {
		var ok bool
		if kind, ok = parseEDM(typ); !ok {
			return value{}, errInvalidInput
		}
	}
	var (
		v   value
		err error
	)
	switch l.kind {
	case 'b':
		if typed && kind != edmBoolean {
			return value{}, errInvalidInput
		}
		v = value{kind: edmBoolean}
		if l.text == "true" {
			v.num = 1
		}
	case 'n':
		v, err = parseNumber(kind, typed, l.text)
	default:
		v, err = parseText(kind, l.text)
	}
	switch {
	case errors.Is(err, errValueRange):
		return v, errOutOfRange(name, l.text)
	case err != nil:
		return v, errInvalidInput
	case v.kind == edmString && 2*utf16Len(v.text) > maxPropertySize,
		v.kind == edmBinary && len(v.text) > maxPropertySize:
		return v, errPropertyTooLarge
	}
	return v, nil
}

// readObject reads the one flat object of a body: its members in their order,
// and the types that annotations give. Anything nested is refused.
func readObject(body []byte) (fields []jsonField, types map[string]string, refused *tableError) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errInvalidInput
	}
	types = make(map[string]string)
	seen := make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, errInvalidInput
		}
		name := t.(string) // the decoder gives nothing else as a name
		if len(name) > longestName {
			return nil, nil, errPropertyNameLong
		}
		t, err = d.Token()
		if err != nil {
			return nil, nil, errInvalidInput
		}
		v, ok := scalar(t)
		if !ok || halved(name+v.text, body) {
			return nil, nil, errInvalidInput
		}
		if of, found := strings.CutSuffix(name, "@odata.type"); found {
			if v.kind != 's' {
				return nil, nil, errInvalidInput
			}
			types[of] = v.text
			continue
		}
		if seen[name] {
			return nil, nil, errDuplicateProperty
		}
		seen[name] = true
		fields = append(fields, jsonField{name, v})
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, nil, errInvalidInput
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errInvalidInput
	}
	return fields, types, nil
}

func scalar(t json.Token) (jsonLiteral, bool) {
	switch t := t.(type) {
	case nil:
		return jsonLiteral{kind: '0'}, true
	case string:
		return jsonLiteral{'s', t}, true
	case json.Number:
		return jsonLiteral{'n', t.String()}, true
	case bool:
		return jsonLiteral{'b', strconv.FormatBool(t)}, true
	}
	return jsonLiteral{}, false
}
