package pump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The fields of a JSON line are found in one pass that also checks the whole
// line, without decoding it into maps: on 130-byte lines several times faster
// than encoding/json, which would otherwise cost more than the compression does. What counts
// as valid JSON is exactly what encoding/json says (fuzzed against it).

// jsonDepth is encoding/json's own limit of nesting.
const jsonDepth = 10_000

var errJSONEnd = errors.New("invalid JSON: it ends too early")

// jsonField is a field that is looked for, and where it was found.
type jsonField struct {
	name  string   // as the user wrote it
	path  []string // the names of the objects around it, then its own
	value []byte   // as it stands in the line; nil if there is none
}

// newJSONField reads a field's name: "city", or "a.b" for b inside of a. A
// backslash keeps the next character as it is, so that `a\.b` names the field "a.b".
func newJSONField(name string) *jsonField {
	f := &jsonField{name: name, path: []string{""}}
	for i := 0; i < len(name); i++ {
		switch last := &f.path[len(f.path)-1]; {
		case name[i] == '.':
			f.path = append(f.path, "")
		case name[i] == '\\' && i+1 < len(name):
			i++
			*last += name[i : i+1]
		default:
			*last += name[i : i+1]
		}
	}
	return f
}

// jsonScanner reads one line.
type jsonScanner struct {
	data   []byte
	pos    int
	fields []*jsonField // at most 8, for the bits of a mask
	name   []byte       // scratch: a member's name without its escapes
}

// scan checks that line is one JSON value and finds the fields in it. If a name
// comes twice in an object, the last one counts, as in encoding/json.
func (s *jsonScanner) scan(line []byte) error {
	s.data, s.pos = line, 0
	for _, f := range s.fields {
		f.value = nil
	}
	s.space()
	if err := s.value(0, 1<<len(s.fields)-1); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		return s.unexpected("after the value")
	}
	return nil
}

func (s *jsonScanner) unexpected(where string) error {
	if s.pos >= len(s.data) {
		return errJSONEnd
	}
	return fmt.Errorf("invalid JSON: unexpected %q %s (byte %d)", s.data[s.pos], where, s.pos+1)
}

func (s *jsonScanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// value reads one value at the given depth; live has the bit of each field
// whose path so far is the way here.
func (s *jsonScanner) value(depth int, live uint) error {
	if s.pos >= len(s.data) {
		return errJSONEnd
	}
	switch b := s.data[s.pos]; {
	case b == '{':
		return s.object(depth, live)
	case b == '[':
		return s.array(depth)
	case b == '"':
		_, err := s.string()
		return err
	case b == '-' || b >= '0' && b <= '9':
		return s.number()
	case b == 't':
		return s.literal("true")
	case b == 'f':
		return s.literal("false")
	case b == 'n':
		return s.literal("null")
	}
	return s.unexpected("at the beginning of a value")
}

func (s *jsonScanner) object(depth int, live uint) error {
	if depth >= jsonDepth {
		return errors.New("invalid JSON: nested too deeply")
	}
	s.pos++
	s.space()
	if s.pos < len(s.data) && s.data[s.pos] == '}' {
		s.pos++
		return nil
	}
	for {
		if s.pos >= len(s.data) || s.data[s.pos] != '"' {
			return s.unexpected("where a name belongs")
		}
		begin := s.pos
		plain, err := s.string()
		if err != nil {
			return err
		}
		var inside, ends uint
		if live != 0 {
			inside, ends = s.match(s.data[begin:s.pos], plain, depth, live)
		}
		s.space()
		if s.pos >= len(s.data) || s.data[s.pos] != ':' {
			return s.unexpected("after a name")
		}
		s.pos++
		s.space()
		begin = s.pos
		if err := s.value(depth+1, inside); err != nil {
			return err
		}
		for i, f := range s.fields {
			if ends&(1<<i) != 0 {
				f.value = s.data[begin:s.pos]
			}
		}
		s.space()
		switch {
		case s.pos < len(s.data) && s.data[s.pos] == ',':
			s.pos++
			s.space()
		case s.pos < len(s.data) && s.data[s.pos] == '}':
			s.pos++
			return nil
		default:
			return s.unexpected("after a member")
		}
	}
}

// match says which live fields go on inside the member of that name, and which
// are the member itself. What an earlier member of the same name gave is forgotten.
func (s *jsonScanner) match(quoted []byte, plain bool, depth int, live uint) (inside, ends uint) {
	name := quoted[1 : len(quoted)-1]
	if !plain {
		s.name = appendUnquoted(s.name[:0], quoted)
		name = s.name
	}
	for i, f := range s.fields {
		if live&(1<<i) == 0 || f.path[depth] != string(name) {
			continue
		}
		f.value = nil
		if depth+1 == len(f.path) {
			ends |= 1 << i
		} else {
			inside |= 1 << i
		}
	}
	return inside, ends
}

func (s *jsonScanner) array(depth int) error {
	if depth >= jsonDepth {
		return errors.New("invalid JSON: nested too deeply")
	}
	s.pos++
	s.space()
	if s.pos < len(s.data) && s.data[s.pos] == ']' {
		s.pos++
		return nil
	}
	for {
		if err := s.value(depth+1, 0); err != nil {
			return err
		}
		s.space()
		switch {
		case s.pos < len(s.data) && s.data[s.pos] == ',':
			s.pos++
			s.space()
		case s.pos < len(s.data) && s.data[s.pos] == ']':
			s.pos++
			return nil
		default:
			return s.unexpected("after an element")
		}
	}
}

// string reads a string with its quotes, and says whether it stands for itself,
// without an escape in it. Bytes above 0x7f are not looked at: what is not UTF-8
// stays as it is.
func (s *jsonScanner) string() (plain bool, err error) {
	s.pos++
	for plain = true; ; {
		s.pos = ordinary(s.data, s.pos)
		if s.pos >= len(s.data) {
			return plain, errJSONEnd
		}
		switch s.data[s.pos] {
		case '"':
			s.pos++
			return plain, nil
		case '\\':
			plain = false
			if err := s.escape(); err != nil {
				return plain, err
			}
		default: // below 0x20
			return plain, s.unexpected("in a string")
		}
	}
}

// ordinary gives the first place from pos on where a string's next byte is a
// quote, a backslash or below 0x20: len(data) if there is none. It looks at eight
// bytes at a time, as long as there are so many.
func ordinary(data []byte, pos int) int {
	const high, ones = 0x8080808080808080, 0x0101010101010101
	for ; pos+8 <= len(data); pos += 8 {
		w := binary.LittleEndian.Uint64(data[pos:])
		quote, backslash := w^ones*'"', w^ones*'\\'
		// (x - n..) &^ x sets the high bit of each byte below n. A borrow can set
		// that of bytes above such a one too, never that of one below it.
		if found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (w-ones*0x20)&^w) & high; found != 0 {
			return pos + bits.TrailingZeros64(found)/8
		}
	}
	for ; pos < len(data); pos++ {
		if b := data[pos]; b == '"' || b == '\\' || b < 0x20 {
			break
		}
	}
	return pos
}

func (s *jsonScanner) escape() error {
	s.pos++
	if s.pos >= len(s.data) {
		return errJSONEnd
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if s.pos >= len(s.data) || !isHex(s.data[s.pos]) {
				return s.unexpected("in an escape")
			}
			s.pos++
		}
		return nil
	}
	return s.unexpected("in an escape")
}

func (s *jsonScanner) number() error {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.data) && s.data[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return s.unexpected("in a number")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return s.unexpected("in a number")
		}
	}
	if s.pos < len(s.data) && (s.data[s.pos] == 'e' || s.data[s.pos] == 'E') {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return s.unexpected("in a number")
		}
	}
	return nil
}

func (s *jsonScanner) digits() bool {
	begin := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > begin
}

func (s *jsonScanner) literal(word string) error {
	for i := range len(word) {
		if s.pos >= len(s.data) || s.data[s.pos] != word[i] {
			return s.unexpected("in a literal")
		}
		s.pos++
	}
	return nil
}

// text gives the found value as a key or an id: a string without its quotes and
// escapes, a number or boolean as it is written. It may alias the line or use
// dst, which it returns for the next time.
func (f *jsonField) text(dst []byte) (text, scratch []byte, err error) {
	switch {
	case f.value == nil:
		return nil, dst, fmt.Errorf("there is no field %q", f.name)
	case f.value[0] == 'n':
		return nil, dst, fmt.Errorf("field %q is null", f.name)
	case f.value[0] == '{' || f.value[0] == '[':
		return nil, dst, fmt.Errorf("field %q is not a string, a number or a boolean", f.name)
	case f.value[0] == '"':
		if bytes.IndexByte(f.value, '\\') < 0 {
			return f.value[1 : len(f.value)-1], dst, nil
		}
		dst = appendUnquoted(dst[:0], f.value)
		return dst, dst, nil
	}
	return f.value, dst, nil
}

// appendUnquoted appends what a valid JSON string stands for. Half a surrogate
// pair becomes U+FFFD, as in encoding/json.
func appendUnquoted(dst, quoted []byte) []byte {
	in := quoted[1 : len(quoted)-1]
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			dst = append(dst, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hexRune(in[i+1 : i+5])
			i += 4
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(in) >= i+7 && in[i+1] == '\\' && in[i+2] == 'u' {
					pair = utf16.DecodeRune(r, hexRune(in[i+3:i+7]))
				}
				if pair != utf8.RuneError {
					i += 6
				}
				r = pair
			}
			dst = utf8.AppendRune(dst, r)
		default: // a quote, a backslash or a slash
			dst = append(dst, in[i])
		}
	}
	return dst
}

func isHex(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
}

func hexRune(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits), 16, 32) // scanned before
	return rune(n)
}

// appendQuoted appends s as a JSON string. What is not UTF-8 becomes U+FFFD,
// because JSON cannot hold it.
func appendQuoted(dst []byte, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		b := s[i]
		switch {
		case b >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b == '\n':
			dst = append(dst, '\\', 'n')
		case b == '\r':
			dst = append(dst, '\\', 'r')
		case b == '\t':
			dst = append(dst, '\\', 't')
		case b < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			dst = append(dst, b)
		}
		i++
	}
	return append(dst, '"')
}

// jsonLines is the format of JSON Lines: the body is the line as it stands.
type jsonLines struct {
	scanner jsonScanner
	key, id *jsonField
	keyBuf  []byte
	idBuf   []byte
	ids     idStrings
}

func newJSONLines(key, id string) *jsonLines {
	f := &jsonLines{}
	if key != "" {
		f.key = newJSONField(key)
		f.scanner.fields = append(f.scanner.fields, f.key)
	}
	if id != "" {
		f.id = newJSONField(id)
		f.scanner.fields = append(f.scanner.fields, f.id)
	}
	return f
}

func (f *jsonLines) start(*cutter) error { return nil }

func (f *jsonLines) next(c *cutter) (Record, error) {
	line, err := nextLine(c)
	if err != nil {
		return Record{}, err
	}
	rec, err := f.record(line)
	if err != nil {
		return Record{}, &BadInput{Raw: keep(line), Err: err}
	}
	return rec, nil
}

func (f *jsonLines) record(line []byte) (Record, error) {
	rec := Record{Key: line, Body: line}
	if err := f.scanner.scan(line); err != nil {
		return rec, err
	}
	var err error
	if f.key != nil {
		if rec.Key, f.keyBuf, err = f.key.text(f.keyBuf); err != nil {
			return rec, err
		}
	}
	// An id is for people to find a task by: a line without one is no bad line.
	if f.id != nil && f.id.value != nil && f.id.value[0] != 'n' {
		var id []byte
		if id, f.idBuf, err = f.id.text(f.idBuf); err != nil {
			return rec, err
		}
		rec.ID = f.ids.make(id)
	}
	return rec, nil
}
