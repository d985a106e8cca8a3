package codec

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// NSet is the set of n that an envelope carries: the identity of a task is
// (run, segment, n), and an envelope must say which n it holds because its
// boundaries differ after a takeover, a split or a rewrite. A set is
// kept as sorted spans, so a thousand consecutive tasks cost one span.
//
// An NSet is a value: copies are independent of each other. The zero NSet is
// empty. n ranges from 0 to 2^64-2.
type NSet struct {
	spans []span
}

// span is the n of from <= n < to. The spans of a set are sorted, none is
// empty and no two of them touch, so a set has exactly one representation.
type span struct{ from, to uint64 }

// MakeNSet is the set of the given n, in any order, repeated or not. It panics
// on n = 2^64-1, which is outside the range.
func MakeNSet(ns ...uint64) NSet {
	sorted := slices.Clone(ns)
	slices.Sort(sorted)
	var s NSet
	for _, n := range sorted {
		if n == math.MaxUint64 {
			panic("codec: n = 2^64-1 is out of range")
		}
		s.spans = appendN(s.spans, n)
	}
	return s
}

// appendN adds n to spans that hold no n greater than it.
func appendN(spans []span, n uint64) []span {
	if k := len(spans); k > 0 {
		switch last := &spans[k-1]; {
		case n < last.to:
			return spans
		case n == last.to:
			last.to++
			return spans
		}
	}
	return append(spans, span{n, n + 1})
}

// AddRange adds every n of from <= n < to; nothing if to <= from. It costs time
// in proportion to the number of spans.
func (s *NSet) AddRange(from, to uint64) {
	if to <= from {
		return
	}
	merged := make([]span, 0, len(s.spans)+1)
	i := 0
	for ; i < len(s.spans) && s.spans[i].to < from; i++ {
		merged = append(merged, s.spans[i])
	}
	for ; i < len(s.spans) && s.spans[i].from <= to; i++ {
		from, to = min(from, s.spans[i].from), max(to, s.spans[i].to)
	}
	merged = append(merged, span{from, to})
	// A new slice, never the old one changed: copies of s share the old one.
	s.spans = append(merged, s.spans[i:]...)
}

// Len is the number of n in the set, or the largest int if it does not fit.
func (s NSet) Len() int {
	var total uint64
	for _, sp := range s.spans {
		sum, carry := bits.Add64(total, sp.to-sp.from, 0)
		if carry != 0 || sum > math.MaxInt {
			return math.MaxInt
		}
		total = sum
	}
	return int(total)
}

// Contains reports whether n is in the set.
func (s NSet) Contains(n uint64) bool {
	i, found := slices.BinarySearchFunc(s.spans, n, func(sp span, n uint64) int {
		switch {
		case sp.to <= n:
			return -1
		case sp.from > n:
			return 1
		}
		return 0
	})
	return found && s.spans[i].from <= n
}

// All yields every n in ascending order.
func (s NSet) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, sp := range s.spans {
			for n := sp.from; n < sp.to; n++ {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// Spans yields the maximal runs of consecutive n in ascending order, each as
// its first n and the n after its last.
func (s NSet) Spans() iter.Seq2[uint64, uint64] {
	return func(yield func(from, to uint64) bool) {
		for _, sp := range s.spans {
			if !yield(sp.from, sp.to) {
				return
			}
		}
	}
}

// Equal reports whether both sets hold the same n.
func (s NSet) Equal(t NSet) bool { return slices.Equal(s.spans, t.spans) }

// String shows the set for people: "0-41,43".
func (s NSet) String() string {
	var b []byte
	for i, sp := range s.spans {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, sp.from, 10)
		if last := sp.to - 1; last > sp.from {
			b = append(b, '-')
			b = strconv.AppendUint(b, last, 10)
		}
	}
	return string(b)
}

// On the wire a set is the number of spans and for each of them two uvarints:
// how far it begins after the least n it could begin at (0 for the first, one
// past the n that ended the last one for the others, since spans never touch),
// and its length less one. Every byte sequence therefore means at most one set
// and every set has one byte sequence.

// spanSize is the encoded size of sp after a span that ended at prev (exclusive; first: there is no
// such span).
func spanSize(sp span, prev uint64, first bool) int {
	return uvarintLen(spanGap(sp, prev, first)) + uvarintLen(sp.to-sp.from-1)
}

func spanGap(sp span, prev uint64, first bool) uint64 {
	if first {
		return sp.from
	}
	return sp.from - prev - 1
}

func (s NSet) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.spans)))
	var prev uint64
	for i, sp := range s.spans {
		b = binary.AppendUvarint(b, spanGap(sp, prev, i == 0))
		b = binary.AppendUvarint(b, sp.to-sp.from-1)
		prev = sp.to
	}
	return b
}

// size is len(s.append(nil)).
func (s NSet) size() int {
	n := uvarintLen(uint64(len(s.spans)))
	var prev uint64
	for i, sp := range s.spans {
		n += spanSize(sp, prev, i == 0)
		prev = sp.to
	}
	return n
}

// readNSet reads what append wrote. The number of spans that it allocates for
// is checked against the bytes that are really there, and the number of n
// against maxTasks, which the caller has derived from the envelope's real size.
func readNSet(f *fields, maxTasks uint64) NSet {
	count := f.uvarint("spans of the n-set", uint64(len(f.rest)/2))
	spans := make([]span, 0, count)
	var prev, total uint64
	for i := range count {
		gap := f.uvarint("gap of the n-set", math.MaxUint64)
		length := f.uvarint("span of the n-set", math.MaxUint64)
		if f.err != nil {
			return NSet{}
		}
		if total+length >= maxTasks || length >= maxTasks {
			f.fail("n-set of more tasks than the records can hold")
			return NSet{}
		}
		total += length + 1
		from, carry := gap, uint64(0)
		if i > 0 {
			from, carry = bits.Add64(prev, gap, 1)
		}
		to, carry2 := bits.Add64(from, length, 1)
		if carry|carry2 != 0 {
			f.fail("n-set beyond 2^64")
			return NSet{}
		}
		spans = append(spans, span{from, to})
		prev = to
	}
	return NSet{spans}
}

// uvarintLen is the size of v as a uvarint.
func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
