package source

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// A line that ended where the file did, and goes on when all was read, was no line.
func TestALineThatGoesOnAfterItWasTakenBreaksTheRun(t *testing.T) {
	path := testkit.Write(t, "a.txt", "one\ntw")
	r, err := Lines(path).Open(t.Context(), nil)
	must(t, err)
	defer r.Close()
	for range 2 {
		_, err := r.Next(t.Context())
		must(t, err)
	}
	if _, err := r.Next(t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	must(t, r.(interface{ Unchanged() error }).Unchanged())
	testkit.Append(t, path, "o\nthree\n")
	proof.Is(t, r.(interface{ Unchanged() error }).Unchanged(), ErrSourceChanged)
}

// A12: of several files the cursor has the path.
func TestACursorNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"b.txt", "d.txt"} {
		paths = append(paths, filepath.Join(dir, name))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name+"1\n"+name+"2\n"), 0o600))
	}
	source := &TextSource{Format: FormatLines, Paths: []string{filepath.Join(dir, "*.txt")}}
	_, cursors := readAll(t, source, nil)
	if got := string(cursors[2][3:]); got != paths[1] {
		t.Fatalf("the cursor names %q", got)
	}
	for what, cursor := range map[string][]byte{"new": cursors[2], "saved before there were names": cursors[2][:3]} {
		if rows, _ := readAll(t, source, cursor); len(rows) != 1 || rows[0].Body != "d.txt2" {
			t.Errorf("%s: %v", what, rows)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	must(t, os.Rename(dir, elsewhere))
	source.Paths = []string{filepath.Join(elsewhere, "*.txt")}
	if rows, _ := readAll(t, source, cursors[2]); len(rows) != 1 {
		t.Errorf("in another directory: %v", rows)
	}
	must(t, os.WriteFile(filepath.Join(elsewhere, "c.txt"), []byte("c\n"), 0o600))
	if _, err := source.Open(t.Context(), cursors[2]); !errors.Is(err, ErrSourceChanged) || !strings.Contains(err.Error(), "c.txt") {
		t.Errorf("a list that shifted: %v", err)
	}
}

// A10: a directory that cannot be read does not match fewer files; it is an error.
func TestAPatternOverAnUnreadableDirectoryIsAnError(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, d, "x.txt"), []byte("x\n"), 0o600))
	}
	pattern := filepath.Join(dir, "*", "*.txt")
	if rows, _ := readAll(t, Lines(pattern), nil); len(rows) != 2 {
		t.Errorf("%v", rows)
	}
	must(t, os.WriteFile(filepath.Join(dir, "c"), nil, 0o600)) // which leads nowhere, as for filepath.Glob
	if rows, _ := readAll(t, Lines(pattern), nil); len(rows) != 2 {
		t.Errorf("%v", rows)
	}
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	if _, err := Lines(pattern).Fingerprint(t.Context()); err == nil || OfSource(err) {
		t.Errorf("got %v", err)
	}
}

// B4: what is skipped is not read to its end when the context has ended.
func TestSkippingEndsWithItsContext(t *testing.T) {
	const size = 256 << 20
	path := filepath.Join(t.TempDir(), "one-line.txt")
	must(t, os.WriteFile(path, []byte("first\n"), 0o600))
	must(t, os.Truncate(path, size)) // sparse
	t.Run("an endless line", func(t *testing.T) {
		r, err := Lines(path).Open(t.Context(), nil)
		must(t, err)
		defer r.Close()
		_, err = r.Next(t.Context())
		must(t, err)
		before := string(r.AppendCursor(nil))
		ctx := &fuse{Context: t.Context(), left: 40}
		proof.Is(t, proof.ErrOf(r.Next(ctx)), context.Canceled)
		if done, _ := r.Progress(); done > 40<<20 {
			t.Errorf("%d bytes were read", done)
		}
		proof.Same(t, string(r.AppendCursor(nil)), before, "the position moved from … to")
		proof.Is(t, proof.ErrOf(r.Next(t.Context())), errLineTooLong, "read on")
		proof.Same(t, proof.ErrOf(r.Next(t.Context())), io.EOF, "behind it")
	})
	t.Run("a compressed file", func(t *testing.T) {
		path := testkit.Write(t, "a.gz", testkit.Gzipped("first\n"+strings.Repeat(strings.Repeat("x", 999)+"\n", 64<<10)))
		_, cursors := readAll(t, Lines(path), nil)
		r, err := Lines(path).Open(t.Context(), cursors[60_000])
		must(t, err)
		defer r.Close()
		proof.Is(t, proof.ErrOf(r.Next(&fuse{Context: t.Context(), left: 5})), context.Canceled)
		proof.Same(t, string(r.AppendCursor(nil)), string(cursors[60_000]), "the position moved to")
		if rec, err := r.Next(t.Context()); err != nil || len(rec.Body) != 999 {
			t.Errorf("read on: %v", err)
		}
	})
}

// A file is read only if it is the one that was fingerprinted, whatever becomes of it by the end.
func TestAFileThatIsReplacedBeforeItIsOpenedIsNotRead(t *testing.T) {
	long := testkit.Numbered(0, 4000) // more than its head
	pass := []string{"nothing happens", "grown", "removed while it is read"}
	for name, replace := range map[string]func(t *testing.T, path string){
		"nothing happens":          func(*testing.T, string) {},
		"grown":                    func(t *testing.T, path string) { testkit.Append(t, path, "more\n") },
		"removed while it is read": func(*testing.T, string) {},
		"another one":              func(t *testing.T, path string) { moveTo(t, path, "others\n") },
		"one of its length": func(t *testing.T, path string) {
			moveTo(t, path, strings.Repeat("x", len(long)-1)+"\n")
		},
		"one of its length and time": func(t *testing.T, path string) {
			st, err := os.Stat(path)
			must(t, err)
			moveTo(t, path, strings.Repeat("x", len(long)-1)+"\n")
			must(t, os.Chtimes(path, st.ModTime(), st.ModTime()))
		},
		"a longer one that begins alike": func(t *testing.T, path string) {
			moveTo(t, path, long[:len(long)/2]+strings.Repeat("others\n", len(long)))
		},
		"written to": func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(strings.Repeat("x", len(long)-1)+"\n"), 0o600))
		},
		"a directory": func(t *testing.T, path string) {
			must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := testkit.Write(t, "a.txt", "one\n"), testkit.Write(t, "b.txt", long)
			// Else a change in the same tick of the clock would have the same time.
			must(t, os.Chtimes(b, time.Unix(1e9, 0), time.Unix(1e9, 0)))
			r, err := (&TextSource{Format: FormatLines, Paths: []string{a, b}}).Open(t.Context(), nil)
			must(t, err)
			defer r.Close()
			_, err = r.Next(t.Context())
			must(t, err)
			replace(t, b)
			n := 0
			for ; err == nil; n++ {
				if _, err = r.Next(t.Context()); n == 0 {
					must(t, os.RemoveAll(b)) // the end cannot see it
				}
			}
			if err == io.EOF {
				err = r.(interface{ Unchanged() error }).Unchanged()
			}
			if slices.Contains(pass, name) {
				if err != nil || n != 4001 {
					t.Errorf("%d records, %v", n, err)
				}
			} else if !errors.Is(err, ErrSourceChanged) || !strings.Contains(err.Error(), b) || n > 1 {
				t.Errorf("%d records, %v", n, err)
			}
		})
	}
}

// moveTo has another file take a file's place, with a text of its own.
func moveTo(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.Rename(testkit.Write(t, "new.txt", text), path))
}

// What is written into a file while it is read is seen though its path leads nowhere at the end.
func TestAFileThatIsWrittenToAndRemovedWhileItIsReadBreaksTheRun(t *testing.T) {
	text := testkit.Numbered(0, 20_000)
	path := testkit.Write(t, "a.txt", text)
	must(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
	r, err := Lines(path).Open(t.Context(), nil)
	must(t, err)
	defer r.Close()
	_, err = r.Next(t.Context())
	must(t, err)
	must(t, errors.Join(os.WriteFile(path, []byte(strings.Repeat("x", len(text)-1)+"\n"), 0o600), os.Remove(path)))
	for err == nil {
		_, err = r.Next(t.Context())
	}
	proof.Is(t, err, ErrSourceChanged)
}
