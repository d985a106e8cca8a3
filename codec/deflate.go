package codec

import (
	"sync"

	"github.com/klauspost/compress/flate"
)

// The compression level and the window that a chunk is primed with, chosen by
// BenchmarkLevels, the window by changing maxWindow (AMD EPYC, 2 shared cores,
// Go 1.26.8, klauspost/compress v1.20.3; tasks of 131 bytes of JSON with some 30
// random digits each; tasks in an envelope of the default limit, ns per task):
//
//	level   1      2      3      4      5      6      7
//	tasks   1056   1084   1093   1052   1117   1129   1138
//	ns      618    584    721    959    1082   1145   1362
//
//	window at level 2   none   2 KiB   4 KiB   8 KiB   32 KiB
//	tasks               1047   1084    1090    1094    1096
//	ns                  521    580     596     671     865
//
// Level 2 is the fastest and within 5 % of level 7; 2 KiB of window give most of
// what a window gives, and every open envelope keeps one.
const (
	level     = 2
	maxWindow = 2 << 10
	minWindow = 1 << 10
)

// deflater turns one chunk of records into DEFLATE blocks that end on a byte
// boundary, so that chunks can be appended to each other.
type deflater struct {
	w   *flate.Writer
	out []byte
}

// deflaters holds as many compressors as are at work at once, not one per open
// envelope: each takes about half a megabyte (P6.2).
var deflaters = newDeflaters(level)

func newDeflaters(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		d := &deflater{}
		w, err := flate.NewWriter(d, level)
		if err != nil {
			panic(err) // level is a constant that flate knows
		}
		d.w = w
		return d
	}}
}

// maxKeptOut is the largest output buffer that stays in the pool; only a task of
// hundreds of kilobytes that does not compress needs a larger one.
const maxKeptOut = 256 << 10

func (d *deflater) Write(p []byte) (int, error) {
	d.out = append(d.out, p...)
	return len(p), nil
}

// release returns d to the pool. It lets go of the caller's window, which the
// writer keeps a reference to.
func (d *deflater) release() {
	d.w.ResetDict(d, nil)
	if cap(d.out) > maxKeptOut {
		d.out = nil
	}
	deflaters.Put(d)
}

// chunk packs records as the continuation of a stream that ended with window.
// The result lives until the next call; it is never longer than
// storedSize(len(records)), which is what [Builder.Add] counts on.
func (d *deflater) chunk(window, records []byte) []byte {
	d.out = d.out[:0]
	d.w.ResetDict(d, window)
	// Writing cannot fail: d.Write does not.
	d.w.Write(records)
	d.w.Flush()
	if len(d.out) > storedSize(len(records)) {
		d.out = appendStored(d.out[:0], records)
	}
	return d.out
}

// maxStored is the most that one stored block holds, storedHead what its head
// takes when it begins on a byte boundary.
const (
	maxStored  = 65535
	storedHead = 5
)

// storedSize is the size of n bytes in stored blocks: the one size that is
// known without compressing.
func storedSize(n int) int {
	return n + (n+maxStored-1)/maxStored*storedHead
}

func appendStored(b, records []byte) []byte {
	for len(records) > 0 {
		n := min(len(records), maxStored)
		b = append(b, 0, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		b = append(b, records[:n]...)
		records = records[n:]
	}
	return b
}

// windowFor is how much of the records before it a chunk of n bytes is given to
// find repetitions in. More finds more, but all of it is hashed again for every
// chunk, and the chunks get small towards the end of an envelope.
func windowFor(n int) int { return min(maxWindow, max(minWindow, 2*n)) }
