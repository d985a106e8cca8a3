package codec

import (
	"encoding/binary"
	"sync"
)

// deflater packs records as a DEFLATE stream (RFC 1951), a chunk at a time. It is made for what
// envelopes are filled with: records of one shape, of which the next repeats the last at the same
// distance, but for some digits and words. A block stays open from chunk to chunk as long as its codes
// suit what comes: envelopes are packed in some twenty chunks, and codes and a head for each of
// them took a third of the time. So it is also known to the bit how long the stream becomes with one
// more record. And its table is 32 KiB and not half a megabyte, which a distributor that goes from envelope
// to envelope would find in no cache.
//
// At a stroke it takes about four fifths of the time of klauspost/compress at level 2; lines of bench become 4 % shorter
// than by that, JSON with random tokens and lines of words 4 to 5 % longer (BenchmarkDeflate). In the chunks of an envelope
// it takes less than at a stroke: only the first of them needs codes made.
type deflater struct {
	heads [1 << hashBits]uint64 // where bytes of that hash were last seen: see
	base  uint32                // places up to it are of earlier chunks

	sequences []sequence
	ahead     ahead
	extra     int // bits that follow codes of lengths and distances; like count, made by tally
	count     counts
	trial     codes // of the chunk at hand
	head      blockHead
	order     [maxLit]uint64 // scratch of building codes
}

// counts are how often each symbol is used.
type counts struct {
	lit  [maxLit]uint32
	dist [maxDist]uint32
}

// sequence is some literals and then a copy of earlier bytes.
type sequence struct {
	literals uint32
	match    uint32 // distance less one in the lower half, length less three in the upper; or noMatch
}

const noMatch = 1<<32 - 1

// deflaters holds as many compressors as are at work at once, not one per open
// envelope (P6.2).
var deflaters = sync.Pool{New: func() any { return new(deflater) }}

// maxKeptSequences is how many stay in the pool; only a task of hundreds of kilobytes
// needs more.
const maxKeptSequences = 64 << 10

func (d *deflater) release() {
	if cap(d.sequences) > maxKeptSequences {
		d.sequences = nil
	}
	deflaters.Put(d)
}

// deflation is a DEFLATE stream between two chunks.
type deflation struct {
	out   *slab // nil: nothing has been packed
	bits  uint64
	n     uint   // how many bits are not yet in out: fewer than 8
	codes *codes // of the block that is open; nil: none is
}

// free returns the memory of the stream.
func (s *deflation) free() {
	s.out.free()
	s.codes.free()
	*s = deflation{}
}

func (s *deflation) len() int {
	if s.out == nil {
		return 0
	}
	return len(s.out.b)
}

// endBits is what ends a stream: an empty final block with the codes of the format.
const (
	endBits = 3 + 7
	end     = 1 | 1<<1
)

// used is how many bits the stream has.
func (s *deflation) used() int { return 8*s.len() + int(s.n) }

// closing is how many bits it takes to end the block that is open.
func (s *deflation) closing() int {
	if s.codes == nil {
		return 0
	}
	return int(s.codes.lit[endOfBlock] >> codeBits)
}

const (
	maxStored  = 65535 // the most that one stored block holds
	storedHead = 5     // what its head takes at most behind another one
)

// stored is by how many bits the stream grows with n bytes in blocks that are not compressed: the
// one size that is known without compressing.
func (s *deflation) stored(n int) int {
	if n == 0 {
		return 0
	}
	begin := int(s.n) + s.closing() + 3
	return (begin+7)/8*8 - int(s.n) + 8*(storedHead-1+n+(n-1)/maxStored*storedHead)
}

// grow makes room for so many bits, and for writing eight bytes at a time.
func (s *deflation) grow(bits int) {
	room := bits/8 + 16
	if s.out == nil {
		s.out = newSlab(room)
	}
	s.out = s.out.grow(room)
}

// put appends up to 56 bits. There is room.
func (s *deflation) put(bits uint64, n uint) {
	s.bits |= bits << (s.n & 7)
	s.n += n
	out := s.out.b
	binary.LittleEndian.PutUint64(out[len(out):len(out)+8], s.bits)
	s.out.b = out[:len(out)+int(s.n>>3)]
	s.bits >>= s.n &^ 7 & 63
	s.n &= 7
}

// close ends the block that is open.
func (s *deflation) close() {
	if s.codes == nil {
		return
	}
	e := s.codes.lit[endOfBlock]
	s.put(uint64(e&codeMask), uint(e>>codeBits))
	s.codes.free()
	s.codes = nil
}

// store appends records as they are. There is room for what stored says.
func (s *deflation) store(records []byte) {
	s.close()
	for len(records) > 0 {
		n := min(len(records), maxStored)
		s.put(0, 3)
		s.put(0, -s.n&7)
		s.put(uint64(n)|uint64(^uint16(n))<<16, 32)
		s.out.b = append(s.out.b, records[:n]...)
		records = records[n:]
	}
}

// finish ends the stream on a whole byte.
func (s *deflation) finish() {
	s.grow(maxCode + endBits)
	s.close()
	s.put(end, endBits)
	s.put(0, -s.n&7)
}

// chunk is how a chunk can be packed, found by plan.
type chunk struct {
	way   way
	grows int // the stream, in bits, the end of an earlier block included
	ends  int // bits that it will take to end the block that is open then
}

type way uint8

const (
	goOn    way = iota // with the codes of the block that is open
	renewed            // in a new block with codes of its own
	inFixed            // in a new block with the codes of the format
	asIs               // not compressed
)

const (
	// Codes suit what takes up to 9/8 as many bits a byte as what they were made for; else
	// others are tried.
	suitsOf, suitsIn = 9, 8
	// worthTrying is how many bytes of records are worth the time for that; fixedBelow how few
	// may be better off with the codes of the format, which need no header.
	worthTrying = 1 << 10
	fixedBelow  = 4 << 10
)

// plan finds how to pack src[from:] so that the stream grows by as little as may be.
// What comes before is the window of the chunk. It is never more than stored(len(src)-from).
func (d *deflater) plan(s *deflation, src []byte, from int) chunk {
	d.find(src, from)
	records := src[from:]
	n := len(records)
	best := chunk{way: asIs, grows: s.stored(n)}
	if c := s.codes; c != nil {
		if grows, ok := d.goingOn(s, records); ok {
			best.better(chunk{goOn, grows, s.closing()})
			if n < worthTrying || best.way == goOn && best.grows<<10 <= c.rate*n/suitsIn*suitsOf {
				return best
			}
		}
	}
	d.tally(records)
	begin := s.closing() + 3
	if n < fixedBelow {
		c := fixedCodes()
		if size, ok := c.size(&d.count); ok {
			best.better(chunk{inFixed, begin + size + d.extra - fixedEnd, fixedEnd})
		}
	}
	d.build(n)
	size, _ := d.trial.size(&d.count)
	ends := int(d.trial.lit[endOfBlock] >> codeBits)
	if n >= oneOfMany {
		d.trial.rate = (size + d.extra) << 10 / n
	}
	best.better(chunk{renewed, begin + d.head.bits + size + d.extra - ends, ends})
	return best
}

// ahead is how a stream goes on in the block that is open, written before it is known whether it will: it
// mostly does, and where every symbol has a code, that takes less time than counting symbols for the size.
type ahead struct {
	out  [maxAhead*maxCode/8 + 16]byte // a copy takes fewer bits than a code for each of its bytes
	len  int                           // whole bytes; 0: nothing is ahead
	bits uint64                        // and n: of the stream behind them
	n    uint
}

// maxAhead is how many bytes of records are written ahead. Only what holds a single large task is more.
const maxAhead = maxWaiting

// goingOn is by how many bits the stream grows with records in the block that is open; not ok if a symbol has
// no code there.
func (d *deflater) goingOn(s *deflation, records []byte) (grows int, ok bool) {
	a := &d.ahead
	a.len = 0
	if s.codes.whole() && len(records) <= maxAhead {
		a.len, a.bits, a.n = d.emit(a.out[:], s.bits, s.n, s.codes, records)
		return 8*a.len + int(a.n) - int(s.n), true
	}
	d.tally(records)
	size, ok := s.codes.size(&d.count)
	return size + d.extra - s.closing(), ok
}

// better takes the other way if that makes the stream shorter.
func (c *chunk) better(other chunk) {
	if other.grows+other.ends < c.grows+c.ends {
		*c = other
	}
}

// write packs src[from:] as plan has found.
func (d *deflater) write(s *deflation, how chunk, src []byte, from int) {
	s.grow(how.grows)
	switch how.way {
	case asIs:
		s.store(src[from:])
		return
	case goOn:
		if a := &d.ahead; a.len > 0 { // plan has written it
			s.out.b = append(s.out.b, a.out[:a.len]...)
			s.bits, s.n = a.bits, a.n
			return
		}
	case inFixed:
		s.close()
		s.put(1<<1, 3)
		s.codes = fixedCodes()
	case renewed:
		s.close()
		d.head.write(s)
		s.codes = newCodes(&d.trial)
	}
	begin, n := len(s.out.b), 0
	n, s.bits, s.n = d.emit(s.out.b[begin:cap(s.out.b)], s.bits, s.n, s.codes, src[from:])
	s.out.b = s.out.b[:begin+n]
}

// emit writes the codes of what find has found in records to out, behind n < 8 bits of the stream. It says how
// many bytes those are, and which bits of the stream come behind them.
func (d *deflater) emit(out []byte, bits uint64, n uint, c *codes, records []byte) (int, uint64, uint) {
	at, pos := 0, 0
	for _, q := range d.sequences {
		end := pos + int(q.literals)
		for ; pos+3 <= end; pos += 3 {
			a, b, e := c.lit[records[pos]], c.lit[records[pos+1]], c.lit[records[pos+2]]
			bits |= uint64(a&codeMask) << (n & 63)
			n += uint(a >> codeBits)
			bits |= uint64(b&codeMask) << (n & 63)
			n += uint(b >> codeBits)
			bits |= uint64(e&codeMask) << (n & 63)
			n += uint(e >> codeBits)
			binary.LittleEndian.PutUint64(out[at:], bits)
			at += int(n >> 3)
			bits >>= n &^ 7 & 63
			n &= 7
		}
		for ; pos < end; pos++ {
			a := c.lit[records[pos]]
			bits |= uint64(a&codeMask) << (n & 63)
			n += uint(a >> codeBits)
		}
		binary.LittleEndian.PutUint64(out[at:], bits)
		at += int(n >> 3)
		bits >>= n &^ 7 & 63
		n &= 7
		if q.match == noMatch {
			break
		}
		length, distance := q.match>>16, q.match&0xffff
		a := c.length[length&0xff]
		bits |= uint64(a&lengthMask) << (n & 63)
		n += uint(a >> lengthBits)
		symbol, more := distanceSymbol(distance)
		b := c.dist[symbol&31]
		bits |= uint64(b&codeMask) << (n & 63)
		n += uint(b >> codeBits)
		bits |= uint64(distance&(1<<more-1)) << (n & 63)
		n += more
		binary.LittleEndian.PutUint64(out[at:], bits)
		at += int(n >> 3)
		bits >>= n &^ 7 & 63
		n &= 7
		pos += int(length + 3)
	}
	return at, bits, n
}
