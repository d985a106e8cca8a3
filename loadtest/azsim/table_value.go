package azsim

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// edm is the type of a property, one of the Table service's eight.
type edm uint8

const (
	edmString edm = iota
	edmBoolean
	edmInt32
	edmInt64
	edmDouble
	edmDateTime
	edmGUID
	edmBinary
)

// edmNames are the names that odata.type annotations use.
var edmNames = [...]string{
	edmString: "Edm.String", edmBoolean: "Edm.Boolean", edmInt32: "Edm.Int32", edmInt64: "Edm.Int64",
	edmDouble: "Edm.Double", edmDateTime: "Edm.DateTime", edmGUID: "Edm.Guid", edmBinary: "Edm.Binary",
}

func parseEDM(name string) (edm, bool) {
	kind := slices.Index(edmNames[:], name)
	return edm(max(kind, 0)), kind >= 0
}

// value is one property's value. Values are never changed once made.
type value struct {
	kind edm
	text string  // string; binary as bytes; GUID in lower case
	num  int64   // Int32, Int64; Boolean as 0 or 1; DateTime as ticks
	real float64 // Double
}

// The service's clock counts in ticks of 100 ns from the year 1.
const (
	tick          = 100 * time.Nanosecond
	ticksPerSec   = int64(time.Second / tick)
	unixEpochSecs = 62_135_596_800 // from 0001-01-01 to 1970-01-01
)

// minTicks is the earliest DateTime the service stores, 1601-01-01: it keeps
// them as Windows file times.
var (
	minTicks = toTicks(time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC))
	maxTicks = toTicks(time.Date(9999, 12, 31, 23, 59, 59, 999_999_900, time.UTC))
)

func toTicks(t time.Time) int64 {
	return (t.Unix()+unixEpochSecs)*ticksPerSec + int64(t.Nanosecond())/int64(tick)
}

// formatTicks writes a time as the service does: seven fractional digits with
// trailing zeros dropped (AZURE.md A4, ETag).
func formatTicks(n int64) string {
	t := time.Unix(n/ticksPerSec-unixEpochSecs, n%ticksPerSec*int64(tick)).UTC()
	return t.Format("2006-01-02T15:04:05.9999999Z")
}

// parseDateTime reads the forms of Edm.DateTime: ISO 8601 with at most seven
// fractional digits, in UTC unless it says otherwise.
func parseDateTime(s string) (int64, bool) {
	if _, fraction, ok := strings.Cut(s, "."); ok {
		digits := len(fraction) - len(strings.TrimLeft(fraction, "0123456789"))
		if digits > 7 {
			return 0, false
		}
	}
	for _, layout := range [...]string{
		time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04Z07:00", "2006-01-02T15:04",
		"2006-01-02",
	} {
		if t, err := time.Parse(layout, s); err == nil {
			return toTicks(t.UTC()), true
		}
	}
	return 0, false
}

var (
	errValue      = errors.New("value does not fit its type")
	errValueRange = errors.New("value out of range")
)

// parseText makes a value of the type from the text that JSON carries it as.
func parseText(kind edm, s string) (value, error) {
	v := value{kind: kind}
	ok := true
	switch kind {
	case edmString:
		v.text = s
	case edmInt64:
		n, err := strconv.ParseInt(s, 10, 64)
		v.num, ok = n, err == nil
	case edmDouble:
		switch s { // JSON has no literals for these three
		case "NaN":
			v.real = math.NaN()
		case "Infinity", "INF":
			v.real = math.Inf(1)
		case "-Infinity", "-INF":
			v.real = math.Inf(-1)
		default:
			f, err := strconv.ParseFloat(s, 64)
			v.real, ok = f, err == nil
		}
	case edmDateTime:
		v.num, ok = parseDateTime(s)
		if ok && (v.num < minTicks || v.num > maxTicks) {
			return v, errValueRange
		}
	case edmGUID:
		id, is := parseGUID(s)
		v.text, ok = id.String(), is
	case edmBinary:
		b, err := base64.StdEncoding.DecodeString(s)
		v.text, ok = string(b), err == nil
	default: // Boolean and Int32 are literals, never text
		ok = false
	}
	if !ok {
		return v, errValue
	}
	return v, nil
}

// parseNumber makes a value from a JSON number. Without a type, a whole number
// that fits is an Int32 and anything else a Double: a bare number beyond 32
// bits loses its low digits, as on the service.
func parseNumber(kind edm, typed bool, s string) (value, error) {
	if n, err := strconv.ParseInt(s, 10, 32); err == nil && (!typed || kind == edmInt32) {
		return value{kind: edmInt32, num: n}, nil
	}
	if typed && kind != edmDouble {
		return value{}, errValue
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return value{}, errValue
	}
	return value{kind: edmDouble, real: f}, nil
}

// size is what the value counts towards the entity's 1 MiB, by the formula of the data model page.
func (v value) size() int {
	switch v.kind {
	case edmString:
		return 4 + 2*utf16Len(v.text)
	case edmBinary:
		return 4 + len(v.text)
	case edmBoolean:
		return 1
	case edmInt32:
		return 4
	case edmGUID:
		return 16
	default:
		return 8
	}
}

// utf16Len counts as the service does: in UTF-16 code units.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// compare orders two values. Numbers of any width compare with one another; values of unlike types
// do not compare.
func (v value) compare(w value) (order int, ok bool) {
	switch {
	case v.number() && w.number():
		if v.kind == edmDouble || w.kind == edmDouble {
			a, b := v.float(), w.float()
			if math.IsNaN(a) || math.IsNaN(b) {
				return 0, false
			}
			return cmp.Compare(a, b), true
		}
		return cmp.Compare(v.num, w.num), true
	case v.kind != w.kind:
		return 0, false
	case v.kind == edmBoolean || v.kind == edmDateTime:
		return cmp.Compare(v.num, w.num), true
	default:
		return cmp.Compare(v.text, w.text), true
	}
}

func (v value) number() bool {
	return v.kind == edmInt32 || v.kind == edmInt64 || v.kind == edmDouble
}

func (v value) float() float64 {
	if v.kind == edmDouble {
		return v.real
	}
	return float64(v.num)
}

// annotated tells whether JSON must name the type, because the literal alone
// would be read as another one.
func (v value) annotated() bool {
	switch v.kind {
	case edmInt64, edmDateTime, edmGUID, edmBinary:
		return true
	case edmDouble:
		return math.IsNaN(v.real) || math.IsInf(v.real, 0)
	}
	return false
}

func (v value) appendJSON(b []byte) []byte {
	switch v.kind {
	case edmBoolean:
		return strconv.AppendBool(b, v.num != 0)
	case edmInt32:
		return strconv.AppendInt(b, v.num, 10)
	case edmInt64:
		b = append(b, '"')
		b = strconv.AppendInt(b, v.num, 10)
		return append(b, '"')
	case edmDouble:
		return appendDouble(b, v.real)
	case edmDateTime:
		return appendString(b, formatTicks(v.num))
	case edmBinary:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, []byte(v.text))
		return append(b, '"')
	default:
		return appendString(b, v.text)
	}
}

// appendDouble keeps a decimal point in whole numbers: without it the reader
// would take the Double for an Int32.
func appendDouble(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-5 || a >= 1e15) {
		format = 'E'
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, format, -1, 64)
	if !bytes.ContainsAny(b[start:], ".E") {
		b = append(b, ".0"...)
	}
	return b
}

// appendString writes a JSON string; the text is valid UTF-8 already.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
