package codec

import (
	"runtime"
	"sync"

	"github.com/klauspost/compress/flate"
)

// The compression level, and how many bytes of the records before it a chunk is given to find
// repetitions in, chosen by BenchmarkBuilder. Level 1 takes 10 to 20 % less CPU time than level 2
// for 1 to 3 % more messages; level 5 takes half as much again for 4 to 13 % fewer. Without a
// window there are 3 to 5 % more messages; all of it is hashed again for every chunk.
const (
	level  = 1
	window = 2 << 10
)

// deflater turns one chunk of records into DEFLATE blocks that end on a byte boundary, so that
// chunks can be appended to each other.
type deflater struct {
	w   *flate.Writer
	out []byte
	// huffman looks for no repetitions; nil until records had none. The other one stores such records
	// as they are, though codes of the letters save a quarter of a text in base64.
	huffman *flate.Writer
}

// deflaterPool lends deflaters. Each takes 0.8 MB, so there are as many as work at once, at most
// `most`, and not one per open envelope (P6.2).
type deflaterPool struct {
	idle   sync.Pool
	atWork chan struct{}
}

func newDeflaterPool(most int) *deflaterPool {
	return &deflaterPool{atWork: make(chan struct{}, most)}
}

// Packing never waits for anything, so twice as many as there are processors keep all of those
// busy while some of their goroutines are interrupted.
var deflaters = newDeflaterPool(2 * runtime.GOMAXPROCS(0))

// get waits until fewer than most are at work.
func (p *deflaterPool) get() *deflater {
	p.atWork <- struct{}{}
	if d, ok := p.idle.Get().(*deflater); ok {
		return d
	}
	d := &deflater{}
	d.w = d.writer(level)
	return d
}

// writer makes a compressor that writes into d.
func (d *deflater) writer(level int) *flate.Writer {
	w, err := flate.NewWriter(d, level)
	if err != nil {
		panic(err) // the levels are constants that flate knows
	}
	return w
}

// maxKeptOut is the largest output buffer that stays in the pool. Only a task of hundreds of
// kilobytes that does not compress needs a larger one.
const maxKeptOut = 128 << 10

// put takes d back. It lets go of the caller's window, which the writer refers to.
func (p *deflaterPool) put(d *deflater) {
	d.w.ResetDict(d, nil)
	if cap(d.out) > maxKeptOut {
		d.out = nil
	}
	p.idle.Put(d)
	<-p.atWork
}

// Write takes what the compressor makes.
func (d *deflater) Write(p []byte) (int, error) {
	d.out = append(d.out, p...)
	return len(p), nil
}

// chunk packs records as the continuation of a stream that ended with before. The result lives
// until the next call. It is never longer than storedSize(len(records)), which is what
// [Builder.Add] counts on.
func (d *deflater) chunk(before, records []byte) []byte {
	d.out = d.out[:0]
	d.w.ResetDict(d, before)
	// Neither fails, because d.Write does not.
	d.w.Write(records)
	d.w.Flush()
	if len(d.out) >= len(records) {
		d.codeOnly(records)
	}
	if len(d.out) > storedSize(len(records)) {
		d.out = appendStored(d.out[:0], records)
	}
	return d.out
}

// codeOnly packs records in which nothing repeats.
func (d *deflater) codeOnly(records []byte) {
	if d.huffman == nil {
		d.huffman = d.writer(flate.HuffmanOnly)
	}
	d.out = d.out[:0]
	d.huffman.Reset(d)
	d.huffman.Write(records)
	d.huffman.Flush()
}

const (
	maxStored  = 65535 // the most that one stored block holds
	storedHead = 5     // the size of its head where it begins on a byte boundary
)

// storedSize is the size of n bytes in stored blocks: the one size that is known without
// compressing.
func storedSize(n int) int {
	return n + (n+maxStored-1)/maxStored*storedHead
}

// appendStored appends records to b in stored blocks.
func appendStored(b, records []byte) []byte {
	for len(records) > 0 {
		n := min(len(records), maxStored)
		b = append(b, 0, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		b = append(b, records[:n]...)
		records = records[n:]
	}
	return b
}
