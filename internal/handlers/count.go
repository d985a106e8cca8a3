// This file is the reducer behind `processor run --count-by`: it counts the tasks of each value
// of a field, adds up another field, and reads what all segments have counted.

package handlers

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"sync"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/reduce"
)

const (
	// maxCountKey bounds a counted value: a state holds every value once.
	maxCountKey = 1 << 10
	// maxNumber and maxExponent bound a number that is summed, in bytes of its text and
	// either way: an exact sum has all the digits between the greatest and the smallest, and
	// 1e999999999 has a gigabyte of them.
	maxNumber   = 100
	maxExponent = 100
)

// KeyCount is what [By] knows of one value of the field that it counts by.
type KeyCount struct {
	Key   string
	Count uint64
	// Sum is the exact decimal sum, without exponent and trailing zeros; empty if nothing is
	// summed.
	Sum json.Number
}

// CountBy returns the handler of a [reduce.Reducer] that counts the tasks of each value of a field
// of their bodies, which are JSON objects, and adds up another field, unless sum is empty. Fields
// are named as in [source.JSONLines]. The value of field is a text, number or boolean of at most
// 1 KiB and counts as it is written: 1 and 1.0 are two values, 1 and "1" one. The value of sum is a
// number or a text that is one, of at most 100 characters and between 1e-100 and 1e100 (or 0);
// sums are decimal and exact. A task without one of both is rejected.
//
// The name of the reducer, and thus what is pinned in the workload, is made of both
// names. [Read] reads what was counted.
func CountBy(field, sum string) pump.Handler {
	return counter(field, sum).Handler()
}

func counter(field, sum string) *reduce.Reducer[counts, keySums] {
	c := &counting{field: field, sum: sum}
	return &reduce.Reducer[counts, keySums]{
		Name: c.name(), Map: c.count, Fold: (*counts).add, Encode: (*counts).encode, Decode: decodeCounts,
	}
}

// counting finds the counted and the summed field in a task's body.
type counting struct {
	field, sum string
	scanners   sync.Pool // of *countScanner
}

// countScanner is for one task at a time.
type countScanner struct {
	*jsonline.Scanner
	key, number *jsonline.Field
	buf         []byte
}

const countName = "count/1"

// name holds both fields so that no two settings have one name.
func (c *counting) name() string {
	if c.sum == "" {
		return fmt.Sprintf("%s by %s", countName, word(c.field))
	}
	return fmt.Sprintf("%s by %s sum %s", countName, word(c.field), word(c.sum))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// word is a field's name, in quotes if it could look like several words.
func word(field string) string {
	if plainWord.MatchString(field) {
		return field
	}
	return strconv.QuoteToASCII(field)
}

func (c *counting) scanner() *countScanner {
	if s, ok := c.scanners.Get().(*countScanner); ok {
		return s
	}
	s := &countScanner{key: jsonline.NewField(c.field)}
	fields := []*jsonline.Field{s.key}
	if c.sum != "" {
		s.number = jsonline.NewField(c.sum)
		fields = append(fields, s.number)
	}
	s.Scanner = jsonline.NewScanner(fields...)
	return s
}

func (c *counting) count(_ context.Context, t *pump.Task) (keySums, error) {
	s := c.scanner()
	defer c.scanners.Put(s)
	out, err := s.read(t.Body)
	if err != nil {
		return out, pump.Reject(err)
	}
	return out, nil
}

// read gives a task's contribution.
func (s *countScanner) read(body []byte) (out keySums, err error) {
	out.count = 1
	if err := s.Scan(body); err != nil {
		return out, fmt.Errorf("the body has no field %q to count by: %w", s.key.Name, err)
	}
	var text []byte
	if text, s.buf, err = s.key.Text(s.buf); err != nil {
		return out, fmt.Errorf("nothing to count by: %w", err)
	}
	if len(text) > maxCountKey {
		return out, fmt.Errorf(
			"field %q has %d bytes; it is not counted by more than %d", s.key.Name,
			len(text), maxCountKey,
		)
	}
	out.key = string(text)
	if s.number == nil {
		return out, nil
	}
	if text, s.buf, err = s.number.Text(s.buf); err != nil {
		return out, fmt.Errorf("nothing to sum: %w", err)
	}
	if out.sum, err = parseNumber(text); err != nil {
		return out, fmt.Errorf("field %q is %.120q, %w", s.number.Name, text, err)
	}
	return out, nil
}

var (
	errNoNumber  = errors.New("which is not a number")
	errBigNumber = fmt.Errorf(
		"which is beyond what is summed: at most %d characters, and from 1e-%d to 1e%d", maxNumber,
		maxExponent, maxExponent,
	)
)

// parseNumber reads a number as JSON writes it.
func parseNumber(text []byte) (d decimal, err error) {
	switch {
	case len(text) > maxNumber:
		return d, errBigNumber
	case !jsonline.ValidNumber(text):
		return d, errNoNumber
	}
	d, ok := parseDecimal(string(text), maxExponent)
	if !ok {
		return d, errBigNumber
	}
	return d, nil
}

// counts is the state of a segment: its keys in the order in which they came, so
// that equal histories have equal bytes (P9) and what was stored once stays where it is.
type counts struct {
	keys  []keySums
	index map[string]int // of each key, its place in keys
}

// keySums is what is known of a key, or what a task adds to that.
type keySums struct {
	key   string
	count uint64
	sum   decimal
}

func (c *counts) add(k keySums) {
	i, ok := c.index[k.key]
	if !ok {
		if c.index == nil {
			c.index = map[string]int{}
		}
		c.index[k.key] = len(c.keys)
		c.keys = append(c.keys, k)
		return
	}
	c.keys[i].count += k.count
	c.keys[i].sum = c.keys[i].sum.add(k.sum)
}

// encode writes the keys one after another:
//
//	uvarint  length of the key, then the key
//	uvarint  count
//	varint   exponent of the sum
//	uvarint  twice the length of its coefficient, plus 1 if that is negative
//	         the coefficient's bytes, the highest first
func (c *counts) encode() ([]byte, error) {
	var b []byte
	for i := range c.keys {
		b = c.keys[i].append(b)
	}
	return b, nil
}

func (k *keySums) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(k.key)))
	b = append(b, k.key...)
	b = binary.AppendUvarint(b, k.count)
	b = binary.AppendVarint(b, int64(k.sum.exponent))
	coefficient := k.sum.at(k.sum.exponent)
	size := uint64(coefficient.BitLen()+7) / 8
	b = binary.AppendUvarint(b, 2*size+uint64(max(-coefficient.Sign(), 0)))
	return append(b, coefficient.Bytes()...)
}

func decodeCounts(b []byte) (counts, error) {
	var c counts
	for len(b) > 0 {
		var k keySums
		var err error
		if k, b, err = cutKeyCount(b); err != nil {
			return counts{}, err
		}
		if _, twice := c.index[k.key]; twice {
			return counts{}, fmt.Errorf("counts: key %.80q stands there twice", k.key)
		}
		c.add(k)
	}
	return c, nil
}

var errCountsCut = errors.New("counts: they are cut short or damaged")

// cutKeyCount takes the first key off what encode wrote.
func cutKeyCount(b []byte) (k keySums, rest []byte, err error) {
	r := countReader{rest: b}
	k.key = string(r.bytes(r.uvarint(), maxCountKey))
	k.count = r.uvarint()
	exponent := r.varint()
	size := r.uvarint()
	coefficient := new(big.Int).SetBytes(r.bytes(size/2, maxNumber))
	if r.cut || exponent < -maxExponent || exponent > maxExponent {
		return keySums{}, nil, errCountsCut
	}
	if size%2 == 1 {
		coefficient.Neg(coefficient)
	}
	k.sum = decimal{coefficient, int(exponent)}
	return k, r.rest, nil
}

// countReader takes one value after the other off what encode wrote.
type countReader struct {
	rest []byte
	cut  bool // a value was missing; rest has no meaning any more
}

func (r *countReader) skip(size int) {
	if size <= 0 {
		r.cut, r.rest = true, nil
		return
	}
	r.rest = r.rest[size:]
}

func (r *countReader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	r.skip(size)
	return n
}

func (r *countReader) varint() int64 {
	n, size := binary.Varint(r.rest)
	r.skip(size)
	return n
}

func (r *countReader) bytes(n, most uint64) []byte {
	if n > most || n > uint64(len(r.rest)) {
		r.cut, r.rest = true, nil
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}
