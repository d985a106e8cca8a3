package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// FileOptions of a [File].
type FileOptions struct {
	// Patience is how long a failing write is tried again before the file
	// reports itself as broken and gives back the tasks that wait. Default 30 s.
	Patience time.Duration
	// Broken is called once with the reason, see the package comment. Without it
	// writing is tried for ever.
	Broken func(error)
	// Stopping is closed when the process stops: then nothing waits for an opening that hangs.
	Stopping <-chan struct{}
	Log      *slog.Logger
}

// File is a file of JSON Lines, one a task. It holds whole lines at all times, except while a write
// is under way. As a handler it writes each task and lets it be settled when the line is on disk.
//
// All lines that wait go out in one write and one fsync (group commit): an fsync takes 1 to 20 ms,
// so with one a task a disk would bound the processor at some hundred tasks a second; with one for
// all that came meanwhile, the rate grows with the number of tasks in handlers. The waiting lines
// are bounded (commitMost): a disk that is slower than the tasks come holds the handlers up, not
// the memory.
//
// A write or fsync that fails is undone by truncating to the last good length, then tried again
// with the same lines. After a failed fsync the lines must be written again: the kernel has dropped
// the pages, and a second fsync alone would report a success although the lines are lost.
//
// When the path names another file, or none, the lines go on in a file at the path: that is how
// logs are rotated.
//
// Only the committer uses the file. A call that does not return, because of a frozen disk or a pipe
// that is not read, holds up the committer and nothing else: see the method call.
type File struct {
	path    string
	f       sink // only for the committer, like regular, info, size, torn; nil: a pipe unread yet
	regular bool
	opts    FileOptions
	retry   time.Duration // pause between failing writes

	// buffers are where handlers write their lines before a commit takes them. There are as many as
	// CPUs, because more handlers at once do not get more done.
	buffers chan []byte

	mu    sync.Mutex // guards next, spare and trouble
	next  *commit
	spare []byte // the lines of a commit that is on disk, for those of a later one
	trouble
	wake   chan struct{} // holds a token if next may have lines
	stop   chan struct{}
	opened chan error    // whether the file was opened at first
	done   chan struct{} // closed when the committer has ended
	closed error         // how closing the file went; valid once done is closed
	// broken is closed when nothing more will be written, after Patience.
	broken chan struct{}

	reopen atomic.Bool // an operator asked to look at what the path names

	info os.FileInfo // of a regular file that may be rotated
	size int64       // length up to the last whole line on disk
	torn bool        // there may be a part of a line behind size
}

// sink is what a File needs of an *os.File; tests put a failing disk in its place.
type sink interface {
	Write(b []byte) (int, error)
	ReadAt(b []byte, at int64) (int, error)
	Stat() (os.FileInfo, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// commit is the lines that go out together.
type commit struct {
	lines   []byte
	waiting int           // how many callers still want to know; guarded by File.mu
	taken   chan struct{} // closed when the commit gets no more lines
	written chan struct{} // closed when the lines are on disk
}

// OpenFile opens or creates the file for appending. It cuts off the rest of a last line that a
// crash left: its task was not settled and comes again. A second process cannot open it meanwhile,
// because undoing a failed write would cut off the other's lines.
//
// A named pipe that no process reads yet is allowed: its lines wait for a reader.
func OpenFile(path string, o FileOptions) (*File, error) {
	out := makeFile(path, nil, 0, false, o)
	out.start()
	var err error
	select {
	case err = <-out.opened:
	case <-out.broken:
		err = fmt.Errorf("opening it has hung for %v", out.opts.Patience)
	case <-o.Stopping:
		err = errors.New("the process stops before it is open")
	}
	if err != nil {
		close(out.stop)
		if err = fmt.Errorf("--out %s: %w", path, cause(err)); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; make its folder: mkdir -p %s", err, filepath.Dir(path))
		}
		return nil, err
	}
	return out, nil
}

func (f *File) start() {
	go f.run()
	go f.watch()
}

func makeFile(path string, f sink, size int64, regular bool, o FileOptions) *File {
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	out := &File{
		path: path, f: f, size: size, regular: regular, opts: o, retry: time.Second,
		next: newCommit(nil), wake: make(chan struct{}, 1), stop: make(chan struct{}),
		opened: make(chan error, 1), done: make(chan struct{}), broken: make(chan struct{}),
		buffers: make(chan []byte, runtime.GOMAXPROCS(0)),
	}
	for range cap(out.buffers) {
		out.buffers <- nil
	}
	return out
}

// newCommit makes a commit whose lines use the memory of buffer.
func newCommit(buffer []byte) *commit {
	return &commit{lines: buffer[:0], taken: make(chan struct{}), written: make(chan struct{})}
}

// commitMost is the number of bytes of lines at which a commit gets no more. Two commits are in
// memory, the one that is written and the next one; a disk that takes 10 ms for one takes 400 MB a
// second.
const commitMost = 4 << 20

// linesKept is the largest memory for lines that is reused: a commit grows to what an envelope
// holds, mostly up to a few hundred KiB.
const linesKept = 2 * commitMost

// Handle writes one task; see [pump.Handler].
func (f *File) Handle(ctx context.Context, t *pump.Task) error {
	return f.put(ctx, func(lines []byte) []byte { return appendTask(lines, t) })
}

// HandleBatch writes all tasks of an envelope together; see [pump.BatchHandler].
func (f *File) HandleBatch(ctx context.Context, tasks []*pump.Task) []error {
	err := f.put(ctx, func(lines []byte) []byte {
		for _, t := range tasks {
			lines = appendTask(lines, t)
		}
		return lines
	})
	if err == nil {
		return nil
	}
	errs := make([]error, len(tasks))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// put writes lines, made in reused memory, and waits until they are on disk.
func (f *File) put(ctx context.Context, write func([]byte) []byte) error {
	b, err := wait(ctx, f, f.buffers)
	if err != nil {
		return err
	}
	lines := write(b[:0])
	c, err := f.add(ctx, lines)
	if cap(lines) > linesKept { // a rare large line made it large
		lines = nil
	}
	f.buffers <- lines
	if err != nil {
		return err
	}
	return f.await(ctx, c)
}

// append gives whole lines to the next commit and waits until they are on disk.
func (f *File) append(ctx context.Context, lines []byte) error {
	c, err := f.add(ctx, lines)
	if err != nil {
		return err
	}
	return f.await(ctx, c)
}

// add copies whole lines into the next commit, once that has room.
func (f *File) add(ctx context.Context, lines []byte) (*commit, error) {
	for {
		c, added := f.tryAdd(lines)
		select {
		case f.wake <- struct{}{}:
		default:
		}
		if added {
			return c, nil
		}
		if _, err := wait(ctx, f, c.taken); err != nil {
			return nil, err
		}
	}
}

func (f *File) tryAdd(lines []byte) (c *commit, added bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c = f.next
	if len(c.lines) >= commitMost {
		return c, false
	}
	c.lines = append(c.lines, lines...)
	c.waiting++
	return c, true
}

// await waits until a commit is on disk. If the context ends first the commit may still be written:
// at worst its tasks are done twice.
func (f *File) await(ctx context.Context, c *commit) error {
	_, err := wait(ctx, f, c.written)
	if err == nil {
		return nil
	}
	f.mu.Lock()
	c.waiting--
	f.mu.Unlock()
	select {
	case <-c.written:
		return nil
	default:
		return err
	}
}

// wait takes what a channel gives, or says why it stopped waiting.
func wait[T any](ctx context.Context, f *File, from <-chan T) (got T, err error) {
	select {
	case got = <-from:
		return got, nil
	case <-f.broken: // nothing will be written any more
		return got, giveBack(ctx, errBrokenFile)
	case <-ctx.Done():
		return got, context.Cause(ctx)
	case <-f.done:
		return got, fmt.Errorf("%s is closed", f.path)
	}
}

var errBrokenFile = errors.New("--out cannot be written")

// Close writes what waits, unless writing fails, and closes the file. It does not wait for a call
// that hangs: tasks whose lines that would have written were not settled.
func (f *File) Close() error {
	close(f.stop)
	select {
	case <-f.done:
		return f.closed
	case <-time.After(endPatience):
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("--out %s is not waited for: %s has not returned", f.path, f.does)
	}
}

func (f *File) run() {
	defer close(f.done)
	if f.f == nil {
		err := f.open()
		if errors.Is(err, errNoReader) {
			f.fails(err)
			err = nil
		}
		if f.opened <- err; err != nil {
			return
		}
	}
	for f.turn() {
	}
	if f.f != nil {
		f.closed = f.timed("closing it", f.f.Close)
	}
}

// turn waits for lines and brings them to disk. It reports false when the file is to be closed.
func (f *File) turn() (more bool) {
	var retry <-chan time.Time
	if f.f == nil { // open it, so that a reader that comes finds a writer
		retry = time.After(f.retry)
	}
	select {
	case <-f.wake:
		if !f.flush() {
			<-f.stop
			return false
		}
	case <-retry:
		if f.open() == nil {
			f.works()
		}
	case <-f.stop:
		f.flush()
		return false
	}
	return true
}

// flush brings the next commit to disk, trying until it works, no task waits
// for it any more, or the file is closed. It reports false if it gave the file up.
func (f *File) flush() (usable bool) {
	if f.reopen.Swap(false) {
		if err := f.follow(); err != nil { // the next lines try it again, and wait for it
			f.opts.Log.Error("the file cannot be opened again", "file", f.path, "error", cause(err))
		}
	}
	f.mu.Lock()
	c := f.next
	if len(c.lines) == 0 {
		f.mu.Unlock()
		return true
	}
	f.next = newCommit(f.spare)
	f.spare = nil
	f.mu.Unlock()
	close(c.taken)
	var since time.Time
	for {
		err := f.write(c.lines)
		if err == nil {
			f.works()
			close(c.written)
			f.reuse(c.lines)
			return true
		}
		if since.IsZero() {
			since = time.Now()
		}
		f.fails(err)
		if errors.Is(err, syscall.EPIPE) || time.Since(since) >= f.opts.Patience {
			f.giveUp()
		}
		select {
		case <-f.broken:
			return false
		case <-time.After(f.retry):
		case <-f.stop:
			return true
		}
		f.mu.Lock()
		waiting := c.waiting
		f.mu.Unlock()
		if waiting == 0 {
			return true
		}
	}
}

// reuse keeps the memory of lines that are on disk.
func (f *File) reuse(lines []byte) {
	if cap(lines) > linesKept {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spare = lines
}

// piece is how much is written at once to a pipe or device. A reader that takes a piece within
// Patience is slow, but has not gone.
const piece = 4 << 10

// write writes and syncs whole lines, or leaves the file as it was. Bytes that
// could not be cut off at once are cut off before the next write.
func (f *File) write(lines []byte) error {
	if err := f.follow(); err != nil {
		return err
	}
	if err := f.repair(); err != nil {
		return err
	}
	f.torn = true
	most := piece
	if f.regular {
		most = max(len(lines), 1)
	}
	for part := range slices.Chunk(lines, most) {
		err := f.call("a write", func() error {
			_, err := f.f.Write(part)
			return err
		})
		if err != nil {
			_ = f.repair()
			return err
		}
	}
	if f.regular {
		if err := f.call("an fsync", f.f.Sync); err != nil {
			_ = f.repair()
			return err
		}
	}
	f.torn = false
	f.size += int64(len(lines))
	if !f.kept() {
		return errDeleted
	}
	return nil
}

var errDeleted = errors.New("it was deleted while it was written")

// cause is the error without the path.
func cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
