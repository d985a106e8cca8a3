package handlers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// must ends a test with an error.
var must = proof.Must

// frozen is a disk whose next call of a kind returns when its test says so, as one of a frozen
// file system does.
type frozen struct {
	*disk
	call string
	thaw chan struct{}
}

func (d *frozen) wait(call string) {
	if call == d.call {
		<-d.thaw
	}
}

func (d *frozen) Write(b []byte) (int, error) {
	d.wait("a write")
	return d.disk.Write(b)
}

func (d *frozen) Sync() error {
	d.wait("an fsync")
	return d.disk.Sync()
}

func (d *frozen) Stat() (os.FileInfo, error) {
	d.wait("mending its end")
	return d.disk.Stat()
}

func (d *frozen) Close() error {
	d.wait("closing it")
	return d.disk.Close()
}

// TestACallThatHangsIsSaidGivenUpAndNotWaitedFor in the log, by what makes the process unready,
// and by tasks that are given back: with Patience and without the call's return.
func TestACallThatHangsIsSaidGivenUpAndNotWaitedFor(t *testing.T) {
	for _, call := range []string{"a write", "an fsync", "mending its end"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log proof.Buffer
				broken := make(chan error, 10)
				d := &frozen{&disk{room: -1}, call, make(chan struct{})}
				f := newFile("done.jsonl", d, 0, true, FileOptions{
					Patience: 20 * time.Second, Broken: func(err error) { broken <- err },
					Log: slog.New(slog.NewTextHandler(&log, nil)),
				})
				defer close(d.thaw)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				done := make(chan error, 2)
				go func() { done <- f.append(ctx, []byte("1\n")) }()
				time.Sleep(overdue + time.Second)
				synctest.Wait()
				proof.Same(t, strings.Count(log.String(), `hangs="`+call+`"`), 1, "after", time.Since(began), "the log says", log.String())
				proof.Same(t, f.Amiss(), "--out done.jsonl: "+call+" has not returned, for 6s", "amiss")
				go func() { done <- f.append(ctx, []byte("2\n")) }() // it waits with the other
				for range 2 {
					sameError(t, <-done, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenFile)))
				}
				proof.Same(t, time.Since(began), 20*time.Second+handBack, "given back after")
				if len(broken) != 1 {
					t.Fatalf("reported %d times", len(broken))
				}
				want := "done.jsonl cannot be written: " + call + " has not returned (for 20s; what was not written has not been settled)"
				if err := <-broken; err.Error() != want {
					t.Errorf("reported %v", err)
				}
				began = time.Now()
				proof.Says(t, f.Close(), call+" has not returned", "closing it")
				proof.Same(t, time.Since(began), endPatience, "closing it took")
			})
		})
	}
}

func TestADiskThatThawsInTimeLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &frozen{&disk{room: -1}, "an fsync", make(chan struct{})}
		f := newFile("x", d, 0, true, FileOptions{Broken: func(err error) { t.Error(err) }})
		done := make(chan error, 1)
		go func() { done <- f.append(t.Context(), []byte("1\n")) }()
		time.Sleep(29 * time.Second)
		if f.Amiss() == "" {
			t.Error("all is well")
		}
		close(d.thaw)
		if err := <-done; err != nil || f.Amiss() != "" {
			t.Errorf("%v, %q", err, f.Amiss())
		}
		if err := f.Close(); err != nil || d.text() != "1\n" {
			t.Errorf("%v: the file holds %q", err, d.text())
		}
	})
}

// TestALookThatHungIsForgottenWhenItReturned, with no line to write; what was amiss before it still is.
func TestALookThatHungIsForgottenWhenItReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile("x", &disk{room: -1}, 0, true, FileOptions{})
		for _, before := range []string{"", "--out x: no space left on device, for 6s"} {
			if before != "" {
				f.fails(syscall.ENOSPC)
			}
			look := make(chan error)
			go func() { _ = f.timed("a look at its name", func() error { return <-look }) }()
			time.Sleep(overdue + time.Second)
			proof.Same(t, f.Amiss(), "--out x: a look at its name has not returned, for 6s", "amiss")
			look <- nil
			synctest.Wait()
			proof.Same(t, f.Amiss(), before, "amiss")
		}
		_ = f.Close()
	})
}

func TestAFileWhoseClosingHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &frozen{&disk{room: -1}, "closing it", make(chan struct{})}
		f := newFile("x", d, 0, true, FileOptions{})
		must(t, f.append(t.Context(), []byte("1\n")))
		proof.Same(t, fmt.Sprint(f.Close()), "--out x is not waited for: closing it has not returned", "closing it")
		close(d.thaw)
	})
}

// TestAFullDiskAfterTheFileWasEmptiedLeavesNoZeros: the length of before is the file's no more.
func TestAFullDiskAfterTheFileWasEmptiedLeavesNoZeros(t *testing.T) {
	for _, before := range []string{"", `{"run":"ab`, "another's\n"} {
		synctest.Test(t, func(t *testing.T) {
			d := &disk{room: -1}
			f := newFile("x", d, 0, true, FileOptions{})
			must(t, f.append(t.Context(), bytes.Repeat([]byte("0123456789\n"), 1000)))
			d.set(func() { d.content, d.room = []byte(before), 5 })
			done := make(chan error, 1)
			go func() { done <- f.append(t.Context(), []byte("abcdefghij\n")) }()
			time.Sleep(10 * time.Second)
			whole := strings.TrimSuffix(before, lineStart+"ab")
			proof.Same(t, d.text(), whole, "the file holds")
			d.set(func() { d.room = -1 })
			if err := <-done; err != nil || d.text() != whole+"abcdefghij\n" {
				t.Errorf("%v: the file holds %q", err, d.text())
			}
			_ = f.Close()
		})
	}
}

// emptied is a disk whose file another program empties in the midst of a write that fails.
type emptied struct {
	*disk
	left string
}

func (d *emptied) Write(b []byte) (int, error) {
	n, err := d.disk.Write(b)
	if err != nil {
		d.set(func() { d.content = []byte(d.left) })
	}
	return n, err
}

func TestAFileThatIsEmptiedWhileAWriteFailsIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &emptied{&disk{room: 40}, `{"run":"0`}
		f := newFile("x", d, 0, true, FileOptions{})
		must(t, f.append(t.Context(), bytes.Repeat([]byte("x"), 30)))
		done := make(chan error, 1)
		go func() { done <- f.append(t.Context(), []byte(lineStart+"cdef\"}\n")) }()
		time.Sleep(5 * time.Second)
		proof.Same(t, d.text(), "", "the file holds")
		d.set(func() { d.room = -1 })
		if err := <-done; err != nil || d.text() != lineStart+"cdef\"}\n" {
			t.Errorf("%v: the file holds %q", err, d.text())
		}
		_ = f.Close()
	})
}

// TestATruncatedFileGoesOnAtItsNewEnd, as it is on a real disk.
func TestATruncatedFileGoesOnAtItsNewEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "done.jsonl")
	f, err := OpenFile(path, FileOptions{})
	must(t, err)
	defer f.Close()
	for range 3 {
		must(t, f.append(t.Context(), []byte(lineStart+"\"}\n")))
	}
	for _, tt := range []struct {
		size int64
		want string
	}{{0, ""}, {5, ""}, {11, lineStart + "9\"}\n"}} {
		must(t, os.Truncate(path, tt.size))
		must(t, f.append(t.Context(), []byte(lineStart+"9\"}\n")))
		text, _ := os.ReadFile(path)
		proof.Same(t, string(text), tt.want+lineStart+"9\"}\n", "the file, truncated to", tt.size)
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipe here: %v", err)
	}
	return path
}

// TestAPipeWhoseReaderIsGoneSettlesNothingMore: the file was open for reading as well, so that the
// kernel took lines that no process would ever read.
func TestAPipeWhoseReaderIsGoneSettlesNothingMore(t *testing.T) {
	path := fifo(t)
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	broken := make(chan error, 10)
	f, err := OpenFile(path, FileOptions{Broken: func(err error) { broken <- err }})
	must(t, err)
	must(t, f.append(t.Context(), []byte("1\n")))
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || line != "1\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	_ = r.Close()
	if err = f.append(t.Context(), []byte("2\n")); err == nil {
		t.Fatal("a line that no process can read was settled")
	}
	sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenFile)))
	if err := <-broken; !errors.Is(err, syscall.EPIPE) || !strings.Contains(err.Error(), "its reader is gone") {
		t.Errorf("reported %v", err)
	}
	must(t, f.Close())
}

// TestAPipeWithoutAReaderIsSaidAndWaitsForOne: neither the start nor the end waits for it.
func TestAPipeWithoutAReaderIsSaidAndWaitsForOne(t *testing.T) {
	path := fifo(t)
	var log proof.Buffer
	open := func() *File {
		f, err := OpenFile(path, FileOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
		if !strings.Contains(log.String(), errNoReader.Error()) || !strings.Contains(f.Amiss(), errNoReader.Error()) {
			t.Errorf("the log says %q, and amiss is %q", log.String(), f.Amiss())
		}
		return f
	}
	must(t, open().Close())
	f := open()
	done := make(chan error, 1)
	go func() { done <- f.append(t.Context(), []byte("1\n")) }()
	r, err := os.Open(path) // returns when the file opens it too
	must(t, err)
	defer r.Close()
	if err := <-done; err != nil || f.Amiss() != "" {
		t.Errorf("%v; amiss: %s", err, f.Amiss())
	}
	must(t, f.Close())
	if text, err := io.ReadAll(r); err != nil || string(text) != "1\n" {
		t.Errorf("read %q, %v", text, err)
	}
}

// TestAPipeThatIsNotReadHoldsNoTaskForEver: its reader is there, and has stopped reading.
func TestAPipeThatIsNotReadHoldsNoTaskForEver(t *testing.T) {
	path := fifo(t)
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer r.Close()
	broken := make(chan error, 10)
	f, err := OpenFile(path, FileOptions{Patience: time.Second, Broken: func(err error) { broken <- err }})
	must(t, err)
	err = f.append(t.Context(), append(bytes.Repeat([]byte("x"), commitMost), '\n'))
	sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenFile)))
	if err := <-broken; !strings.Contains(err.Error(), "a write has not returned") {
		t.Errorf("reported %v", err)
	}
	proof.Says(t, f.Close(), "a write has not returned", "closing it")
}

// TestASlowReaderIsNoHangingOne: it takes some bytes within Patience, and the rest later.
func TestASlowReaderIsNoHangingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slow{disk: &disk{room: -1}}
		f := newFile("pipe", d, 0, false, FileOptions{Broken: func(err error) { t.Error(err) }})
		began := time.Now()
		must(t, f.append(t.Context(), bytes.Repeat([]byte("x"), 10*piece)))
		proof.Same(t, time.Since(began), 100*time.Second, "it took")
		_ = f.Close()
	})
}

// slow takes a piece in ten seconds.
type slow struct{ *disk }

func (d *slow) Write(b []byte) (int, error) {
	time.Sleep(time.Duration((len(b)+piece-1)/piece) * 10 * time.Second)
	return d.disk.Write(b)
}

// newFile makes a file of a sink that never changes.
func newFile(path string, f sink, size int64, regular bool, o FileOptions) *File {
	out := makeFile(path, f, size, regular, o)
	out.start()
	return out
}
