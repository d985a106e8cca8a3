package codec

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	kflate "github.com/klauspost/compress/flate"
	"pgregory.net/rapid"
)

// checkDeflate packs content in chunks that end at the given places, and wants the stream to grow
// as plan says, by no more than storing takes, and the standard library to unpack it.
func checkDeflate(t interface {
	Fatalf(format string, args ...any)
	Helper()
}, content []byte, ends []int, window int,
) []byte {
	t.Helper()
	d := deflaters.Get().(*deflater)
	defer d.release()
	var s deflation
	defer s.free()
	begin := 0
	for _, end := range ends {
		from := min(begin, window)
		src := content[begin-from : end]
		used, most := s.used(), s.stored(end-begin)
		how := d.plan(&s, src, from)
		if how.grows+how.ends > most {
			t.Fatalf("%d bytes in %d + %d bits, stored they would take %d", end-begin, how.grows, how.ends, most)
		}
		d.write(&s, how, src, from)
		if s.used() != used+how.grows || s.closing() != how.ends {
			t.Fatalf("%d bytes as %d took %d bits and leave %d, planned %d and %d", end-begin, how.way, s.used()-used, s.closing(), how.grows, how.ends)
		}
		begin = end
	}
	used := s.used() + s.closing() + endBits
	s.finish()
	if s.len() != (used+7)/8 {
		t.Fatalf("%d bytes, want those of %d bits", s.len(), used)
	}
	got, err := io.ReadAll(flate.NewReader(bytes.NewReader(s.out.b)))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes were unpacked of %d in chunks that end at %v: %v", len(got), len(content), ends, err)
	}
	checkStream(t, s.out.b, len(content))
	return bytes.Clone(s.out.b)
}

func TestWhatIsPackedInChunksIsUnpackedByTheStandardLibrary(t *testing.T) {
	for name, content := range contents() {
		if len(content) == 0 {
			continue // a chunk holds a record
		}
		for _, size := range []int{1, 3, 100, 1000, 5000, 10_000, 100_000, len(content)} {
			if len(content)/size > 3000 {
				continue
			}
			var ends []int
			for end := size; end < len(content); end += size {
				ends = append(ends, end)
			}
			t.Logf("%s: %d bytes in chunks of %d make %d", name, len(content), size, len(checkDeflate(t, content, append(ends, len(content)), maxWindow)))
		}
	}
}

// Chunks of other kinds follow each other: codes that do not suit are replaced, also where a symbol
// has none.
func TestCodesAreReplacedWhenTheyDoNotSuit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
		var content []byte
		var ends []int
		for range rapid.IntRange(1, 12).Draw(t, "chunks") {
			n := rapid.SampledFrom([]int{1, 10, 500, 3000, 9000, 70_000}).Draw(t, "size")
			content = append(content, bytesOf(r, rapid.IntRange(0, 2).Draw(t, "kind"), 1+r.IntN(n))...)
			ends = append(ends, len(content))
		}
		window := rapid.SampledFrom([]int{0, 100, maxWindow, 40_000}).Draw(t, "window")
		first := checkDeflate(t, content, ends, window)
		if again := checkDeflate(t, content, ends, window); !bytes.Equal(first, again) {
			t.Fatalf("packed again it is %d other bytes, was %d", len(again), len(first))
		}
	})
}

// Huffman's codes for counts like Fibonacci's numbers are as long as codes can become.
func TestCodesAreNeverLongerThanTheFormatAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{7, maxCode}).Draw(t, "most")
		counts := make([]uint32, rapid.IntRange(2, map[int]int{7: 19, maxCode: usedLit}[most]).Draw(t, "symbols"))
		a, b := uint32(1), uint32(1)
		for i := range counts {
			counts[i] = a
			if a, b = b, a+b; b > 1<<20 {
				a, b = 1, 1
			}
		}
		if rapid.Bool().Draw(t, "shuffled") {
			rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Shuffle(len(counts), func(i, k int) { counts[i], counts[k] = counts[k], counts[i] })
		}
		sizes := make([]uint8, len(counts))
		new(deflater).lengths(sizes, counts, most, false)
		total := 0
		for i, size := range sizes {
			if size == 0 || int(size) > most {
				t.Fatalf("symbol %d has a code of %d bits", i, size)
			}
			total += 1 << (most - int(size))
		}
		if total != 1<<most {
			t.Fatalf("the codes %v take %d of %d", sizes, total, 1<<most)
		}
		for i := range counts {
			for k := range counts {
				if counts[i] > counts[k] && sizes[i] > sizes[k] {
					t.Fatalf("counted %d and %d times, %d and %d bits", counts[i], counts[k], sizes[i], sizes[k])
				}
			}
		}
	})
}

// The places of an earlier chunk that are still in the table are no places of this one, also when
// their numbers begin anew.
func TestAChunkKnowsNothingOfThoseThatWerePackedBefore(t *testing.T) {
	records := recordsOf(jsonTasks(1, 100))
	pack := func(d *deflater) []byte {
		var s deflation
		defer s.free()
		d.write(&s, d.plan(&s, records, 0), records, 0)
		s.finish()
		return slices.Clone(s.out.b)
	}
	want := pack(new(deflater))
	for _, base := range []uint32{0, 1, 1 << 31, 1<<32 - 2*maxRaw - 2, 1<<32 - 1} {
		d := new(deflater)
		d.base = base
		for range 3 {
			if got := pack(d); !bytes.Equal(got, want) {
				t.Errorf("behind %d it is %d other bytes, want %d", base, len(got), len(want))
			}
		}
	}
}

// BenchmarkDeflate packs the records of 1,500 tasks at a stroke.
func BenchmarkDeflate(b *testing.B) {
	const tasks = 1500
	records := recordsOf(jsonTasks(1, tasks))
	run := func(name string, pack func() int) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(records)))
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				size = pack()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
			b.ReportMetric(float64(size)/tasks, "bytes/task")
		})
	}
	run("codec", func() int {
		d := deflaters.Get().(*deflater)
		defer d.release()
		var s deflation
		defer s.free()
		d.write(&s, d.plan(&s, records, 0), records, 0)
		s.finish()
		return s.len()
	})
	var out bytes.Buffer
	squeeze := func(w interface {
		io.WriteCloser
		Reset(w io.Writer)
	},
	) int {
		out.Reset()
		w.Reset(&out)
		if _, err := w.Write(records); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		return out.Len()
	}
	for level := 1; level <= 2; level++ {
		w, err := kflate.NewWriter(&out, level)
		if err != nil {
			b.Fatal(err)
		}
		run(map[int]string{1: "klauspost-1", 2: "klauspost-2"}[level], func() int { return squeeze(w) })
	}
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err != nil {
		b.Fatal(err)
	}
	run("standard", func() int { return squeeze(w) })
}
