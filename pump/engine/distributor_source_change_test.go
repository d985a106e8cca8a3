package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
)

// numbered is lines of 50 bytes.
func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%049d\n", i)
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, errors.Join(err, f.Close()))
}

// A11: a file that changes while it is read is complete or the run is broken, never less and sealed.
func TestAFileThatChangesWhileItIsReadIsNotSealedAsComplete(t *testing.T) {
	const lines, packed = 20_000, 100
	text := numbered(0, lines)
	var gz, zst strings.Builder // of many members, so that a cut between two of them is no damage
	gzCut, zstCut := 0, 0
	for i := 0; i < lines; i += packed {
		if gz.WriteString(gzipped(numbered(i, i+packed))); i == lines/2 {
			gzCut = gz.Len()
		}
		if zst.WriteString(zstded(numbered(i, i+packed))); i == lines/2 {
			zstCut = zst.Len()
		}
	}
	rewrite := func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 10)
		must(t, errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))))
	}
	for name, c := range map[string]struct {
		text   string
		change func(t *testing.T, path string)
		tasks  int // 0: the run is broken
	}{
		"nothing happens":         {text, func(*testing.T, string) {}, lines},
		"cut off":                 {text, func(t *testing.T, path string) { must(t, os.Truncate(path, lines/2*50)) }, 0},
		"cut off in a line":       {text, func(t *testing.T, path string) { must(t, os.Truncate(path, lines/2*50+7)) }, 0},
		"cut off behind the rest": {text, func(t *testing.T, path string) { must(t, os.Truncate(path, 50)) }, 0},
		"a cut gzip file":         {gz.String(), func(t *testing.T, path string) { must(t, os.Truncate(path, int64(gzCut))) }, 0},
		"a cut zstd file":         {zst.String(), func(t *testing.T, path string) { must(t, os.Truncate(path, int64(zstCut))) }, 0},
		"written to":              {text, rewrite, 0},
		"grown":                   {text, func(t *testing.T, path string) { appendTo(t, path, numbered(lines, 2*lines)) }, lines},
		"grown behind half a line": {text + "half", func(t *testing.T, path string) {
			appendTo(t, path, " a line\n"+numbered(lines, 2*lines))
		}, lines},
		"a grown gzip file": {gz.String(), func(t *testing.T, path string) { appendTo(t, path, gzipped(numbered(0, 10))) }, lines},
		"a grown zstd file": {zst.String(), func(t *testing.T, path string) { appendTo(t, path, zstded(numbered(0, 10))) }, lines},
		"removed":           {text, func(t *testing.T, path string) { must(t, os.Remove(path)) }, lines},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "tasks.txt", c.text)
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				timer := time.AfterFunc(5*time.Second, func() { c.change(t, path) })
				defer timer.Stop()
				s, err := w.distributor("d", Lines(path), DistributorOptions{MaxRate: 1000}).Run(t.Context())
				row := w.runRow(s.Run)
				if c.tasks == 0 {
					if !errors.Is(err, ErrSourceChanged) || row.State != workload.RunBroken {
						t.Errorf("%d tasks of %d, the run is %s: %v", s.Tasks, lines, row.State, err)
					}
				} else if err != nil || int(s.Tasks) != c.tasks || row.State != workload.RunSealed {
					t.Errorf("%d tasks of %d, the run is %s: %v", s.Tasks, c.tasks, row.State, err)
				}
			})
		})
	}
}

// A line that ended where the file did, and goes on when all was read, was no line.
func TestALineThatGoesOnAfterItWasTakenBreaksTheRun(t *testing.T) {
	path := writeFile(t, "a.txt", "one\ntw")
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
	must(t, unchanged(r))
	appendTo(t, path, "o\nthree\n")
	if err := unchanged(r); !errors.Is(err, ErrSourceChanged) {
		t.Errorf("got %v", err)
	}
}

// onMessage calls do when a line is logged.
type onMessage struct {
	slog.Handler
	text string
	do   func()
}

func (h onMessage) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.text {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

func (h onMessage) WithAttrs(a []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(a)
	return h
}

// A12: files that come or go between the fingerprint and the reading are of the next distribution.
func TestTheListThatWasFingerprintedIsTheListThatIsRead(t *testing.T) {
	dir := t.TempDir()
	part := func(name, text string) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	part("b.txt", "b1\nb2\n")
	part("d.txt", "d1\nd2\n")
	source := Lines(filepath.Join(dir, "*.txt"))
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		d := w.distributor("d", source, DistributorOptions{})
		d.cfg.Log = slog.New(onMessage{d.cfg.Log.Handler(), "distributing", func() {
			part("a.txt", "a1\n")
			part("c.txt", "c1\n")
		}})
		s, err := d.Run(t.Context())
		if err != nil || s.Tasks != 4 {
			t.Errorf("%d tasks, %v", s.Tasks, err)
		}
	})
	if rows, _ := readAll(t, source, nil); len(rows) != 6 {
		t.Errorf("%d lines the next time", len(rows))
	}
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
	if _, err := Lines(pattern).Fingerprint(t.Context()); err == nil || ofSource(err) {
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
		if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if done, _ := r.Progress(); done > 40<<20 {
			t.Errorf("%d bytes were read", done)
		}
		if after := string(r.AppendCursor(nil)); after != before {
			t.Errorf("the position moved from %x to %x", before, after)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, errLineTooLong) {
			t.Errorf("read on: %v", err)
		}
		if _, err := r.Next(t.Context()); err != io.EOF {
			t.Errorf("behind it: %v", err)
		}
	})
	t.Run("a compressed file", func(t *testing.T) {
		path := writeFile(t, "a.gz", gzipped("first\n"+strings.Repeat(strings.Repeat("x", 999)+"\n", 64<<10)))
		_, cursors := readAll(t, Lines(path), nil)
		r, err := Lines(path).Open(t.Context(), cursors[60_000])
		must(t, err)
		defer r.Close()
		if _, err := r.Next(&fuse{Context: t.Context(), left: 5}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if at := string(r.AppendCursor(nil)); at != string(cursors[60_000]) {
			t.Errorf("the position moved to %x", at)
		}
		if rec, err := r.Next(t.Context()); err != nil || len(rec.Body) != 999 {
			t.Errorf("read on: %v", err)
		}
	})
}
