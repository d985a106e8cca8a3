package jsonline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is encoding/json's own limit of nesting.
const maxDepth = 10_000

var (
	errEnd  = errors.New("invalid JSON: it ends too early")
	errDeep = errors.New("invalid JSON: nested")
)

// Field is a field that a [Scanner] looks for, and where it found it last. It belongs to one
// scanner.
type Field struct {
	Name  string   // as the user wrote it
	path  []string // the names of the objects around it, then its own
	value []byte   // as it stands in the line; nil if it is missing
	plain bool     // the value is a string that stands for itself
}

// NewField reads a field's name: "city", or "a.b" for b inside of a. A
// backslash keeps the next character as it is, so that `a\.b` names the field "a.b".
func NewField(name string) *Field {
	f := &Field{Name: name, path: []string{""}}
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

// Text gives the found value as a key or an id: a string without its quotes and
// escapes, a number or boolean as it is written. It may alias the line or use
// dst, which it returns for the next time. A field that is missing, null, an object or an array is
// an error that names it.
func (f *Field) Text(dst []byte) (text, scratch []byte, err error) {
	switch {
	case f.value == nil:
		return nil, dst, fmt.Errorf("there is no field %q", f.Name)
	case f.value[0] == 'n':
		return nil, dst, fmt.Errorf("field %q is null", f.Name)
	case f.value[0] == '{' || f.value[0] == '[':
		return nil, dst, fmt.Errorf("field %q is not a string, a number or a boolean", f.Name)
	case f.value[0] == '"':
		if f.plain {
			return f.value[1 : len(f.value)-1], dst, nil
		}
		dst = appendUnquoted(dst[:0], f.value)
		return dst, dst, nil
	}
	return f.value, dst, nil
}

// appendUnquoted appends the text of a valid JSON string. Half a surrogate pair becomes U+FFFD, as
// in encoding/json.
func appendUnquoted(dst, quoted []byte) []byte {
	in := quoted[1 : len(quoted)-1]
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			dst = append(dst, in[i])
			continue
		}
		i++
		switch at := strings.IndexByte("bfnrt", in[i]); {
		case at >= 0:
			dst = append(dst, "\b\f\n\r\t"[at])
		case in[i] == 'u':
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

// AppendQuoted appends s to dst as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, because JSON cannot hold it.
func AppendQuoted(dst []byte, s []byte) []byte {
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
		case b < 0x20 && strings.IndexByte("\n\r\t", b) >= 0:
			dst = append(dst, '\\', "nrt"[strings.IndexByte("\n\r\t", b)])
		case b < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			dst = append(dst, b)
		}
		i++
	}
	return append(dst, '"')
}

// ResultKey is the key of a context with the function that takes a task's result from its handler.
type ResultKey struct{}
