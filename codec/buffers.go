package codec

import (
	"math/bits"
	"sync"
)

// slab is a byte buffer from a pool of buffers of the same size. Thousands of
// envelopes are open at once and most are small: each takes the size it needs
// and moves to the next one when it grows, instead of keeping the largest.
type slab struct{ b []byte }

// Sizes are the powers of two from 2 KiB to 1 MiB. A larger buffer comes from a
// rare, highly compressible envelope and is left to the garbage collector.
const (
	minSlabBits = 11
	maxSlabBits = 20
)

var slabs [maxSlabBits - minSlabBits + 1]sync.Pool

func slabClass(n int) int { return max(bits.Len(uint(max(n, 1)-1)), minSlabBits) - minSlabBits }

// newSlab gives an empty buffer with room for n bytes.
func newSlab(n int) *slab {
	class := slabClass(n)
	if class >= len(slabs) {
		return &slab{make([]byte, 0, n)}
	}
	if s, ok := slabs[class].Get().(*slab); ok {
		return s
	}
	return &slab{make([]byte, 0, 1<<(class+minSlabBits))}
}

// free returns the buffer to its pool; s may be nil. A buffer that an append has made larger fits
// no pool and is dropped.
func (s *slab) free() {
	if s == nil {
		return
	}
	if class := slabClass(cap(s.b)); class < len(slabs) && cap(s.b) == 1<<(class+minSlabBits) {
		s.b = s.b[:0]
		slabs[class].Put(s)
	}
}

// grow makes room for n more bytes, in s or in a larger buffer that takes over
// its contents.
func (s *slab) grow(n int) *slab {
	if cap(s.b)-len(s.b) >= n {
		return s
	}
	larger := newSlab(max(len(s.b)+n, 2*cap(s.b)))
	larger.b = append(larger.b, s.b...)
	s.free()
	return larger
}
