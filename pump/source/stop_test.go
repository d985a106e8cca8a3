package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// fuse is a context that ends when it has been looked at a number of times, so
// that a reader is stopped at each place where it looks.
type fuse struct {
	context.Context
	left int
}

func (f *fuse) Err() error {
	if f.left == 0 {
		return context.Canceled
	}
	f.left--
	return nil
}

// P2.1: a distributor that is told to stop saves the position of a reader whose
// Next was cancelled. It is the one behind the last record, whatever the reader
// had done on the way to the next.
func TestACancelledNextLeavesThePositionBehindTheLastRecord(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSource(t, dir)
		rows, _ := readAll(t, s, nil)
		from, at := []byte(nil), 0
		if _, cursors := readAll(t, s, nil); len(cursors) > 0 && rapid.Bool().Draw(t, "at a cursor") {
			at = rapid.IntRange(1, len(cursors)).Draw(t, "from")
			from = cursors[at-1]
		}
		r, err := s.Open(t.Context(), from)
		must(t, err)
		defer r.Close()
		for cancelled := 0; ; {
			before := r.AppendCursor(nil)
			_, err := r.Next(&fuse{t.Context(), rapid.IntRange(0, 4).Draw(t, "looks")})
			_, bad := errors.AsType[*BadInput](err)
			switch {
			case err == nil || bad:
				at++
				continue
			case err == io.EOF || cancelled > 100:
				proof.Same(t, at, len(rows), "records, when the reader went on to its end")
				return
			case !errors.Is(err, context.Canceled):
				t.Fatal(err)
			}
			cancelled++
			after := r.AppendCursor(nil)
			if !bytes.Equal(before, after) {
				t.Fatalf("behind record %d: the cursor was %q and is %q", at, before, after)
			}
			if len(after) == 0 {
				after = nil
			}
			rest, _ := readAll(t, s, after)
			if diff := cmp.Diff(rows[at:], rest, cmp.Transformer("nil", func(r []sourceRow) []sourceRow { return append([]sourceRow{}, r...) })); diff != "" {
				t.Fatalf("reopened behind record %d (-want +got):\n%s", at, diff)
			}
		}
	})
}

// drawSource makes a source that can be read again, of any kind.
func drawSource(t *rapid.T, dir string) Source {
	dir, err := os.MkdirTemp(dir, "")
	must(t, err)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
			_ = os.WriteFile(path, []byte(text), 0o600) // fails where a directory is, which is fine
		}
		return path
	}
	kind := rapid.SampledFrom([]string{"tree", "tree", string(FormatJSONLines), string(FormatCSV), string(FormatLines)}).Draw(t, "kind")
	if kind == "tree" {
		part := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a.x", "-"}), 1, 4)
		for range rapid.IntRange(0, 8).Draw(t, "files") {
			write(filepath.Join(append([]string{"root"}, part.Draw(t, "path")...)...), "")
		}
		_ = os.MkdirAll(filepath.Join(dir, "root", "empty", "inside"), 0o700)
		return Files(write("single", ""), filepath.Join(dir, "root"), write("last", ""))
	}
	s := &TextSource{Format: Format(kind), MaxLine: 80}
	for i := range rapid.IntRange(1, 3).Draw(t, "files") {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{`{"k":"a"}`, "", "bad", "1,2", strings.Repeat("z", 90)}), 0, 6).Draw(t, "lines"), "\n")
		if s.Format == FormatCSV {
			text = "k,v\n" + text
		}
		pack := rapid.SampledFrom([]func(string) string{func(s string) string { return s }, testkit.Gzipped, testkit.Zstded}).Draw(t, "packed")
		s.Paths = append(s.Paths, write(fmt.Sprint(i), pack(text)))
	}
	return s
}
