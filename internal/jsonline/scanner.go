package jsonline

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Scanner checks lines and finds fields in them. One goroutine at a time may use it.
type Scanner struct {
	data   []byte
	pos    int
	fields []*Field // at most 8, for the bits of a mask
	name   []byte   // scratch: a member's name without its escapes
	deep   int      // how deeply a value may be nested
	sizes  uint64   // a bit for each length that a name in a path has, see size; 0: not known yet
}

// NewScanner makes a scanner that looks for at most eight fields; without fields it only checks
// lines.
func NewScanner(fields ...*Field) *Scanner {
	if len(fields) > 8 {
		panic(fmt.Sprintf("jsonline: %d fields of at most 8", len(fields)))
	}
	return &Scanner{fields: fields, deep: maxDepth}
}

// Valid reports whether data is one JSON value, exactly as encoding/json's Valid does.
func Valid(data []byte) bool {
	s := Scanner{deep: maxDepth}
	return s.Scan(data) == nil
}

// ValidNumber reports whether text is a JSON number, without any space around it.
func ValidNumber(text []byte) bool {
	s := Scanner{data: text}
	return len(text) > 0 && s.number() == nil && s.pos == len(text)
}

// size is the bit of a name's length; all that are long share one.
func size(name int) uint64 { return 1 << min(name, 63) }

// Scan checks that line is one JSON value and finds the fields in it. If a name
// comes twice in an object, the last one counts, as in encoding/json. The error says what is
// wrong with the line, and at which byte.
func (s *Scanner) Scan(line []byte) error {
	s.data, s.pos = line, 0
	if s.sizes == 0 {
		for _, f := range s.fields {
			for _, name := range f.path {
				s.sizes |= size(len(name))
			}
		}
	}
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

func (s *Scanner) unexpected(where string) error {
	if s.pos >= len(s.data) {
		return errEnd
	}
	return fmt.Errorf("invalid JSON: unexpected %q %s (byte %d)", s.data[s.pos], where, s.pos+1)
}

func (s *Scanner) space() { s.pos = spaced(s.data, s.pos) }

// value reads one value at the given depth; live has the bit of each field
// whose path so far is the way here.
func (s *Scanner) value(depth int, live uint) error {
	if s.pos >= len(s.data) {
		return errEnd
	}
	switch b := s.data[s.pos]; {
	case depth >= s.deep && (b == '{' || b == '['):
		return fmt.Errorf("%w more than %d deep", errDeep, s.deep)
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

// object reads an object. Most time goes here. So what most lines consist of is read in this
// function, with the place at hand: members without space around their parts, and names and strings
// without escapes.
func (s *Scanner) object(depth int, live uint) error {
	data, pos := s.data, spaced(s.data, s.pos+1)
	if pos < len(data) && data[pos] == '}' {
		s.pos = pos + 1
		return nil
	}
	for {
		value, inside, ends, err := s.memberName(pos, depth, live)
		if err != nil {
			return err
		}
		pos = value
		begin, plain := pos, false
		switch {
		case pos < len(data) && data[pos] == '"':
			pos, plain, err = s.stringAt(pos)
		case pos < len(data) && data[pos]-'1' <= 8:
			pos, err = s.numberAt(pos)
		default:
			s.pos = pos
			err = s.value(depth+1, inside)
			pos = s.pos
		}
		if err != nil {
			return err
		}
		if ends != 0 {
			for i, f := range s.fields {
				if ends&(1<<i) != 0 {
					f.value, f.plain = data[begin:pos], plain
				}
			}
		}
		pos = spaced(data, pos)
		switch {
		case pos < len(data) && data[pos] == ',':
			pos = spaced(data, pos+1)
		case pos < len(data) && data[pos] == '}':
			s.pos = pos + 1
			return nil
		default:
			s.pos = pos
			return s.unexpected("after a member")
		}
	}
}

// memberName reads the name at pos and the colon, and gives the place of the value. On an error the
// scanner stands at its place.
func (s *Scanner) memberName(pos, depth int, live uint) (value int, inside, ends uint, err error) {
	data := s.data
	if pos >= len(data) || data[pos] != '"' {
		s.pos = pos
		return 0, 0, 0, s.unexpected("where a name belongs")
	}
	end, plain, err := s.stringAt(pos)
	if err != nil {
		return 0, 0, 0, err
	}
	if live != 0 && (!plain || s.sizes&size(end-pos-2) != 0) {
		inside, ends = s.match(data[pos:end], plain, depth, live)
	}
	if pos = spaced(data, end); pos >= len(data) || data[pos] != ':' {
		s.pos = pos
		return 0, 0, 0, s.unexpected("after a name")
	}
	return spaced(data, pos+1), inside, ends, nil
}

// spaced is the first place from pos on that is not white space.
func spaced(data []byte, pos int) int {
	if pos < len(data) && data[pos] > ' ' {
		return pos
	}
	return spacedSlow(data, pos)
}

func spacedSlow(data []byte, pos int) int {
	for pos < len(data) && (data[pos] == ' ' || data[pos] == '\t' || data[pos] == '\r' ||
		data[pos] == '\n') {
		pos++
	}
	return pos
}

// stringAt reads the string at pos and says where it ends, and whether it stands for itself. On an
// error the scanner stands at its place.
func (s *Scanner) stringAt(pos int) (end int, plain bool, err error) {
	data := s.data
	for end = pos + 1; end+8 <= len(data); end += 8 {
		if found := special(binary.LittleEndian.Uint64(data[end:])); found != 0 {
			if end += bits.TrailingZeros64(found) / 8; data[end] == '"' {
				return end + 1, true, nil
			}
			break
		}
	}
	s.pos = pos
	plain, err = s.string()
	return s.pos, plain, err
}

// match says which live fields lie inside the member of that name, and which are the member itself.
// The value of an earlier member of the same name is forgotten.
func (s *Scanner) match(quoted []byte, plain bool, depth int, live uint) (inside, ends uint) {
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

func (s *Scanner) array(depth int) error {
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
func (s *Scanner) string() (plain bool, err error) {
	s.pos++
	for plain = true; ; {
		s.pos = ordinary(s.data, s.pos)
		if s.pos >= len(s.data) {
			return plain, errEnd
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

// ordinary gives the first place from pos on where a string's next byte is a quote, a backslash or
// below 0x20: len(data) if there is none. It looks at eight bytes at a time as long as it can.
func ordinary(data []byte, pos int) int {
	for ; pos+8 <= len(data); pos += 8 {
		if found := special(binary.LittleEndian.Uint64(data[pos:])); found != 0 {
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

// special has the high bit set of the first byte of w that is a quote, a backslash or below 0x20,
// and of no byte below that. Bits above it mean nothing.
func special(w uint64) uint64 {
	const high, ones = 0x8080808080808080, 0x0101010101010101
	// The other way around 2, a quote (0x22) comes right behind what is below 0x20.
	low, backslash := w^ones*2, w^ones*'\\'
	// (x - n..) &^ x sets the high bit of each byte below n. A borrow can set
	// that of bytes above such a one too, never that of one below it.
	return ((low-ones*0x21)&^low | (backslash-ones)&^backslash) & high
}

func (s *Scanner) escape() error {
	s.pos++
	if s.pos >= len(s.data) {
		return errEnd
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

// numberAt reads the number at pos, which does not begin with a zero or a sign, and says where it
// ends. On an error the scanner stands at its place.
func (s *Scanner) numberAt(pos int) (end int, err error) {
	for end = pos + 1; end < len(s.data) && s.data[end]-'0' <= 9; end++ {
	}
	if end < len(s.data) && (s.data[end] == ',' || s.data[end] == '}') {
		return end, nil
	}
	s.pos = pos
	err = s.number()
	return s.pos, err
}

func (s *Scanner) number() error {
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

func (s *Scanner) digits() bool {
	data, pos := s.data, s.pos
	for pos < len(data) && data[pos]-'0' <= 9 {
		pos++
	}
	begin := s.pos
	s.pos = pos
	return pos > begin
}

func (s *Scanner) literal(word string) error {
	for i := range len(word) {
		if s.pos >= len(s.data) || s.data[s.pos] != word[i] {
			return s.unexpected("in a literal")
		}
		s.pos++
	}
	return nil
}
