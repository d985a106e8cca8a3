package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// TestNoLineIsLostOrSplitWhenTheFileIsRotated as logrotate does with create and without, while
// handlers write.
func TestNoLineIsLostOrSplitWhenTheFileIsRotated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "done.jsonl")
	f, err := OpenFile(path, FileOptions{})
	must(t, err)
	const writers, each = 8, 200
	var g sync.WaitGroup
	// A writer waits to be counted, so that lines are written between any two rotations.
	written := make(chan struct{})
	for w := range writers {
		g.Go(func() {
			for n := range each {
				proof.Is(t, f.append(t.Context(), fmt.Appendf(nil, "%d %d %s\n", w, n, bytes.Repeat([]byte{'x'}, 100*w))), nil)
				written <- struct{}{}
			}
		})
	}
	for n := range 10 {
		for range writers * each / 20 {
			<-written
		}
		must(t, os.Rename(path, fmt.Sprintf("%s.%d", path, n)))
		if n%2 == 0 { // create
			// The next lines may have made the file by now. logrotate empties no file either.
			made, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err == nil {
				err = made.Close()
			}
			if err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
		f.Reopen()
	}
	for range writers * each / 2 {
		<-written
	}
	g.Wait()
	must(t, f.Close())
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 11 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for line := range bytes.Lines(text) {
			var w, n int
			var pad string
			if _, err := fmt.Sscanf(string(line), "%d %d %s\n", &w, &n, &pad); w > 0 && (err != nil || len(pad) != 100*w) {
				t.Fatalf("%s holds %q", file, line)
			}
			seen[fmt.Sprint(w, n)]++
		}
	}
	proof.Same(t, len(seen), writers*each, "different lines")
}

// TestAFileThatIsIdleIsOpenedAgainAtOnce, so that the program that rotated it may compress it.
func TestAFileThatIsIdleIsOpenedAgainAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "done.jsonl")
	var log proof.Buffer
	f, err := OpenFile(path, FileOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer f.Close()
	must(t, os.Rename(path, path+".1"))
	f.Reopen()
	// The file is there before it is locked: a process that opens it between the two may have it.
	// So the test waits for what is logged after both.
	for !strings.Contains(log.String(), "lines go on in another file") {
		time.Sleep(time.Millisecond)
	}
	// Another process may not write to the new one either.
	if other, err := OpenFile(path, FileOptions{}); err == nil {
		_ = other.Close()
		t.Error("two processes write to one file")
	}
}

// TestLinesOfAFileThatWasDeletedAreWrittenAgain: they would be gone with it.
func TestLinesOfAFileThatWasDeletedAreWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "done.jsonl")
	f, err := OpenFile(path, FileOptions{})
	must(t, err)
	defer f.Close()
	must(t, f.append(t.Context(), []byte("1\n")))
	must(t, os.Remove(path))
	must(t, f.append(t.Context(), []byte("2\n")))
	if text, err := os.ReadFile(path); err != nil || string(text) != "2\n" {
		t.Errorf("got %q, %v", text, err)
	}
	must(t, os.Remove(path))
	if f.kept() {
		t.Error("a file without a name is kept")
	}
}
