package source

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/queuepump/queuepump/internal/proof"
)

// readText reads what a source gives of a text, as "key|id|body" or "bad", from a
// cursor on or from the beginning, with the cursor behind each record.
func readText(s *TextSource, files []string, cursor []byte, most int) (records []string, cursors [][]byte, err error) {
	s.Paths = files
	r, err := s.Open(context.Background(), cursor)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for len(records) < most {
		rec, err := r.Next(context.Background())
		if bad, ok := errors.AsType[*BadInput](err); ok {
			records = append(records, "bad "+bad.Where)
		} else if err != nil {
			return records, cursors, err
		} else {
			records = append(records, string(rec.Key)+"|"+rec.ID+"|"+string(rec.Body))
		}
		cursors = append(cursors, r.AppendCursor(nil))
	}
	return records, cursors, nil
}

// FuzzText: whatever the bytes of a file, plain or packed, its lines are bounded in
// length and in what they cost, a slow pipe gives the same records as a file, and
// reading on at any cursor gives the rest.
func FuzzText(f *testing.F) {
	for _, text := range []string{
		"{\"k\":1}\n\n{\"k\":\"two\",\"id\":3}\r\n{\"k\":\n", "k,id\na,\"b\nc\"\n\"open,1\nx,y,z\n", "\xef\xbb\xbfk,id\n1,2", "one\ntwo", strings.Repeat("x", 300) + "\nshort\n", "\x1f\x8b", "\x28\xb5\x2f\xfd", "\x50\x2a\x4d\x18\x00\x00\x00\x00",
	} {
		for mode := range byte(36) {
			f.Add(mode, []byte(text), uint8(len(text)))
		}
	}
	formats := []Format{FormatJSONLines, FormatCSV, FormatLines}
	encodings := []string{"", "windows-1252", "utf-16", "shift_jis"}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, mode byte, text []byte, at uint8) {
		const maxLine, most = 200, 2000
		s := TextSource{Format: formats[mode%3], MaxLine: maxLine, Encoding: encodings[mode/9%4]}
		if s.Format != FormatLines {
			s.Key, s.ID = "k", "id"
		}
		packed := text
		switch mode / 3 % 3 {
		case 1:
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write(text)
			_ = w.Close()
			packed = b.Bytes()
		case 2:
			w, err := zstd.NewWriter(nil)
			must(t, err)
			packed = w.EncodeAll(text, nil)
		}
		path := filepath.Join(dir, "text")
		must(t, os.WriteFile(path, packed, 0o600))
		var whole []string
		var cursors [][]byte
		var end error
		// Buffers, and for zstd a window of up to maxWindow, which a frame may ask for whatever its
		// length.
		proof.AtMost(t, 4*maxWindow+1<<20+256*len(text), func() { whole, cursors, end = readText(&s, []string{path}, nil, most) })
		for _, r := range whole {
			// A row of CSV becomes an object with the names of its columns.
			if len(r) > 3*(maxLine+1)+8*maxLine {
				t.Fatalf("a record of %d bytes from lines of at most %d", len(r), maxLine)
			}
		}

		slow := s
		slow.Stdin = iotest.OneByteReader(bytes.NewReader(packed))
		piped, _, pipeEnd := readText(&slow, []string{stdin}, nil, most)
		for i := range piped {
			piped[i] = strings.Replace(piped[i], "bad stdin", "bad "+path, 1)
		}
		if !slices.Equal(piped, whole) || (end == nil) != (pipeEnd == nil) || errors.Is(end, io.EOF) != errors.Is(pipeEnd, io.EOF) {
			t.Fatalf("a file gives %q, %v, and a pipe %q, %v", whole, end, piped, pipeEnd)
		}

		if len(whole) == 0 {
			return
		}
		i := int(at) % len(whole)
		rest, _, restEnd := readText(&s, []string{path}, cursors[i], most-i-1)
		if !slices.Equal(rest, whole[i+1:]) || (end == nil) != (restEnd == nil) {
			t.Fatalf("behind record %d of %q come %q, %v", i, whole, rest, restEnd)
		}
	})
}
