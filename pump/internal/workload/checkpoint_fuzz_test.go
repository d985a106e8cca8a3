package workload_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// FuzzSavedPosition: whatever stands in a checkpoint, it is refused or is a position
// from which reading goes on, inside of what is read and never outside of it.
func FuzzSavedPosition(f *testing.F) {
	c := workload.Checkpoint{Cursor: []byte{0, 3, 2}, Counts: []uint64{1, 2, 3, 4}, Skipped: 1}
	f.Add(c.Encode())
	c.Cursor = []byte("\x00b/one")
	f.Add(c.Encode())
	c.Cursor = []byte("\x00../../etc/passwd")
	f.Add(c.Encode())
	root := f.TempDir()
	for name, text := range map[string]string{"a": "1\n2\n3\n", "b/one": "4\n", "b/two": "5\n"} {
		proof.Must(f, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700), os.WriteFile(filepath.Join(root, name), []byte(text), 0o600)))
	}
	f.Fuzz(func(t *testing.T, saved []byte) {
		var c *workload.Checkpoint
		var err error
		proof.AtMost(t, 64<<10+len(saved), func() { c, err = workload.DecodeCheckpoint(saved, 4) })
		if err != nil {
			return
		}
		if again, err := workload.DecodeCheckpoint(c.Encode(), 4); err != nil || !slices.Equal(again.Counts, c.Counts) || !bytes.Equal(again.Cursor, c.Cursor) || again.Skipped != c.Skipped {
			t.Fatalf("%+v, then %+v, %v", c, again, err)
		}
		tree := source.Files(root)
		for _, s := range []source.Source{source.Lines(filepath.Join(root, "a")), &source.TextSource{Format: source.FormatCSV, Paths: []string{filepath.Join(root, "a"), filepath.Join(root, "b", "*")}}, tree} {
			r, err := s.Open(t.Context(), c.Cursor)
			if err != nil {
				continue
			}
			for n := 0; ; n++ {
				rec, err := r.Next(t.Context())
				if err != nil {
					break
				}
				if n > 5 || s == tree && !strings.HasPrefix(string(rec.Body), root) {
					t.Fatalf("record %d at %q is %q", n, c.Cursor, rec.Body)
				}
			}
			r.Close()
		}
	})
}
