package handlers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/internal/group"
)

// maxAnswer bounds one line that a child prints, or the whole answer of a process or an endpoint:
// results belong in a store, not in a line.
const maxAnswer = 1 << 20

// endPatience is how long a process that was told to end may take before it is killed.
const endPatience = 2 * time.Second

// running holds the *group.Group of every child of this process.
var running sync.Map

// KillChildren kills all children with their process groups at once, for a
// process that is about to end without closing its handlers.
func KillChildren() {
	running.Range(func(p, _ any) bool {
		p.(*group.Group).Kill()
		return true
	})
}

// child is one running child process of a pool, used by one goroutine at a time.
type child struct {
	group  *group.Group
	in     *os.File // we write
	out    *os.File // we read
	answer *bufio.Reader
	stderr *said
	seq    uint64 // of the task it was given last
	calls  int    // how often it was given tasks
	buf    []byte

	ended  chan struct{} // closed when the process has been waited for
	status error         // of the process; valid once ended is closed
	exited chan struct{} // closed when its errors have been read as well
	ending sync.Once
}

// startChild starts a child. Its pipes are made here rather than by os/exec,
// because these have deadlines: a child that neither reads nor writes must
// not hold a goroutine.
func startChild(argv, env []string, stderr *stderrLog) (*child, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	group.Own(cmd)

	var all []*os.File
	pipe := func() (r, w *os.File, err error) {
		r, w, err = os.Pipe()
		if err == nil {
			all = append(all, r, w)
		}
		return r, w, err
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	err := cmp.Or(err1, err2, err3) // they say the same
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
		err = startTied(cmd)
	}
	if err != nil {
		for _, f := range all {
			_ = f.Close()
		}
		return nil, err
	}
	for _, f := range []*os.File{inR, outW, errW} {
		_ = f.Close()
	}

	c := &child{
		group: group.New(cmd), in: inW, out: outR, stderr: newSaid(stderr), ended: make(chan struct{}),
		exited: make(chan struct{}), answer: bufio.NewReaderSize(outR, 64<<10),
	}
	running.Store(c.group, true)
	var logged sync.WaitGroup
	// Before the child's first task ends, when begin may empty it.
	c.stderr.pipe, _ = errR.SyscallConn()
	logged.Go(func() { c.stderr.read(errR) })
	go func() {
		c.status = c.group.Wait(true, cmd.Wait) // and processes that it left behind are killed
		running.Delete(c.group)
		close(c.ended)
		// Its last words explain its end; a grandchild that keeps the pipe must not hold us up.
		_ = errR.SetReadDeadline(time.Now().Add(endPatience))
		logged.Wait()
		_ = errR.Close()
		close(c.exited)
	}()
	return c, nil
}

// end ends the process: by the end of its input, if patience is given, then
// by SIGTERM, then by SIGKILL, the last two to its whole group. It returns
// when the process is gone.
func (c *child) end(patience time.Duration) {
	c.ending.Do(func() { c.stop(patience) })
}

func (c *child) stop(patience time.Duration) {
	_ = c.in.Close()
	defer c.out.Close()
	if patience > 0 {
		select {
		case <-c.exited:
		case <-time.After(patience):
		}
	}
	select {
	case <-c.exited:
	default:
		c.group.Terminate()
		select {
		case <-c.exited:
		case <-time.After(endPatience):
		}
	}
	c.group.Kill()
	<-c.exited
}

// alive reports whether the child can be given a task. A child that printed more than its answer,
// even the same line once more, is out of step: it is replaced without a log line. What it prints
// after this check fails the next task by its seq.
func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return c.answer.Buffered() == 0
	}
}

// ask sends the lines of tasks and reads those of their outcomes. Any error leaves the child
// unusable.
func (c *child) ask(
	ctx context.Context, request []byte, timeout time.Duration, o *outcomes,
) error {
	end := limit(ctx, time.Now().Add(timeout), func(at time.Time) {
		_ = c.in.SetWriteDeadline(at)
		_ = c.out.SetReadDeadline(at)
	})
	defer end()

	late := time.AfterFunc(overdue, func() {
		c.stderr.log.log.Warn("a child does not read its task", "pid", c.group.Pid(), "for", overdue)
	})
	past, written := time.Unix(1, 0), make(chan error, 1)
	write := func() {
		_, err := c.in.Write(request)
		late.Stop()
		if err != nil {
			_ = c.out.SetReadDeadline(past)
		}
		written <- err
	}
	if o.batch { // a child may print more than a pipe holds before it has read its last task
		go write()
	} else {
		write()
	}
	err := c.read(o)
	_ = c.in.SetWriteDeadline(past)
	// A child that has ended is met by the read or by the write, whichever is first.
	if wrote := <-written; err == nil || wrote != nil && !errors.Is(wrote, os.ErrDeadlineExceeded) {
		err = wrote
	}
	switch {
	case o.garbage != nil:
		return o.garbage
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return lateError(fmt.Sprintf("no outcome within %v", timeout))
	case errors.Is(err, errLineTooLong):
		return err
	default:
		silently := o.lines == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE))
		return c.whyEnded(silently)
	}
}

// read reads lines until they are enough.
func (c *child) read(o *outcomes) (err error) {
	for more := true; more && err == nil; {
		if c.buf, err = readLine(c.answer, c.buf[:0]); err == nil {
			more = o.take(c.buf)
		}
	}
	return err
}

// limit sets a deadline, and when ctx ends one that is past. Once end has returned it sets no
// deadline any more: the next deadline is another task's, which the end of this task's context must
// not fail.
func limit(ctx context.Context, deadline time.Time, set func(time.Time)) (end func()) {
	set(deadline)
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		set(time.Unix(1, 0))
	})
	return func() {
		if !stop() { // the deadline is being set
			<-done
		}
	}
}

// lateError says that the time for one task is over.
type lateError string

func (e lateError) Error() string { return string(e) }

// Timeout tells it from other errors, as those of package net do.
func (e lateError) Timeout() bool { return true }

// errRecycled says that a child ended by itself, with status 0, before it printed anything for a
// task that was not its first. Some programs do so after so many requests, to free what they leak.
// The task may go to the next child.
var errRecycled = errors.New("the child ended (exit status 0)")

// whyEnded describes a child whose pipes broke.
func (c *child) whyEnded(silently bool) error {
	select {
	case <-c.ended:
	case <-time.After(endPatience):
		return errors.New("the child closed its input or output")
	}
	if silently && c.status == nil && c.calls > 1 {
		return errRecycled
	}
	<-c.exited // soon after: otherwise its last words would not be known
	how := "exit status 0"
	if c.status != nil {
		how = c.status.Error()
	}
	if last := c.stderr.lastOne(); last != "" {
		return endedError{fmt.Errorf("the child ended (%s) and said %q", how, last)}
	}
	return endedError{fmt.Errorf("the child ended (%s)", how)}
}

// endedError says that a process has ended with its task.
type endedError struct{ error }

func (e endedError) Unwrap() error { return e.error }

// Ended marks it for the processor.
func (endedError) Ended() {}

var errLineTooLong = fmt.Errorf("the child printed a line of more than %d KiB", maxAnswer>>10)

// readLine appends a line, without its end, to dst.
func readLine(r *bufio.Reader, dst []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		dst = append(dst, part...)
		switch {
		case len(dst) > maxAnswer:
			return dst, errLineTooLong
		case err == nil:
			return dst[:len(dst)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(dst) > 0:
			return dst, io.ErrUnexpectedEOF
		default:
			return dst, err
		}
	}
}
