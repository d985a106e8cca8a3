package codec

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	kflate "github.com/klauspost/compress/flate"
	"pgregory.net/rapid"
)

// checkStream: what the inflater makes of a stream within its bound is what the standard library
// makes of it, and it takes as much of it; what one refuses the other does.
func checkStream(t interface {
	Fatalf(format string, args ...any)
	Helper()
}, stream []byte, most int,
) {
	t.Helper()
	in := bytes.NewReader(stream)
	want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(in), int64(most)+1))
	d := decoders.Get().(*decoder) // what it has read before, damaged or not, must not matter
	defer decoders.Put(d)
	s, taken, err := d.inf.inflate(stream, newSlab(0), most)
	got := s.b
	defer s.free()
	switch {
	case len(want) > most: // and no decoder knows whether it is right to its end
		if err == nil {
			t.Fatalf("%x: more than %d bytes were taken for %d", stream, most, len(got))
		}
		return
	case wantErr != nil:
		if err == nil {
			t.Fatalf("%x: unpacked, but the standard library says %v", stream, wantErr)
		}
	case err != nil:
		t.Fatalf("%x: %v, but the standard library unpacks %d bytes", stream, err, len(want))
	case taken != len(stream)-in.Len():
		t.Fatalf("%x: took %d bytes, the standard library %d", stream, taken, len(stream)-in.Len())
	case !bytes.Equal(got, want):
		t.Fatalf("%x: unpacked to %q, want %q", stream, got, want)
	}
	if !bytes.HasPrefix(want, got) && !bytes.HasPrefix(got, want) {
		t.Fatalf("%x: what comes before the error differs: %q, want %q", stream, got, want)
	}
}

// streams packs content in as many ways as there are levels.
func streams(tb testing.TB, content []byte) (all [][]byte) {
	for level := -2; level <= 9; level++ {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, level)
		must(tb, err)
		k, err := kflate.NewWriter(&b, level)
		must(tb, err)
		for _, c := range []interface {
			io.WriteCloser
			Flush() error
		}{w, k} {
			b.Reset()
			half := len(content) / 2
			must(tb, errOf(c.Write(content[:half])))
			must(tb, c.Flush()) // an empty stored block in the middle
			must(tb, errOf(c.Write(content[half:])))
			must(tb, c.Close())
			all = append(all, bytes.Clone(b.Bytes()))
		}
	}
	return all
}

// contents are bytes of every kind that packs differently.
func contents() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	skewed := make([]byte, 30_000) // some codes of all lengths, also of more than 10 bits
	for i := range skewed {
		skewed[i] = byte(min(r.ExpFloat64()*8, 255))
	}
	near := make([]byte, 0, 20_000) // matches of every distance below 64
	for len(near) < 19_000 {
		d := 1 + r.IntN(64)
		near = append(near, bytesOf(r, 0, d)...)
		near = append(near, bytes.Repeat(near[len(near)-d:], 1+r.IntN(5))...)
	}
	return map[string][]byte{
		"nothing":   nil,
		"one byte":  {7},
		"zeros":     make([]byte, 400_000),
		"JSON":      recordsOf(jsonTasks(1, 3000)),
		"random":    bytesOf(r, 0, 70_000),
		"skewed":    skewed,
		"near":      near,
		"far apart": slices.Concat(bytesOf(rand.New(rand.NewPCG(1, 2)), 0, 32_768), bytesOf(rand.New(rand.NewPCG(1, 2)), 0, 100)),
	}
}

func TestStreamsOfEveryKindAreUnpacked(t *testing.T) {
	f := newInflater()
	for name, content := range contents() {
		for i, stream := range streams(t, content) {
			for _, behind := range []int{0, 1, 8, 100} { // what follows is not the stream's
				in := append(bytes.Clone(stream), bytes.Repeat([]byte{0xa5}, behind)...)
				s, taken, err := f.inflate(in, newSlab(0), len(content))
				if err != nil || taken != len(stream) || !bytes.Equal(s.b, content) {
					t.Fatalf("%s, stream %d with %d bytes behind it: %d bytes of %d, took %d of %d, %v", name, i, behind, len(s.b), len(content), taken, len(stream), err)
				}
				s.free()
			}
			if len(content) > 0 {
				if _, _, err := f.inflate(stream, newSlab(0), len(content)-1); !errors.Is(err, errMore) {
					t.Errorf("%s, stream %d: one byte more than declared gave %v", name, i, err)
				}
			}
			for cut := 0; cut < len(stream); cut += 1 + len(stream)/50 {
				if _, _, err := f.inflate(stream[:cut], newSlab(0), len(content)); err == nil {
					t.Errorf("%s, stream %d cut at %d of %d was taken", name, i, cut, len(stream))
				}
			}
		}
	}
}

// Damaged and made-up streams are refused exactly where the standard library refuses them.
func TestDamagedStreamsAreRefusedLikeByTheStandardLibrary(t *testing.T) {
	var all [][]byte
	for name, content := range contents() {
		if name != "zeros" {
			all = append(all, streams(t, content[:min(len(content), 6000)])...)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	rapid.Check(t, func(t *rapid.T) {
		stream := bytes.Clone(rapid.SampledFrom(all).Draw(t, "stream"))
		for range rapid.IntRange(1, 3).Draw(t, "flips") {
			// Mostly where the codes are.
			at := rapid.IntRange(0, min(len(stream)*8, rapid.SampledFrom([]int{30, 600, 1 << 30}).Draw(t, "where"))-1).Draw(t, "bit")
			stream[at/8] ^= 1 << (at % 8)
		}
		checkStream(t, stream, rapid.SampledFrom([]int{100, 6000, 20_000}).Draw(t, "most"))
	})
}

// BenchmarkInflate unpacks the records of a full message, beside what the standard library does.
func BenchmarkInflate(b *testing.B) {
	content := recordsOf(jsonTasks(1, 1000))
	text := seal(b, testHeader(), jsonTasks(1, 1000))
	fr, err := readFrame(text)
	must(b, err)
	stream, err := strict.AppendDecode(nil, fr.body)
	must(b, err)
	run := func(name string, unpack func(into []byte) error) {
		b.Run(name, func(b *testing.B) {
			into := make([]byte, len(content))
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				if err := unpack(into); err != nil {
					b.Fatal(err)
				}
			}
			perTask(b, 1000)
		})
	}
	f := newInflater()
	run("codec", func([]byte) error {
		s, _, err := f.inflate(stream, newSlab(len(content)), len(content))
		s.free()
		return err
	})
	var in bytes.Reader
	r := flate.NewReader(&in)
	run("standard", func(into []byte) error {
		in.Reset(stream)
		if err := r.(flate.Resetter).Reset(&in, nil); err != nil {
			return err
		}
		_, err := io.ReadFull(r, into)
		return err
	})
}
