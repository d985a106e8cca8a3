package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

func TestALineHasTheTaskInItsOrder(t *testing.T) {
	for body, want := range map[string]string{
		`{"b": 1, "a": 2}`:     `"body":{"b": 1, "a": 2}`,
		"{\"a\":\r\n[1]}":      `"body":{"a":[1]}`,
		"9007199254740993":     `"body":9007199254740993`,
		"two\nlines":           `"body":"two\nlines"`,
		"":                     `"body":""`,
		"\xff\x00":             `"bodyBase64":"/wA="`,
		"\"\xff\"":             `"bodyBase64":"Iv8i"`, // JSON but for its UTF-8
		"{\"a\":1} {\"b\":2}":  `"body":"{\"a\":1} {\"b\":2}"`,
		"caf\u00e9 \u2028 end": `"body":"café \u2028 end"`,
	} {
		got := string(appendTask(nil, task(body)))
		want = `{"run":"ab000000000000000000000000000000","segment":5,"n":17,"key":"Oslo","id":"a1",` + want + `,"attempt":2}` + "\n"
		proof.Same(t, got, want)
		if !json.Valid([]byte(got)) || strings.Count(got, "\n") != 1 {
			t.Errorf("%q is not one line of JSON", got)
		}
	}
	tk := task("1")
	tk.Key, tk.Foreign = []byte("\xfe"), "q/1"
	proof.Same(t, string(taskline.AppendResult(nil, tk, nil)), `{"run":"ab000000000000000000000000000000","segment":5,"n":17,"keyBase64":"/g==","id":"a1","foreign":"q/1","result":null,"attempt":2}`+"\n")
	proof.Same(t, string(taskline.AppendResult(nil, task(""), json.RawMessage("{\n}"))), `{"run":"ab000000000000000000000000000000","segment":5,"n":17,"key":"Oslo","id":"a1","result":{},"attempt":2}`+"\n")
}

func TestAfterHandleReturnsTheLineIsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "done.jsonl")
	f, err := OpenFile(path, FileOptions{})
	must(t, err)
	must(t, f.Handle(t.Context(), task("1")))
	must(t, errors.Join(f.HandleBatch(t.Context(), []*pump.Task{task("2"), task("3")})...))
	text, _ := os.ReadFile(path)
	want := string(appendTask(appendTask(appendTask(nil, task("1")), task("2")), task("3")))
	proof.Same(t, string(text), want)
	must(t, f.Close())
	proof.Says(t, f.append(t.Context(), []byte("{}\n")), " is closed")
}

func TestATornLastLineIsRepairedAndNothingElseTouched(t *testing.T) {
	whole := string(appendTask(nil, task("1")))
	for _, tt := range []struct{ name, before, after, err string }{
		{"empty", "", "", ""},
		{"whole lines", whole + whole, whole + whole, ""},
		{"torn", whole + whole[:40], whole, ""},
		{"torn at once", whole + "{", whole, ""},
		{"only a torn line", whole[:9], "", ""},
		{"zeros after a power cut", whole + whole[:20] + "\x00\x00\x00", whole, ""},
		{"only the line end is missing", whole + whole[:len(whole)-1], whole + whole, ""},
		{"a torn line longer than one step", whole + whole[:40] + strings.Repeat("x", 300<<10), whole, ""},
		{"somebody else's file", "first\nsecond", "first\nsecond", "was not written by a processor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "done.jsonl")
			must(t, os.WriteFile(path, []byte(tt.before), 0o600))
			f, err := OpenFile(path, FileOptions{})
			if tt.err != "" {
				proof.Says(t, err, tt.err)
			} else if err != nil {
				t.Fatal(err)
			} else if err := f.append(t.Context(), []byte("{}\n")); err != nil {
				t.Fatal(err)
			} else {
				tt.after += "{}\n"
				_ = f.Close()
			}
			if text, _ := os.ReadFile(path); string(text) != tt.after {
				t.Errorf("got %q, want %q", text, tt.after)
			}
		})
	}
}

func TestTwoProcessesCannotWriteOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "done.jsonl")
	f, err := OpenFile(path, FileOptions{})
	must(t, err)
	proof.Says(t, proof.ErrOf(OpenFile(path, FileOptions{})), "is being written by another process")
	_ = f.Close()
	f, err = OpenFile(path, FileOptions{})
	must(t, err)
	_ = f.Close()
}

// disk is a file on a disk that can be told to fail.
type disk struct {
	mu        sync.Mutex
	content   []byte
	syncs     int
	room      int           // bytes until it is full; negative: no bound
	syncErr   error         // of the next Sync
	truncErr  error         // of the next Truncate
	syncTakes time.Duration // of each
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.room >= 0 && len(b) > d.room {
		n := d.room
		d.content = append(d.content, b[:n]...)
		d.room = 0
		return n, syscall.ENOSPC
	}
	if d.room >= 0 {
		d.room -= len(b)
	}
	d.content = append(d.content, b...)
	return len(b), nil
}

func (d *disk) Sync() error {
	time.Sleep(d.syncTakes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	err := d.syncErr
	d.syncErr = nil
	return err
}

func (d *disk) Truncate(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.truncErr; err != nil {
		d.truncErr = nil
		return err
	}
	if more := size - int64(len(d.content)); more > 0 { // as every system does
		d.content = append(d.content, make([]byte, more)...)
	}
	d.content = d.content[:size]
	return nil
}

func (d *disk) Stat() (os.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return length(len(d.content)), nil
}

func (d *disk) ReadAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.NewReader(d.content).ReadAt(b, at)
}

func (d *disk) Close() error { return nil }

func (d *disk) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.content)
}

func (d *disk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func TestOneFsyncIsForAllThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1, syncTakes: 10 * time.Millisecond}
		f := newFile("x", d, 0, true, FileOptions{})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				proof.Is(t, f.append(t.Context(), fmt.Appendf(nil, "%d\n", i)), nil)
			})
		}
		all.Wait()
		if d.syncs > 2 { // the first may have gone alone
			t.Errorf("%d syncs for 100 lines that came together", d.syncs)
		}
		proof.Same(t, strings.Count(d.text(), "\n"), 100, "lines")
		_ = f.Close()
	})
}

func TestASlowDiskHoldsHandlersUpAndNotMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1, syncTakes: time.Second}
		f := newFile("x", d, 0, true, FileOptions{})
		const handlers, each = 256, 500
		body := bytes.Repeat([]byte("0123456789"), 50)
		tasks := make([]*pump.Task, each)
		for i := range tasks {
			tasks[i] = &pump.Task{N: uint64(i), Body: body}
		}
		var all sync.WaitGroup
		for range handlers {
			all.Go(func() {
				if errs := f.HandleBatch(t.Context(), tasks); errs != nil {
					t.Error(errs[0])
				}
			})
		}
		line := len(appendTask(nil, tasks[each-1]))
		most := 0
		for range 5 {
			synctest.Wait() // the disk is at work, and all others wait
			f.mu.Lock()
			most = max(most, len(f.next.lines))
			f.mu.Unlock()
			time.Sleep(time.Second)
		}
		if most < commitMost || most > commitMost+each*line {
			t.Errorf("%d bytes of lines wait, want %d and at most one batch more", most, commitMost)
		}
		all.Wait()
		proof.Same(t, strings.Count(d.text(), "\n"), handlers*each, "lines")
		_ = f.Close()
	})
}

func TestHandlersThatWaitForRoomGiveUpWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 0}
		f := newFile("x", d, 0, true, FileOptions{})
		ctx, cancel := context.WithCancelCause(t.Context())
		full := append(bytes.Repeat([]byte("x"), commitMost), '\n')
		done := make(chan error)
		for range 2 { // one that the disk refuses, and one that fills the next commit
			go func() { done <- f.append(ctx, full) }()
			synctest.Wait()
		}
		const handlers = 64
		for range handlers {
			go func() { done <- f.Handle(ctx, &pump.Task{}) }()
		}
		synctest.Wait()
		cancel(errors.New("stopped"))
		for range handlers + 2 {
			proof.Same(t, fmt.Sprint(<-done), "stopped")
		}
		time.Sleep(2 * time.Second)
		d.set(func() { d.room = -1 })
		if err := f.Handle(t.Context(), &pump.Task{}); err != nil { // the buffers are all there
			t.Error(err)
		}
		_ = f.Close()
	})
}

func TestNothingIsAcknowledgedWhileTheDiskIsFullAndNothingIsLostAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 15}
		broken := make(chan error, 10)
		f := newFile("done.jsonl", d, 0, true, FileOptions{Patience: time.Minute, Broken: func(err error) { broken <- err }})
		must(t, f.append(t.Context(), []byte("0123456789\n")))
		done := make(chan error, 1)
		go func() { done <- f.append(t.Context(), []byte("abcdefghij\n")) }()
		synctest.Wait()
		time.Sleep(14 * time.Second)
		proof.Same(t, d.text(), "0123456789\n", "the file holds")
		proof.Same(t, len(broken), 0, "reported too early")
		select {
		case err := <-done:
			t.Fatalf("acknowledged with %v", err)
		default:
		}
		d.set(func() { d.room = -1 })
		must(t, <-done)
		proof.Same(t, d.text(), "0123456789\nabcdefghij\n", "the file holds")
		_ = f.Close()
	})
}

func TestATaskThatIsGivenUpWhileTheDiskIsFullIsNotWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 0}
		f := newFile("x", d, 0, true, FileOptions{})
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.append(ctx, []byte("given up\n")) }()
		synctest.Wait()
		cancel(errors.New("stopped"))
		proof.Same(t, fmt.Sprint(<-done), "stopped")
		time.Sleep(2 * time.Second)
		d.set(func() { d.room = -1 })
		must(t, f.append(t.Context(), []byte("next\n")))
		proof.Same(t, d.text(), "next\n", "the file holds")
		_ = f.Close()
	})
}

// TestAFailedSyncIsWrittenAgain: after a failed fsync the kernel has dropped
// the pages, and the next fsync says nothing about them.
func TestAFailedSyncIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1, syncErr: syscall.EIO, truncErr: syscall.EIO} // and the undoing fails at first too
		f := newFile("x", d, 0, true, FileOptions{})
		must(t, f.append(t.Context(), []byte("line\n")))
		proof.Same(t, d.text(), "line\n", "the file holds")
		proof.Same(t, d.syncs, 2, "syncs")
		_ = f.Close()
	})
}

// TestWhatABrokenFileDidNotWriteIsGivenBack a second after it is reported, whether it
// waited by then or came later, and is not written any more.
func TestWhatABrokenFileDidNotWriteIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 5}
		broken := make(chan error, 10)
		f := newFile("done.jsonl", d, 0, true, FileOptions{Patience: 5 * time.Second, Broken: func(err error) { broken <- err }})
		began := time.Now()
		for _, within := range []time.Duration{5*time.Second + handBack, handBack, handBack} {
			err := f.append(t.Context(), []byte("abcdefghij\n"))
			sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenFile)))
			proof.Same(t, time.Since(began), within, "given back after")
			began = time.Now()
			d.set(func() { d.room = -1 })
		}
		if err := <-broken; len(broken) != 0 || err.Error() != "done.jsonl cannot be written: no space left on device (for 5s; what was not written has not been settled)" {
			t.Errorf("reported %v", err)
		}
		_ = f.Close()
		proof.Same(t, d.text(), "", "the file holds")
	})
}

func TestAFullDeviceIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := make(chan error, 10)
		f, err := OpenFile("/dev/full", FileOptions{Patience: time.Second, Broken: func(err error) { broken <- err }})
		if err != nil {
			t.Skipf("no /dev/full here: %v", err)
		}
		proof.Is(t, f.Handle(t.Context(), task("x")), errBrokenFile)
		proof.Is(t, <-broken, syscall.ENOSPC, "reported")
		_ = f.Close()
	})
}

// TestAResultIsOnDiskBeforeItsTaskIsDone: settle comes after the effect.
func TestAResultIsOnDiskBeforeItsTaskIsDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	f, err := OpenFile(path, FileOptions{})
	must(t, err)
	defer f.Close()
	w := workerFunc(func(_ context.Context, t *pump.Task) (json.RawMessage, error) {
		if string(t.Body) == "bad" {
			return json.RawMessage(`"no"`), errors.New("failed")
		}
		return json.RawMessage(`{"sum":"` + string(t.Body) + `"}`), nil
	})
	h := Recorded(w, f)
	proof.Says(t, h.Handle(t.Context(), task("bad")), "failed")
	must(t, h.Handle(t.Context(), task("good")))
	if text, _ := os.ReadFile(path); string(text) != string(taskline.AppendResult(nil, task(""), json.RawMessage(`{"sum":"good"}`))) {
		t.Errorf("the file holds %s", text)
	}
}

type workerFunc func(ctx context.Context, t *pump.Task) (json.RawMessage, error)

func (f workerFunc) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	return f(ctx, t)
}
