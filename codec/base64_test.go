package codec

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestBase64IsThatOfTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 200 {
		src := bytesOf(r, 0, n)
		before := bytesOf(r, 0, n%7)
		text := appendBase64(bytes.Clone(before), src)
		if want := base64.StdEncoding.AppendEncode(bytes.Clone(before), src); !bytes.Equal(text, want) {
			t.Fatalf("%x is written as %q, want %q", src, text, want)
		}
		back, err := appendDecoded(bytes.Clone(before), text[len(before):])
		if want := append(before, src...); err != nil || !bytes.Equal(back, want) {
			t.Fatalf("%q is read as %x, %v, want %x", text, back, err, want)
		}
	}
}

// A text has as many characters as its bytes need before it is read (checkLength), so a line break in it is found
// by the bytes that are missing.
func TestWhatIsNotBase64IsNotRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "bytes")
		text := base64.StdEncoding.AppendEncode(nil, src)
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text[at] = rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\n\r=-_A+/"))).Draw(t, "to")
		}
		want, err := strict.AppendDecode(nil, text)
		good := err == nil && len(want) == len(src)
		got, err := appendDecoded(nil, text)
		if (err == nil && len(got) == len(src)) != good {
			t.Fatalf("%q is read as %d bytes, %v; that it is base64 of %d is %t", text, len(got), err, len(src), good)
		}
		if good && !bytes.Equal(got, want) {
			t.Fatalf("%q is read as %x, want %x", text, got, want)
		}
	})
}

// BenchmarkBase64 writes and reads the packed bytes of a full envelope.
func BenchmarkBase64(b *testing.B) {
	src := bytesOf(rand.New(rand.NewPCG(1, 1)), 0, 48_000)
	text := appendBase64(nil, src)
	dst := make([]byte, 0, 2*len(text))
	run := func(name string, do func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("write/codec", func() error { appendBase64(dst, src); return nil })
	run("write/standard", func() error { base64.StdEncoding.AppendEncode(dst, src); return nil })
	run("read/codec", func() error { _, err := appendDecoded(dst, text); return err })
	run("read/standard", func() error { _, err := strict.AppendDecode(dst, text); return err })
}
