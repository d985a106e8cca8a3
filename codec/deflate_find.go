package codec

import (
	"encoding/binary"
	"math/bits"
)

const (
	hashBits    = 12
	maxDistance = 32 << 10
	minMatch    = 4 // of a copy from where the last one is from; another one begins with six bytes, see hash
	// windowStep is how far apart the places of a window are that are looked for. A copy of what is between two
	// is found a few bytes later, and then begins where it begins.
	windowStep = 2
	// skipAfter: of what repeats nothing for 64 bytes every second place is looked at, and so on.
	skipAfter = 6
)

// find makes sequences of src[from:]. Copies may begin before.
func (d *deflater) find(src []byte, from int) {
	d.sequences = d.sequences[:0]
	if d.base > 1<<32-1-2*maxRaw { // what is from before would look like what is to come
		d.heads, d.base = [1 << hashBits]uint64{}, 0
	}
	base := d.base + 1 // so that the zeros of a new table are of earlier chunks
	d.base += uint32(len(src)) + 1
	last := len(src) - 8 // the last place where eight bytes can be looked at
	begin := max(0, from-maxDistance)
	d.prime(src[begin:min(from+8-2*windowStep, len(src))], base+uint32(begin))
	done := from // what is in sequences
	back := 1    // the distance of the last copy
	for at := max(from, 1); at <= last; {
		word, seen := d.see(src, at, base)
		differs := word ^ binary.LittleEndian.Uint64(src[at-back:])
		if uint32(differs) != 0 {
			if distance := d.before(src, at, word, seen, base); distance > 0 {
				back = distance
			} else if alike := fourAlike(differs); alike != 0 {
				// A few bytes further on it goes on as before: numbers that differ. To look at one
				// place after the other until then would take longer for a part of a percent.
				if at += bits.TrailingZeros64(alike) / 8; at <= last {
					d.see(src, at, base)
				}
			} else {
				at += 1 + (at-done)>>skipAfter
				continue
			}
		}
		length := minMatch + same(src, at-back+minMatch, at+minMatch)
		for at > done && at > back && src[at-1] == src[at-1-back] {
			at--
			length++
		}
		d.take(at-done, length, back)
		at += length
		if done = at; at-4 <= last { // what comes with other bytes in front of it
			d.see(src, at-4, base)
		}
	}
	if done < len(src) {
		d.sequences = append(d.sequences, sequence{uint32(len(src) - done), noMatch})
	}
}

// prime is see for the places windowStep apart of a window, the first of which is base. It takes two of them
// from one word: a hash is of six bytes.
func (d *deflater) prime(window []byte, base uint32) {
	for place := uint64(base) << 32; len(window) >= 8; place += 2 * windowStep << 32 {
		word := binary.LittleEndian.Uint64(window)
		d.heads[hash(word)] = place | word&(1<<32-1)
		word >>= 8 * windowStep
		d.heads[hash(word)] = place + windowStep<<32 | word&(1<<32-1)
		window = window[2*windowStep:]
	}
}

// see gives the eight bytes at a place, and what was seen last of their hash, which this place
// becomes: a place plus base, and the four bytes there, so that most of what only looks alike is
// told apart without looking there.
func (d *deflater) see(src []byte, at int, base uint32) (word, seen uint64) {
	word = binary.LittleEndian.Uint64(src[at:])
	head := &d.heads[hash(word)]
	seen = *head
	*head = uint64(base+uint32(at))<<32 | word&(1<<32-1)
	return word, seen
}

// before is how far before a place with these eight bytes those that were seen there last are, if they
// begin with the same six; else 0.
func (d *deflater) before(src []byte, at int, word, seen uint64, base uint32) int {
	if uint32(seen) != uint32(word) || uint32(seen>>32) < base {
		return 0
	}
	distance := at - int(uint32(seen>>32)-base)
	if distance > maxDistance || src[at+4] != src[at-distance+4] || src[at+5] != src[at-distance+5] {
		return 0
	}
	return distance
}

// fourAlike has the high bit of each byte of x set that is zero, like the three behind it.
func fourAlike(x uint64) uint64 {
	const low = 0x7f7f7f7f7f7f7f7f
	zero := ^((x&low + low) | x | low)
	zero &= zero >> 8
	return zero & (zero >> 16)
}

// hash is of the first six bytes of a word. Copies of four take more bits than what they stand for, and those of five
// as many, of digits; without them JSON lines have a fifth fewer copies to be found, written and read.
func hash(word uint64) uint64 { return word << 16 * 889523592379 >> (64 - hashBits) }

// same is how many bytes from at on are like those from the earlier place on.
func same(src []byte, earlier, at int) int {
	n := 0
	for ; at+n+16 <= len(src); n += 16 {
		u, v := src[at+n:at+n+16], src[earlier+n:earlier+n+16]
		x := binary.LittleEndian.Uint64(u) ^ binary.LittleEndian.Uint64(v)
		y := binary.LittleEndian.Uint64(u[8:]) ^ binary.LittleEndian.Uint64(v[8:])
		if x|y != 0 {
			// Which of the two it is cannot be foretold, so there is no branch for it.
			k := bits.TrailingZeros64(x)
			more := bits.TrailingZeros64(y)
			if x == 0 {
				k += more
			}
			return n + k/8
		}
	}
	for ; at+n < len(src) && src[at+n] == src[earlier+n]; n++ {
	}
	return n
}

// take adds a sequence. A copy that is longer than one may be becomes several.
func (d *deflater) take(literals, length, distance int) {
	for length > 0 {
		n := min(length, maxLength)
		if rest := length - n; rest > 0 && rest < 3 {
			n -= 3
		}
		length -= n
		d.sequences = append(d.sequences, sequence{uint32(literals), uint32(n-3)<<16 | uint32(distance-1)})
		literals = 0
	}
}

// tally counts the symbols of what find has found in records, and the bits that follow them.
func (d *deflater) tally(records []byte) {
	d.extra, d.count = 0, counts{}
	d.count.lit[endOfBlock] = 1
	for _, q := range d.sequences {
		for _, b := range records[:q.literals] {
			d.count.lit[b]++
		}
		if q.match == noMatch {
			break
		}
		length, distance := q.match>>16, q.match&0xffff
		l := lengthSymbol[length&0xff]
		symbol, more := distanceSymbol(distance)
		d.count.lit[l&0x1ff]++
		d.count.dist[symbol&31]++
		d.extra += int(l>>9) + int(more)
		records = records[q.literals+length+3:]
	}
}

// lengthSymbol is the symbol of a length less three, and above it how many of the
// lowest bits of that follow its code.
var lengthSymbol = func() (s [256]uint16) {
	for i := range s {
		symbol, extra := 257+i, 0
		if i >= 8 {
			extra = bits.Len(uint(i)) - 3
			symbol = 257 + 4*extra + i>>extra
		}
		s[i] = uint16(symbol | extra<<9)
	}
	s[maxLength-3] = 285
	return s
}()

// distanceSymbol is the symbol of a distance less one, and how many of the lowest bits of
// that follow its code.
func distanceSymbol(d uint32) (symbol, extra uint) {
	if d < 4 {
		return uint(d), 0
	}
	extra = uint(bits.Len32(d)) - 2
	return 2*extra + uint(d>>extra), extra
}
