package codec

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// packInChunks makes one stream of content in chunks that end where ends say. It wants none to be
// longer than storing its records would be, and the standard library to unpack the whole.
func packInChunks(t interface {
	Fatalf(format string, args ...any)
	Helper()
}, content []byte, ends []int,
) []byte {
	t.Helper()
	d := deflaters.get()
	defer deflaters.put(d)
	var stream []byte
	begin := 0
	for _, end := range ends {
		chunk := d.chunk(content[max(0, begin-window):begin], content[begin:end])
		if most := storedSize(end - begin); len(chunk) > most {
			t.Fatalf("%d bytes became %d, stored they would be %d", end-begin, len(chunk), most)
		}
		stream = append(stream, chunk...)
		begin = end
	}
	stream = append(stream, streamEnd...)
	got, err := io.ReadAll(flate.NewReader(bytes.NewReader(stream)))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes were unpacked of %d in chunks that end at %v: %v", len(got), len(content), ends, err)
	}
	return stream
}

func TestWhatIsPackedInChunksIsUnpackedByTheStandardLibrary(t *testing.T) {
	for name, content := range contents() {
		if len(content) == 0 {
			continue // a chunk holds a record
		}
		for _, size := range []int{1, 3, 33, 100, 128, 1000, 5000, 10_000, 65_535, 65_536, 100_000, len(content)} {
			if len(content)/size > 3000 {
				continue
			}
			var ends []int
			for end := size; end < len(content); end += size {
				ends = append(ends, end)
			}
			stream := packInChunks(t, content, append(ends, len(content)))
			t.Logf("%s: %d bytes in chunks of %d make %d", name, len(content), size, len(stream))
		}
	}
}

// Chunks of other kinds follow each other, in compressors that have packed others before.
func TestChunksOfAnyKindMakeOneStreamAlwaysTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
		var content []byte
		var ends []int
		for range rapid.IntRange(1, 12).Draw(t, "chunks") {
			n := rapid.SampledFrom([]int{1, 10, 500, 3000, 9000, 70_000}).Draw(t, "size")
			content = append(content, bytesOf(r, rapid.IntRange(0, 2).Draw(t, "kind"), 1+r.IntN(n))...)
			ends = append(ends, len(content))
		}
		first := packInChunks(t, content, ends)
		packInChunks(t, bytesOf(r, 1, 5000), []int{2000, 5000})
		if again := packInChunks(t, content, ends); !bytes.Equal(first, again) {
			t.Fatalf("packed again it is %d other bytes, was %d", len(again), len(first))
		}
	})
}

// A compressor numbers the places that it has seen. Its output must not depend on how many those
// are, nor change where the numbers begin anew, which they do behind some 65,000 chunks.
func TestAChunkKnowsNothingOfThoseThatWerePackedBefore(t *testing.T) {
	records := recordsOf(jsonTasks(1, 100))
	d := newDeflaterPool(1).get()
	want := bytes.Clone(d.chunk(nil, records))
	for i := range 70_000 {
		n := 100
		if i%1000 == 0 {
			n = len(records)
		}
		if got := d.chunk(nil, records[:n]); n == len(records) && !bytes.Equal(got, want) {
			t.Fatalf("behind %d chunks it is %d other bytes, want %d", i, len(got), len(want))
		}
	}
}

func TestNoMoreCompressorsAreAtWorkThanMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		p := newDeflaterPool(most)
		var lent []*deflater
		for range most {
			lent = append(lent, p.get())
		}
		got := make(chan *deflater)
		go func() { got <- p.get() }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatalf("one more than %d is at work", most)
		default:
		}
		p.put(lent[0])
		p.put(<-got)
	})
}

func TestACompressorKeepsNoLargeBuffer(t *testing.T) {
	p := newDeflaterPool(1)
	d := p.get()
	d.chunk(nil, bytesOf(rand.New(rand.NewPCG(1, 1)), 0, 4*maxKeptOut))
	if p.put(d); cap(d.out) > maxKeptOut {
		t.Errorf("it keeps %d bytes", cap(d.out))
	}
}

// A text in base64 in which nothing repeats takes a quarter less than its letters, also when it is
// the only task of an envelope.
func TestBase64IsPackedThoughNothingRepeats(t *testing.T) {
	noise := make([]byte, 48_000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	text := []byte(base64.StdEncoding.EncodeToString(noise))
	b := NewBuilder(maxText)
	b.Reset(Header{Workload: "w"})
	fits, err := b.Add(Task{Body: text})
	if err != nil || !fits {
		t.Fatalf("%d letters do not fit: %v", len(text), err)
	}
	sealed, _, err := b.Seal(nil)
	must(t, err)
	env, err := Open(sealed, Limits{})
	must(t, err)
	proof.Same(t, string(env.Tasks[0].Body), string(text))
}
