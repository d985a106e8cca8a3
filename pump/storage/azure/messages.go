package azure

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/pump/storage"
)

// firstIllegal gives the index of the first byte that is not part of a legal
// XML character in UTF-8, -1 if there is none. Envelopes are base64, so eight
// bytes at a time are tested for being plain ASCII.
func firstIllegal(b []byte) int {
	const high, ones = 0x8080808080808080, 0x0101010101010101
	for i := 0; i < len(b); {
		if i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			// (w - 0x20..) &^ w sets a byte's high bit if the byte is below
			// 0x20; borrows can only flag a word too many, never one too few.
			if (w|((w-0x20*ones)&^w))&high == 0 {
				i += 8
				continue
			}
		}
		for end := min(i+8, len(b)); i < end; {
			if c := b[i]; c < utf8.RuneSelf {
				if c < 0x20 && c != '\t' && c != '\n' && c != '\r' {
					return i
				}
				i++
				continue
			}
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n <= 1 || !legal(r) {
				return i
			}
			i += n
		}
	}
	return -1
}

// legal is the production Char of XML 1.0.
func legal(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xD7FF ||
		r >= 0xE000 && r <= 0xFFFD || r >= 0x10000 && r <= 0x10FFFF
}

// parts says which elements a message must have to be of use. The others are for display or a hint,
// and stay zero if they are absent or not understood: leaving 32 messages hidden because of a date
// would be worse.
type parts uint8

const (
	hasID parts = 1 << iota
	hasReceipt
	hasText
)

// readMessages reads the answer to a Put, Get or Peek. The byte scanner knows
// the one shape that the service sends; a document in any other shape gets a
// second reading by encoding/xml, which knows all of XML and takes ten times as
// long. An answer that neither understands is an error.
func readMessages(doc []byte, most int, need parts) ([]storage.Message, error) {
	doc = trimBOM(doc)
	ms, err := scanMessages(doc, most)
	if err != nil {
		if ms, err = decodeMessages(doc); err != nil {
			return nil, err
		}
	}
	if len(ms) > most {
		return nil, fmt.Errorf("%d messages where at most %d were asked for", len(ms), most)
	}
	out := make([]storage.Message, len(ms))
	for i, m := range ms {
		if lacking := need &^ m.has; lacking != 0 {
			return nil, fmt.Errorf("message %d has no %s", i, lacking)
		}
		out[i] = m.message
	}
	return out, nil
}

func (p parts) String() string {
	switch {
	case p&hasID != 0:
		return "MessageId"
	case p&hasReceipt != 0:
		return "PopReceipt"
	}
	return "MessageText"
}

func trimBOM(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF")) }

type partial struct {
	message storage.Message
	has     parts
}

// set takes one element of a message. text is copied.
func (m *partial) set(name string, text []byte) {
	switch name {
	case "MessageId":
		m.message.ID = string(text)
		if len(text) > 0 {
			m.has |= hasID
		}
	case "PopReceipt":
		m.message.PopReceipt = string(text)
		if len(text) > 0 {
			m.has |= hasReceipt
		}
	case "MessageText":
		m.message.Text = bytes.Clone(text)
		m.has |= hasText
	case "InsertionTime":
		m.message.Inserted = httpTime(text)
	case "TimeNextVisible":
		m.message.NextVisible = httpTime(text)
	case "DequeueCount":
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && n >= 0 {
			m.message.Dequeued = n
		}
	}
}

// httpTime reads the service's time, always in GMT, zero if text is not a time.
func httpTime(text []byte) time.Time {
	t, err := time.Parse(http.TimeFormat, string(text))
	if err != nil {
		return time.Time{}
	}
	return t
}

// errShape means that the scanner does not know the document's shape.
var errShape = errors.New("not the XML of a list of messages")

// scanner reads
//
//	[<?xml ... ?>] <QueueMessagesList> { <QueueMessage> { <Name>text</Name> } </QueueMessage> }
//	</QueueMessagesList>
//
// with white space between elements, <Name/> and <Name /> for empty ones, and
// nothing else: no attributes, comments, CDATA or further nesting. Everything
// it accepts is well-formed and means the same to encoding/xml; a fuzz test holds it to that.
type scanner struct {
	rest    []byte
	scratch []byte // decoded text of the element at hand
}

// scanMessages reads a list of about as many messages as are expected.
func scanMessages(doc []byte, expected int) ([]partial, error) {
	s := &scanner{rest: doc}
	if s.take("<?xml ") {
		// Only the declarations that the service and Azurite send. Another
		// encoding than UTF-8 is for a reader that knows it.
		if !s.take(`version="1.0" encoding="utf-8"?>`) &&
			!s.take(`version="1.0" encoding="utf-8" standalone="yes"?>`) &&
			!s.take(`version="1.0" encoding="UTF-8"?>`) &&
			!s.take(`version="1.0" encoding="UTF-8" standalone="yes"?>`) {
			return nil, errShape
		}
	}
	s.space()
	var ms []partial
	switch {
	case s.take("<QueueMessagesList/>"), s.take("<QueueMessagesList />"):
	case s.take("<QueueMessagesList>"):
		for {
			s.space()
			if s.take("</QueueMessagesList>") {
				break
			}
			if !s.take("<QueueMessage>") {
				return nil, errShape
			}
			if ms == nil {
				ms = make([]partial, 0, expected)
			}
			ms = append(ms, partial{})
			if !s.message(&ms[len(ms)-1]) {
				return nil, errShape
			}
		}
	default:
		return nil, errShape
	}
	s.space()
	if len(s.rest) != 0 {
		return nil, errShape
	}
	return ms, nil
}

// message reads the elements of one message and its end tag.
func (s *scanner) message(m *partial) bool {
	var seen [16]string // no element twice; more than 16 are not the service's
	for n := 0; ; n++ {
		s.space()
		if s.take("</QueueMessage>") {
			return true
		}
		if n == len(seen) || !s.take("<") {
			return false
		}
		name := s.name()
		if name == "" {
			return false
		}
		if slices.Contains(seen[:n], name) {
			return false
		}
		seen[n] = name
		if s.take("/>") || s.take(" />") {
			m.set(name, nil)
			continue
		}
		if !s.take(">") {
			return false
		}
		end := bytes.IndexByte(s.rest, '<')
		if end < 0 {
			return false
		}
		text, ok := s.text(s.rest[:end])
		if !ok {
			return false
		}
		s.rest = s.rest[end:]
		if !s.take("</") || !s.take(name) || !s.take(">") {
			return false
		}
		m.set(name, text)
	}
}

// text decodes character data. The result is valid until the next call.
func (s *scanner) text(raw []byte) ([]byte, bool) {
	if firstIllegal(raw) >= 0 || bytes.Contains(raw, []byte("]]>")) {
		return nil, false
	}
	amp := bytes.IndexByte(raw, '&')
	if amp < 0 {
		return raw, true
	}
	s.scratch = s.scratch[:0]
	for ; amp >= 0; amp = bytes.IndexByte(raw, '&') {
		s.scratch = append(s.scratch, raw[:amp]...)
		raw = raw[amp+1:]
		const longest = len("#x10FFFF")
		end := bytes.IndexByte(raw[:min(len(raw), longest+1)], ';')
		if end <= 0 {
			return nil, false
		}
		r, ok := reference(string(raw[:end]))
		if !ok {
			return nil, false
		}
		s.scratch = utf8.AppendRune(s.scratch, r)
		raw = raw[end+1:]
	}
	s.scratch = append(s.scratch, raw...)
	return s.scratch, true
}

// references are the characters that XML names.
var references = map[string]rune{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\''}

// reference decodes what stands between & and ; in XML.
func reference(name string) (rune, bool) {
	if r, ok := references[name]; ok {
		return r, true
	}
	if name[0] != '#' || len(name) < 2 {
		return 0, false
	}
	digits, base := name[1:], 10
	if digits[0] == 'x' {
		digits, base = digits[1:], 16
	}
	if digits == "" || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || n > utf8.MaxRune || !legal(rune(n)) {
		return 0, false
	}
	return rune(n), true
}

// name takes an element name, letters and digits only.
func (s *scanner) name() string {
	n := 0
	for n < len(s.rest) && n < 32 && (letter(s.rest[n]) || n > 0 && digit(s.rest[n])) {
		n++
	}
	name := string(s.rest[:n])
	s.rest = s.rest[n:]
	return name
}

func (s *scanner) take(prefix string) bool {
	if len(s.rest) < len(prefix) || string(s.rest[:len(prefix)]) != prefix {
		return false
	}
	s.rest = s.rest[len(prefix):]
	return true
}

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\r' ||
		s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
}

// decodeMessages reads the same with encoding/xml.
func decodeMessages(doc []byte) ([]partial, error) {
	var list struct {
		XMLName  xml.Name `xml:"QueueMessagesList"`
		Messages []struct {
			ID          *string `xml:"MessageId"`
			Receipt     *string `xml:"PopReceipt"`
			Text        *string `xml:"MessageText"`
			Inserted    *string `xml:"InsertionTime"`
			NextVisible *string `xml:"TimeNextVisible"`
			Dequeued    *string `xml:"DequeueCount"`
		} `xml:"QueueMessage"`
	}
	d := xml.NewDecoder(bytes.NewReader(doc))
	if err := d.Decode(&list); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(doc[d.InputOffset():])) > 0 {
		return nil, errShape // a document is understood only if its end is
	}
	ms := make([]partial, len(list.Messages))
	for i, m := range list.Messages {
		for _, e := range []struct {
			name string
			text *string
		}{
			{"MessageId", m.ID},
			{"PopReceipt", m.Receipt},
			{"MessageText", m.Text},
			{"InsertionTime", m.Inserted},
			{"TimeNextVisible", m.NextVisible},
			{"DequeueCount", m.Dequeued},
		} {
			if e.text != nil {
				ms[i].set(e.name, []byte(*e.text))
			}
		}
	}
	return ms, nil
}
