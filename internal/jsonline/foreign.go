package jsonline

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/queuepump/queuepump/shardmap"
)

// The encodings of a text: what a task's body is.
const (
	// Auto decodes a text that is base64 of JSON, or of JSON that gzip packed, and not JSON itself.
	// Every other text is taken as it is: a word may be base64 by chance, but hardly base64 of JSON.
	ForeignAuto = "auto"
	// Text takes every text as it is.
	Text = "text"
	// Base64 decodes every text that is base64 of anything; others are taken as they are.
	Base64 = "base64"
)

// Encodings are all encodings.
var ForeignEncodings = []string{ForeignAuto, Text, Base64}

// ForeignReader reads messages. It may be used from many goroutines at once.
type ForeignReader struct {
	encoding string
	keyed    bool
	scanners sync.Pool // of *scanner
}

// scanner is what one goroutine finds the key with.
type scanner struct {
	field   *Field
	json    *Scanner
	scratch []byte
}

// NewForeign makes a reader of texts whose key is the field of that name. If the name is empty,
// they have no key.
func NewForeign(encoding, key string) *ForeignReader {
	r := &ForeignReader{encoding: encoding, keyed: key != ""}
	r.scanners.New = func() any {
		field := NewField(key)
		return &scanner{field: field, json: NewScanner(field)}
	}
	return r
}

// Read gives the key and the body of a message. The key is nil if the text is not JSON, or the
// field is missing, empty, null, an object or an array. With every encoding it is looked for in the
// text and in what [Auto] would decode: processors with different encodings must agree on a
// message's segment. The body may be a part of the text.
func (r *ForeignReader) Read(text []byte) (key, body []byte) {
	if r.encoding == Text && !r.keyed {
		return nil, text
	}
	decoded, isBase64 := decode(text)
	plain, isJSON := decoded, isBase64 && looksLikeJSON(decoded)
	if unpacked := gunzipped(decoded); unpacked != nil && looksLikeJSON(unpacked) {
		plain, isJSON = unpacked, true
	}
	if !isJSON || Valid(text) {
		plain, isJSON = withoutMark(text), false
	}
	body = text
	switch {
	case r.encoding == ForeignAuto && isJSON:
		body = plain
	case r.encoding == Base64 && isBase64:
		body = decoded
	case r.encoding == ForeignAuto && len(plain) < len(text) && Valid(plain):
		body = plain
	}
	return r.Key(plain), body
}

// looksLikeJSON takes for JSON, too, what no scanner reads to its end because of its depth.
func looksLikeJSON(text []byte) bool { return Valid(text) || TooDeep(text) }

// Elements are those of a JSON array; nil if the text is another one, or has more than most.
func Elements(text []byte, most int) (elements [][]byte) {
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '[' || !Valid(text) {
		return nil
	}
	list := json.NewDecoder(bytes.NewReader(text))
	for _, _ = list.Token(); list.More(); { // the bracket first
		var element json.RawMessage
		if len(elements) == most || list.Decode(&element) != nil {
			return nil
		}
		elements = append(elements, element)
	}
	return elements
}

// ForeignSegment gives a message's segment: that of its key or, without one, of its text as it was
// put.
func ForeignSegment(text, key []byte, segments int) uint32 {
	if key == nil {
		return shardmap.Segment(text, segments)
	}
	return shardmap.Segment(key, segments)
}

// Key gives the key of a text that is JSON, nil if it has none.
func (r *ForeignReader) Key(text []byte) []byte {
	if !r.keyed {
		return nil
	}
	s := r.scanners.Get().(*scanner)
	defer r.scanners.Put(s)
	if s.json.Scan(text) != nil {
		return nil
	}
	var key []byte
	var err error
	if key, s.scratch, err = s.field.Text(s.scratch); err != nil || len(key) == 0 {
		return nil
	}
	return bytes.Clone(key)
}

// mark is a prefix that some editors and libraries put before a text. JSON does not begin with it.
var mark = []byte("\xef\xbb\xbf")

func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, mark) }

// strict refuses what no encoder writes: bits left over in the last character.
var strict = base64.StdEncoding.Strict()

// decode gives the content of a base64 text, without the mark; line breaks in it are allowed.
func decode(text []byte) (decoded []byte, ok bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || !inAlphabet(text[0]) { // as JSON objects, arrays and strings
		return nil, false
	}
	decoded = make([]byte, strict.DecodedLen(len(text)))
	n, err := strict.Decode(decoded, text)
	if err != nil {
		return nil, false
	}
	return withoutMark(decoded[:n]), true
}

// MaxUnpacked is the most that a gzip file in a message may unpack to; larger ones are not
// unpacked.
const MaxUnpacked = 1 << 20

// gunzips are readers of gzip files.
var gunzips = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gunzipped is what a gzip file of one member holds, without the mark. It is nil if the file is
// damaged, empty or too large. No memory is taken for more than the file may hold.
func gunzipped(file []byte) []byte {
	const least, ratio = 18, 1032 // the size of an empty one; the most that DEFLATE can do
	if len(file) < least || file[0] != 0x1f || file[1] != 0x8b {
		return nil
	}
	size := int(binary.LittleEndian.Uint32(file[len(file)-4:]))
	if size == 0 || size > min(MaxUnpacked, ratio*len(file)) {
		return nil
	}
	z := gunzips.Get().(*gzip.Reader)
	defer gunzips.Put(z)
	if z.Reset(bytes.NewReader(file)) != nil {
		return nil
	}
	// One byte more than there is: at the end the reader compares size and checksum.
	plain := make([]byte, size+1)
	if n, err := io.ReadFull(z, plain); n != size || err != io.ErrUnexpectedEOF {
		return nil
	}
	return withoutMark(plain[:size])
}

func inAlphabet(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}
