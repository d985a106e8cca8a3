package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// The floor is the bytes of the tasks compressed and encoded, and decoded and decompressed, by
// the library and at the level of package codec, with nothing else done to them: no key is looked
// for, nothing is sent, stored or handled. The bytes are cut into messages as the pump cuts them:
// each holds tasks of one segment, and as many as fit.

// pumpLevel is the level at which codec packs.
const pumpLevel = 1

// fullText is how long the pump's full messages are: 64 KiB less the room that is left for a cause.
const fullText = 64<<10 - 1<<10

func runFloor(tb testing.TB, tasks int) (m measured) {
	lines := inputLines(tb, tasks)
	blocks, err := fullBlocks(lines)
	must(tb, err)
	texts := make([][]byte, len(blocks))
	m.tasks, m.messages = int64(len(lines)), int64(len(blocks))
	m.out = metered(tb, func() error { return eachBlock(tb.Context(), blocks, encoder(texts)) })
	var back atomic.Int64
	m.back = metered(tb, func() error { return eachBlock(tb.Context(), texts, decoder(&back)) })
	if want := totalLength(lines); back.Load() != want {
		tb.Fatalf("%d bytes went in and %d came out", want, back.Load())
	}
	return m
}

func totalLength(lines []string) (n int64) {
	for _, l := range lines {
		n += int64(len(l))
	}
	return n
}

// segments is how many a workload on the accounts of the packed pump has by default.
var segments = shardmap.DefaultSegments(pumpAccounts * pump.DefaultQueues)

// fullBlocks are the bytes of the lines of each segment, cut into what fills a message by the
// ratio of the first 200 KiB.
func fullBlocks(lines []string) (blocks [][]byte, err error) {
	of := make([][]byte, segments)
	var longest []byte
	for _, line := range lines {
		s := shardmap.Segment(cityOf(line), segments)
		of[s] = append(of[s], line...)
		if len(of[s]) > len(longest) {
			longest = of[s]
		}
	}
	sample := longest[:min(len(longest), 200<<10)]
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, pumpLevel)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(sample); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	size := len(sample) * fullText / base64.StdEncoding.EncodedLen(packed.Len())
	for _, all := range of {
		blocks = slices.AppendSeq(blocks, slices.Chunk(all, size))
	}
	return blocks, nil
}

// cityOf is the key of a line that WriteLines made.
func cityOf(line string) []byte {
	_, rest, _ := strings.Cut(line, `"city":"`)
	city, _, _ := strings.Cut(rest, `"`)
	return []byte(city)
}

// work is done by one goroutine on one block after the other.
type work func(i int, block []byte) error

// eachBlock lets as many goroutines as there are cores work on the blocks, each with
// buffers of its own.
func eachBlock(ctx context.Context, blocks [][]byte, begin func() (work, error)) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			do, err := begin()
			for err == nil {
				i := int(next.Add(1)) - 1
				if i >= len(blocks) {
					return nil
				}
				err = cmp.Or(do(i, blocks[i]), ctx.Err())
			}
			return err
		})
	}
	return g.Wait()
}

func encoder(texts [][]byte) func() (work, error) {
	return func() (work, error) {
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, pumpLevel)
		return func(i int, block []byte) error {
			packed.Reset()
			w.Reset(&packed)
			if _, err := w.Write(block); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			text := make([]byte, 0, base64.StdEncoding.EncodedLen(packed.Len()))
			texts[i] = base64.StdEncoding.AppendEncode(text, packed.Bytes())
			return nil
		}, err
	}
}

func decoder(back *atomic.Int64) func() (work, error) {
	return func() (work, error) {
		var packed, raw []byte
		var source bytes.Reader
		var r *gzip.Reader
		return func(_ int, text []byte) (err error) {
			if packed, err = base64.StdEncoding.AppendDecode(packed[:0], text); err != nil {
				return err
			}
			source.Reset(packed)
			if r == nil {
				r, err = gzip.NewReader(&source)
			} else {
				err = r.Reset(&source)
			}
			if err != nil {
				return err
			}
			raw, err = appendAll(raw[:0], r)
			back.Add(int64(len(raw)))
			return err
		}, nil
	}
}

// appendAll reads r to its end into dst.
func appendAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}
