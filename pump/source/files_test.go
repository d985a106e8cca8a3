package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestFilesAreTasksInSortedOrder(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a/b/1", "a/b/2", "a.txt", "a/z", "b", "c/empty/", "single"} {
		if strings.HasSuffix(p, "/") {
			os.MkdirAll(filepath.Join(dir, p), 0o700)
			continue
		}
		os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o700)
		os.WriteFile(filepath.Join(dir, p), nil, 0o600)
	}
	os.Symlink(filepath.Join(dir, "b"), filepath.Join(dir, "link"))
	os.Symlink(dir, filepath.Join(dir, "a", "loop"))
	s := Files(filepath.Join(dir, "single"), dir+"/")
	rows, cursors := readAll(t, s, nil)
	var got []string
	for _, r := range rows {
		proof.Same(t, r.Key, r.Body, "key …, body")
		rel, _ := filepath.Rel(dir, r.Key)
		got = append(got, rel)
	}
	proof.Same(t, cmp.Diff([]string{"single", "a/b/1", "a/b/2", "a/z", "a.txt", "b", "single"}, got), "")
	for i, c := range cursors {
		rest, _ := readAll(t, s, c)
		if len(rest) != len(rows)-i-1 || len(rest) > 0 && !cmp.Equal(rows[i+1:], rest) {
			t.Errorf("behind %s: %v", got[i], rest)
		}
	}
	first, err := s.Fingerprint(t.Context())
	must(t, err)
	if r, _ := s.Open(t.Context(), nil); r != nil {
		_, total := r.Progress()
		proof.Same(t, total, 7, "total")
	}
	os.WriteFile(filepath.Join(dir, "a", "b", "0"), nil, 0o600)
	if f, _ := s.Fingerprint(t.Context()); f == first {
		t.Error("a file appeared and the fingerprint is the same (P2.3)")
	}
}

// The cursor into a tree is the last path: whatever appeared or vanished, what
// follows is what sorts behind it (P2.3).
func TestTreeCursorIsAPathAndNotACount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "tree")
		must(t, err)
		defer os.RemoveAll(dir)
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a.x", "-"}), 1, 4).Draw(t, "path"), "/")
		})
		make := func(p string) {
			p = filepath.Join(dir, p)
			if os.MkdirAll(filepath.Dir(p), 0o700) == nil {
				_ = os.WriteFile(p, nil, 0o600) // fails where a directory is, which is fine
			}
		}
		for _, p := range rapid.SliceOfN(name, 1, 12).Draw(t, "before") {
			make(p)
		}
		rows, cursors := readAll(t, Files(dir), nil)
		if len(rows) == 0 {
			return
		}
		at := rapid.IntRange(0, len(rows)-1).Draw(t, "at")
		for _, r := range rapid.SliceOfN(rapid.SampledFrom(rows), 0, 3).Draw(t, "removed") {
			os.Remove(r.Key)
		}
		for _, p := range rapid.SliceOfN(name, 0, 5).Draw(t, "added") {
			make(p)
		}
		now, _ := readAll(t, Files(dir), nil)
		var want []sourceRow
		for _, r := range now {
			if sortsBehind(r.Key, rows[at].Key) {
				want = append(want, r)
			}
		}
		got, _ := readAll(t, Files(dir), cursors[at])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("behind %s (-want +got):\n%s", rows[at].Key, diff)
		}
	})
}

// sortsBehind compares part by part, as a walk goes.
func sortsBehind(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] > y[i]
		}
	}
	return len(x) > len(y)
}
