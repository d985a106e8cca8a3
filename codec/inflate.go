package codec

import (
	"encoding/binary"
	"errors"
	"sync"
)

// inflater unpacks a DEFLATE stream (RFC 1951) that is in memory as a whole into
// memory whose size is known, which is all that opening an envelope needs. The
// packages that read from an io.Reader unpack into a window of 32 KiB and copy from
// there, and ask for their input byte by byte: on envelopes of JSON lines that takes
// about twice the time (BenchmarkInflate), and unpacking is most of what a
// task costs a processor. What is a valid stream, a fuzz test compares with the standard library.
type inflater struct {
	own   tables
	use   *tables // own, or those that the format names
	meta  [metaTable]entry
	sizes [maxLit + maxDist]uint8 // lengths of the codes of a block
	order [maxLit]uint16          // symbols by length of their codes, for building a table

	in   []byte
	at   int    // the next byte of in to be taken into bits
	bits uint64 // taken and not consumed, the next one lowest
	n    uint   // how many of them count; what is above is the same as in in, or nothing
	past int    // zero bytes that were taken behind the end of in

	out []byte // what is unpacked
}

// tables say what the bits of a compressed block mean.
type tables struct {
	lit  [litTable]entry
	dist [distTable]entry
}

// An entry of a table says what the next bits mean:
//
//	bits 16-31  a literal, or two, the first in the lower half, or the base of a length or distance, or where a subtable begins
//	bits 12-15  what it is; none of them: a length or distance
//	bits  8-11  length of the code without extra bits, of two literals that of the first; of a subtable: how many bits choose in it
//	bits  0-7   bits to consume: the code and its extra bits, or both codes
//
// The zero entry stands for bits that are no code.
type entry uint32

const (
	isLiteral entry = 1 << (12 + iota)
	isEnd
	isSubtable
	isPair

	lookBits  = 10 // chosen by in the table of literals and lengths; longer codes have subtables
	distBits  = 8
	metaBits  = 7
	maxCode   = 15 // bits
	maxLit    = 288
	maxDist   = 32
	maxLength = 258

	// The most entries that a complete code needs, subtables included: found for
	// 288 codes and 10 bits, 32 and 8, 19 and 7 of at most 15 (7) bits by zlib's
	// "enough" program.
	litTable  = 1334
	distTable = 402
	metaTable = 1 << metaBits
)

// literals is how many literals an entry of literals is of.
func (e entry) literals() int { return 1 + int(e/isPair&1) }

// Symbols as entries without their code.
var (
	literals  [maxLit]entry
	distances [maxDist]entry
	metas     [19]entry
)

func init() {
	for s := range 256 {
		literals[s] = isLiteral | entry(s)<<16
	}
	literals[256] = isEnd
	base := 3
	for s := 257; s < 285; s++ {
		extra := max(0, (s-257)/4-1)
		literals[s] = entry(base)<<16 | entry(extra)
		base += 1 << extra
	}
	literals[285] = maxLength << 16 // 286 and 287 mean nothing and stay zero
	base = 1
	for s := range 30 {
		extra := max(0, s/2-1)
		distances[s] = entry(base)<<16 | entry(extra)
		base += 1 << extra
	}
	for s := range metas {
		metas[s] = isLiteral | entry(s)<<16
	}
}

var (
	errStream = errors.New("not a DEFLATE stream")
	errCut    = errors.New("the DEFLATE stream ends early")
	errMore   = errors.New("more than was declared")
)

// inflate unpacks the stream at the beginning of in behind what is in s, want bytes
// in all, and says how many bytes of in it took. The buffer grows as the
// bytes come. On an error s is what was unpacked until then.
func (f *inflater) inflate(in []byte, s *slab, want int) (_ *slab, taken int, err error) {
	f.in, f.at, f.bits, f.n, f.past = in, 0, 0, 0, 0
	f.out = s.b
	for final := false; !final && err == nil; {
		f.need()
		final = f.bits&1 != 0
		kind := f.bits >> 1 & 3
		f.drop(3)
		switch kind {
		case 0:
			s, err = f.stored(s, want)
		case 1:
			f.use = fixed()
			s, err = f.block(s, want)
		case 2:
			f.use = &f.own
			if err = f.codes(); err == nil {
				s, err = f.block(s, want)
			}
		default:
			err = errStream
		}
	}
	// Whole bytes that were taken too many go back.
	left := int(f.n >> 3)
	if err == nil && left < f.past {
		err = errCut
	}
	s.b = f.out
	f.in, f.out = nil, nil
	return s, f.at - (left - f.past), err
}

// need takes bits until there are at least 56.
func (f *inflater) need() {
	if f.at+8 <= len(f.in) {
		f.bits |= binary.LittleEndian.Uint64(f.in[f.at:]) << (f.n & 63)
		f.at += int((63 - f.n) >> 3)
		f.n |= 56
		return
	}
	for f.n < 56 {
		if f.at < len(f.in) {
			f.bits |= uint64(f.in[f.at]) << (f.n & 63)
			f.at++
		} else {
			f.past++
		}
		f.n += 8
	}
}

func (f *inflater) drop(n uint) {
	f.bits >>= n & 63
	f.n -= n
}

// ended reports whether bits were consumed that are not there.
func (f *inflater) ended() bool { return f.past > 0 && int(f.n>>3) < f.past }

// stored copies a block that is not compressed.
func (f *inflater) stored(s *slab, want int) (*slab, error) {
	f.drop(f.n & 7)
	if f.ended() {
		return s, errCut
	}
	f.at -= int(f.n>>3) - f.past
	f.bits, f.n, f.past = 0, 0, 0
	if len(f.in)-f.at < 4 {
		return s, errCut
	}
	size, inverse := binary.LittleEndian.Uint16(f.in[f.at:]), binary.LittleEndian.Uint16(f.in[f.at+2:])
	if size != ^inverse {
		return s, errStream
	}
	f.at += 4
	if len(f.in)-f.at < int(size) {
		return s, errCut
	}
	if want-len(f.out) < int(size) {
		return s, errMore
	}
	s = f.room(s, int(size))
	f.out = append(f.out, f.in[f.at:f.at+int(size)]...)
	f.at += int(size)
	return s, nil
}

// room makes room for n more bytes.
func (f *inflater) room(s *slab, n int) *slab {
	s.b = f.out
	s = s.grow(n)
	f.out = s.b
	return s
}

// fixedSizes are how long the codes are that the format itself names (RFC 1951, 3.2.6).
func fixedSizes() (lits, dists []uint8) {
	lits, dists = make([]uint8, maxLit), make([]uint8, maxDist)
	for s := range lits {
		switch {
		case s < 144:
			lits[s] = 8
		case s < 256:
			lits[s] = 9
		case s < 280:
			lits[s] = 7
		default:
			lits[s] = 8
		}
	}
	for s := range dists {
		dists[s] = 5
	}
	return lits, dists
}

// fixed are the tables that the format itself names.
var fixed = sync.OnceValue(func() *tables {
	f := new(inflater)
	lits, dists := fixedSizes()
	f.table(f.own.lit[:], lookBits, lits, literals[:])
	f.table(f.own.dist[:], distBits, dists, distances[:])
	return &f.own
})

// metaOrder is in which order the lengths of the codes for lengths come.
var metaOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// codes reads a block's own codes and makes their tables.
func (f *inflater) codes() error {
	f.need()
	lits, dists, metasSent := 257+int(f.bits&31), 1+int(f.bits>>5&31), 4+int(f.bits>>10&15)
	f.drop(14)
	if lits > 286 || dists > 30 {
		return errStream
	}
	var sizes [19]uint8
	for i := range metasSent {
		if f.n < 3 {
			f.need()
		}
		sizes[metaOrder[i]] = uint8(f.bits & 7)
		f.drop(3)
	}
	if !f.table(f.meta[:], metaBits, sizes[:], metas[:]) {
		return errStream
	}
	for i := 0; i < lits+dists; {
		f.need()
		e := f.meta[f.bits&(1<<metaBits-1)]
		if e == 0 {
			return errStream
		}
		f.drop(uint(e & 0xff))
		var value uint8
		repeat := 1
		switch symbol := uint8(e >> 16); symbol {
		case 16:
			if i == 0 {
				return errStream
			}
			value, repeat = f.sizes[i-1], 3+int(f.bits&3)
			f.drop(2)
		case 17:
			repeat = 3 + int(f.bits&7)
			f.drop(3)
		case 18:
			repeat = 11 + int(f.bits&127)
			f.drop(7)
		default:
			value = symbol
		}
		if i+repeat > lits+dists {
			return errStream
		}
		for range repeat {
			f.sizes[i] = value
			i++
		}
		if f.ended() {
			return errCut
		}
	}
	if !f.table(f.own.lit[:], lookBits, f.sizes[:lits], literals[:]) ||
		!f.table(f.own.dist[:], distBits, f.sizes[lits:lits+dists], distances[:]) {
		return errStream
	}
	pair(f.own.lit[:1<<lookBits])
	return nil
}
