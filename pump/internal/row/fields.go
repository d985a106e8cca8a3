package row

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// Bounds of what fields hold.
const (
	maxLine   = 250 // bytes of a short text
	MaxDemand = 1e9 // of measured quantities, such as requests a second

	// MaxEpoch is never reached: it is a thousand claims a second for 285,000 years. A row beyond it
	// is damaged; at it members stop claiming, as they could not read that row.
	MaxEpoch = 1 << 53
)

// ErrCorrupt is a row that holds what no version of this program writes. It is
// never overwritten: an operator has to look.
var ErrCorrupt = errors.New("the row is damaged")

// NewerFormat is a row that a newer version of this program has written. It is an [ErrCorrupt] too:
// here it can neither be read nor be written over.
type NewerFormat struct{ Format, Reads int64 }

func (e *NewerFormat) Error() string {
	return fmt.Sprintf("the row is of format %d, and this program reads %d; use a newer one",
		e.Format, e.Reads)
}

// Is makes it an [ErrCorrupt].
func (e *NewerFormat) Is(target error) bool { return target == ErrCorrupt }

// Fields reads the properties of a row. A missing property is its zero value, because the service
// drops nulls; a property of another type is an error, and so is a call of Fail. After the first
// error all is zero.
type Fields struct {
	Props map[string]any
	Err   error
}

// Fail says what is wrong with a property, as [ErrCorrupt]. The first problem stays.
func (f *Fields) Fail(name, problem string) {
	f.Err = cmp.Or(f.Err, fmt.Errorf("%w: %s %s", ErrCorrupt, name, problem))
}

func property[T any](f *Fields, name string) (value T) {
	v, ok := f.Props[name]
	if !ok || f.Err != nil {
		return value
	}
	if value, ok = v.(T); !ok {
		f.Fail(name, fmt.Sprintf("is a %T, not a %T", v, value))
	}
	return value
}

// Text is a property of text.
func (f *Fields) Text(name string) string { return property[string](f, name) }

// Integer is a property of 64 bits, of either sign.
func (f *Fields) Integer(name string) int64 { return property[int64](f, name) }

// Flag is a property that is true or false.
func (f *Fields) Flag(name string) bool { return property[bool](f, name) }

// Binary is a property of bytes, which are not copied.
func (f *Fields) Binary(name string) []byte { return property[[]byte](f, name) }

// Moment is a property of a time.
func (f *Fields) Moment(name string) time.Time {
	return property[time.Time](f, name)
}

// Parts is a binary value that is spread over up to `most` properties; nil if the first is missing.
func (f *Fields) Parts(name string, most int) []byte {
	all := f.Binary(name)
	for i := 1; i < most && all != nil; i++ {
		all = append(slices.Clip(all), f.Binary(partName(name, i))...)
	}
	return all
}

// PutParts is the way back: the first property has the name itself, as if there were no others.
func PutParts(props map[string]any, name string, size int, value []byte) {
	for i := 0; i == 0 || len(value) > 0; i++ {
		part := value[:min(len(value), size)]
		props[partName(name, i)] = part
		value = value[len(part):]
	}
}

// PartNames are the names under which PutParts stores up to most parts, for a query of them.
func PartNames(name string, most int) (names []string) {
	for i := range most {
		names = append(names, partName(name, i))
	}
	return names
}

func partName(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s%d", name, i)
}

// Count is an integer that cannot be negative.
func (f *Fields) Count(name string) uint64 {
	n := f.Integer(name)
	if n < 0 {
		f.Fail(name, "is negative")
		return 0
	}
	return uint64(n)
}

// UpTo is a count of at most most.
func (f *Fields) UpTo(name string, most uint64) uint64 {
	n := f.Count(name)
	if n > most {
		f.Fail(name, fmt.Sprintf("is %d, at most %d is possible", n, most))
		return 0
	}
	return n
}

// Number is a measured quantity.
func (f *Fields) Number(name string) float64 {
	x := property[float64](f, name)
	if !(x >= 0 && x <= MaxDemand) { // so written that NaN fails too
		f.Fail(name, fmt.Sprintf("is %v", x))
		return 0
	}
	return x
}

// Line is a short text for people.
func (f *Fields) Line(name string) string {
	s := f.Text(name)
	if len(s) > maxLine {
		f.Fail(name, fmt.Sprintf("has %d bytes, at most %d are possible", len(s), maxLine))
		return ""
	}
	return s
}

// Duration is a span of nanoseconds that is not negative.
func (f *Fields) Duration(name string) time.Duration { return time.Duration(f.Count(name)) }

// Run is the id of a run, zero if the text is empty.
func (f *Fields) Run(name string) codec.RunID {
	text := f.Text(name)
	if text == "" {
		return codec.RunID{}
	}
	id, err := codec.ParseRunID(text)
	if err != nil {
		f.Fail(name, err.Error())
	}
	return id
}

// RunText is a run's id as a property has it: empty for none.
func RunText(id codec.RunID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// Clip cuts a text for people to maxLine bytes of one line of valid UTF-8.
func Clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	if len(s) <= maxLine {
		return s
	}
	cut := maxLine
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// Finite is an amount that fits a row: from 0 to [MaxDemand], and 0 if x is not a number.
func Finite(x float64) float64 {
	if !(x > 0) { // so written that NaN fails too
		return 0
	}
	return min(x, MaxDemand)
}

// Count63 is a count as a table stores integers: at most 2^63 - 1.
func Count63(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// Damaged says which row an error is about.
func Damaged(table storage.Table, partition, row string, err error) error {
	return fmt.Errorf("row %s/%s of table %s: %w", partition, row, table.Name(), err)
}
