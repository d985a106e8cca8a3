package codec

import "encoding/binary"

// What one turn of the quick loop takes at most: from in, two times taking bits, each
// of which looks at eight bytes and moves by seven; to out, six literals and a match,
// whose last copy may write 15 bytes too many.
const (
	quickIn  = 7 + 8
	quickOut = 6 + maxLength + 15
)

// block unpacks a compressed block with the tables that were made for it.
func (f *inflater) block(s *slab, want int) (*slab, error) {
	for {
		if end, err := f.quick(want); end || err != nil {
			return s, err
		}
		// Near the end of what is there, one symbol after the other.
		f.need()
		e := f.symbol(f.use.lit[:], lookBits)
		if f.ended() {
			return s, errCut
		}
		switch {
		case e&isLiteral != 0:
			f.drop(uint(e >> 8 & 15)) // of two the first: only that is surely there
			if f.ended() {
				return s, errCut
			}
			if len(f.out) == want {
				return s, errMore
			}
			s = f.room(s, 1)
			f.out = append(f.out, byte(e>>16))
			continue
		case e&isEnd != 0:
			f.drop(uint(e & 0xff))
			return s, nil
		case e == 0:
			return s, errStream
		}
		length := f.value(e)
		e = f.symbol(f.use.dist[:], distBits)
		if e == 0 {
			return s, errStream
		}
		distance := f.value(e)
		switch {
		case f.ended():
			return s, errCut
		case distance > len(f.out):
			return s, errStream
		case want-len(f.out) < length:
			return s, errMore
		}
		s = f.room(s, length)
		for range length {
			f.out = append(f.out, f.out[len(f.out)-distance])
		}
	}
}

// symbol finds what the next bits are the code of.
func (f *inflater) symbol(table []entry, look uint) entry {
	e := table[f.bits&(1<<look-1)]
	if e&isSubtable != 0 {
		f.drop(look)
		e = table[uint64(e>>16)+f.bits&(1<<(e>>8&15)-1)]
	}
	return e
}

// value consumes the code of a length or distance, and its extra bits.
func (f *inflater) value(e entry) int {
	extra := f.bits & (1<<(e&63) - 1) >> (e >> 8 & 15)
	f.drop(uint(e & 0xff))
	return int(e>>16) + int(extra)
}

// quick unpacks while there is so much of in, and so much room in out, that neither
// needs to be asked for within a symbol. It stops before that, at the end of the
// block, or at what means nothing.
func (f *inflater) quick(want int) (end bool, err error) {
	in, at, buf, n := f.in, f.at, f.bits, f.n
	out, op := f.out[:cap(f.out)], len(f.out)
	if want < len(out) {
		out = out[:want]
	}
	lastIn, lastOut := len(in)-quickIn, len(out)-quickOut
	lit, dist := &f.use.lit, &f.use.dist
	for at <= lastIn && op <= lastOut {
		buf |= binary.LittleEndian.Uint64(in[at:]) << (n & 63)
		at += int((63 - n) >> 3)
		n |= 56
		e := lit[buf&(1<<lookBits-1)]
		if e&isLiteral != 0 {
			buf >>= e & 63
			n -= uint(e & 63)
			binary.LittleEndian.PutUint16(out[op:], uint16(e>>16))
			op += e.literals()
			e = lit[buf&(1<<lookBits-1)]
			if e&isLiteral != 0 {
				buf >>= e & 63
				n -= uint(e & 63)
				binary.LittleEndian.PutUint16(out[op:], uint16(e>>16))
				op += e.literals()
				e = lit[buf&(1<<lookBits-1)]
				if e&isLiteral != 0 {
					buf >>= e & 63
					n -= uint(e & 63)
					binary.LittleEndian.PutUint16(out[op:], uint16(e>>16))
					op += e.literals()
					continue
				}
			}
			// A length and a distance take up to 48 bits. More bits leave e what it is.
			buf |= binary.LittleEndian.Uint64(in[at:]) << (n & 63)
			at += int((63 - n) >> 3)
			n |= 56
		}
		if e&(isSubtable|isEnd) != 0 || e == 0 {
			if e&isSubtable != 0 {
				buf >>= lookBits
				n -= lookBits
				e = lit[uint64(e>>16)+buf&(1<<(e>>8&15)-1)]
			}
			if e&isLiteral != 0 {
				buf >>= e & 63
				n -= uint(e & 63)
				out[op] = byte(e >> 16)
				op++
				continue
			}
			if e&isEnd != 0 {
				buf >>= e & 63
				n -= uint(e & 63)
				end = true
				break
			}
			if e == 0 {
				err = errStream
				break
			}
		}
		length := int(e>>16) + int(buf&(1<<(e&63)-1)>>(e>>8&15))
		buf >>= e & 63
		n -= uint(e & 63)
		e = dist[buf&(1<<distBits-1)]
		if e&isSubtable != 0 {
			buf >>= distBits
			n -= distBits
			e = dist[uint64(e>>16)+buf&(1<<(e>>8&15)-1)]
		}
		distance := int(e>>16) + int(buf&(1<<(e&63)-1)>>(e>>8&15))
		buf >>= e & 63
		n -= uint(e & 63)
		from := op - distance
		if from < 0 || e == 0 {
			err = errStream
			break
		}
		if distance >= 16 {
			for k := 0; k < length; k += 16 {
				*(*[16]byte)(out[op+k:]) = *(*[16]byte)(out[from+k:])
			}
		} else {
			for k := range length {
				out[op+k] = out[from+k]
			}
		}
		op += length
	}
	f.at, f.bits, f.n = at, buf, n
	f.out = f.out[:op]
	return end, err
}
