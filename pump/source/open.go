package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/queuepump/queuepump/internal/group"
)

// maxWindow bounds the memory that a zstd file may ask for: 128 MiB is what the
// zstd program itself accepts unless told otherwise.
const maxWindow = 128 << 20

// input is one open stream of text: a file, standard input or a command's output.
type input struct {
	name  string // as it stands in errors
	text  io.Reader
	file  *os.File // set if the text is the file itself, so that Seek works
	raw   *os.File // of a file with a size
	size  int64    // how much of it is read; below 0: all that comes
	limit *io.LimitedReader
	read  *counted // counts below the decompression, to compare with the file's size
	// decoder makes UTF-8 of text in another encoding; nil: it is UTF-8
	decoder func(io.Reader) io.Reader
	closes  []func() error
	ends    func(context.Context) error // at the end of the text: did it end well? May be nil
	live    *detached                   // set if a read may wait for ever
}

// counted counts what is read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// openFile opens a file, decompressing it if it begins like gzip or zstd, under any name, and reads
// no more than the file had when it was looked up. Pipes and devices are read without waiting in
// Read. The opening ends with ctx.
func openFile(ctx context.Context, of *fixedFile, log *slog.Logger) (*input, error) {
	in, err := await(ctx, log, of.name, of.open, func(in *input) { in.close() })
	if err != nil || in.text != nil {
		return in, err
	}
	in.detach(ctx, in.file)
	in.file = nil // Seek is not for it
	if err = in.decompress(); err != nil {
		err = in.judge(err)
		in.close()
		return nil, err
	}
	return in, nil
}

// open opens it. What may be silent has no text yet.
func (of *fixedFile) open() (*input, error) {
	open := os.Open
	if of.size >= 0 {
		open = openAtOnce
	}
	f, err := open(of.name)
	if err != nil {
		return nil, err
	}
	in := &input{name: of.name, size: of.size, file: f, closes: []func() error{f.Close}}
	st, err := f.Stat()
	switch {
	case err != nil:
	case of.size >= 0:
		in.limit = &io.LimitedReader{R: f, N: of.size}
		in.read = &counted{Reader: in.limit}
		in.raw = f
		if err = of.isHere(f); err == nil {
			err = in.decompress()
		}
	case st.IsDir():
		err = fmt.Errorf("%s is a directory", of.name)
	case st.Mode().IsRegular():
		in.read = &counted{Reader: f}
		err = in.decompress()
	}
	if err != nil {
		err = in.judge(err)
		in.close()
		return nil, err
	}
	return in, nil
}

// short is an error if the file ended before it should have.
func (in *input) short() error {
	if in.raw != nil && in.read.n < in.size {
		return fmt.Errorf("%w: %s has become shorter while it was read: it had %d "+
			"bytes, and ended after %d",
			ErrSourceChanged, in.name, in.size, in.read.n)
	}
	return nil
}

// judge tells apart a file that was cut off while it was read, which may have made it unreadable, a
// damaged file, and a machine that cannot read the file.
func (in *input) judge(err error) error {
	if err = judged(err); in.raw == nil || !OfSource(err) {
		return err
	}
	if st, e := in.raw.Stat(); e == nil && st.Size() < in.size {
		return fmt.Errorf("%w: it has become shorter while it was read, %d bytes of %d: %w",
			ErrSourceChanged, st.Size(), in.size, err)
	}
	return err
}

// grown reports whether the file reaches farther than it is read.
func (in *input) grown() bool {
	if in.raw == nil {
		return false
	}
	st, err := in.raw.Stat()
	return err == nil && st.Size() > in.size
}

// openStream reads an input that may be silent for a long time.
func openStream(ctx context.Context, name string, r io.Reader) (*input, error) {
	in := &input{name: name}
	in.detach(ctx, r)
	if err := in.decompress(); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// openCommand starts a program to read its output, and does not wait for that. A program that fails
// makes the end of its output an error.
func openCommand(ctx context.Context, argv, env []string, stderr io.Writer) (*input, error) {
	runs, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(runs, argv[0], argv[1:]...)
	// A grandchild that holds the output open must not hold up the end.
	cmd.WaitDelay = 2 * time.Second
	cmd.Stderr = stderr
	// A shell that is killed alone leaves its pipeline running, and with it our own
	// standard error open.
	group.Own(cmd)
	var all *group.Group
	started := make(chan struct{}) // all is set
	cmd.Cancel = func() error {
		<-started
		all.Kill()
		return nil
	}
	cmd.Env = env
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("command %q: %w", argv[0], err)
	}
	all = group.New(cmd)
	close(started)
	in := &input{name: "command"}
	exited := make(chan struct{})
	var status error // valid when exited is closed
	wait := sync.OnceFunc(func() {
		go func() {
			status = all.Wait(false, cmd.Wait)
			close(exited)
		}()
	})
	in.closes = append(in.closes, func() error {
		cancel()
		wait()
		<-exited // killed, so this is soon; how it ended says nothing then
		return nil
	})
	in.detach(ctx, out)
	in.ends = func(ctx context.Context) error {
		wait() // only now: Wait closes the pipe, even if it is not empty
		select {
		case <-exited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if status != nil {
			// Its arguments may hold a secret, and the error goes into the run's row.
			return fmt.Errorf("command %q: %w", argv[0], status)
		}
		return nil
	}
	return in, nil
}

func (in *input) detach(ctx context.Context, r io.Reader) {
	in.live = newDetached(ctx, r)
	in.read = &counted{Reader: in.live}
	in.closes = append(in.closes, func() error { close(in.live.quit); return nil })
}

// Magic numbers. A zstd stream may begin with a skippable frame, as those of
// parallel compressors do; its first byte is 0x50 to 0x5f.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	zstdSkip  = []byte{0x2a, 0x4d, 0x18}
)

// decompress looks at the first bytes and sets in.text.
func (in *input) decompress() error {
	buffered := bufio.NewReaderSize(in.read, 64<<10)
	head, err := buffered.Peek(1)
	if len(head) == 1 && (head[0] == gzipMagic[0] || head[0] == zstdMagic[0] || head[0]&0xf0 == 0x50) {
		// Only now: the first line of a silent pipe may be shorter than the magic.
		head, err = buffered.Peek(4)
	}
	if err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	in.text = buffered
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		in.text = z
	case bytes.HasPrefix(head, zstdMagic),
		len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], zstdSkip):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		in.closes = append(in.closes, func() error { z.Close(); return nil })
		in.text = z
	default:
		return nil
	}
	in.file = nil // its offsets are not the text's
	return nil
}

// seek continues reading at pos of an uncompressed file.
func (in *input) seek(pos int64) error {
	if _, err := in.file.Seek(pos, io.SeekStart); err != nil {
		return err
	}
	in.read.n = pos
	if in.limit != nil {
		in.limit.N = in.size - pos
	}
	in.text = in.read
	if in.decoder != nil {
		in.text = in.decoder(in.read)
	}
	return nil
}

func (in *input) close() error {
	var errs []error
	for _, closeOne := range slices.Backward(in.closes) {
		errs = append(errs, closeOne())
	}
	in.closes = nil
	return errors.Join(errs...)
}

// detached reads in a goroutine of its own what may be silent for ever (a terminal, a pipe, a
// program), so that the reading can be given up: a read of these does not end with a context. After
// that the goroutine stays behind until its read returns; it holds two buffers and nothing waits
// for it.
type detached struct {
	ctx    context.Context       // of the call to Next that is reading
	about  func(wait bool) error // see pausing; nil: the reader does not ask
	full   chan []byte
	empty  chan []byte
	quit   chan struct{}
	err    error // set before full is closed
	rest   []byte
	buffer []byte // that rest is of
}

func newDetached(ctx context.Context, r io.Reader) *detached {
	d := &detached{
		ctx: ctx, full: make(chan []byte), empty: make(chan []byte, 2), quit: make(chan struct{}),
	}
	d.empty <- make([]byte, 64<<10)
	d.empty <- make([]byte, 64<<10)
	go func() {
		defer close(d.full)
		for {
			var b []byte
			select {
			case b = <-d.empty:
			case <-d.quit:
				return
			}
			n, err := r.Read(b)
			if n > 0 {
				select {
				case d.full <- b[:n]:
				case <-d.quit:
					return
				}
			} else {
				d.empty <- b
			}
			if err != nil {
				d.err = err
				return
			}
		}
	}()
	return d
}

// stillWaits is how often the reader says that it waits.
const stillWaits = 250 * time.Millisecond

func (d *detached) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.buffer != nil {
			d.empty <- d.buffer[:cap(d.buffer)]
			d.buffer = nil
		}
		if d.about != nil {
			if err := d.about(true); err != nil {
				return 0, err
			}
		}
		select {
		case b, ok := <-d.full:
			if !ok {
				return 0, d.err
			}
			d.rest, d.buffer = b, b
		case <-d.ctx.Done():
			return 0, context.Cause(d.ctx)
		case <-time.After(stillWaits):
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}
