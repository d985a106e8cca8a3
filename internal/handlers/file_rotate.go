package handlers

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

var (
	errNoReader = errors.New("it is a pipe that no process reads")
	errGone     = errors.New("it is a file no more")
)

// openOut opens or creates the file at a path for appending. A regular file is locked and its end
// repaired. For anything else there is no info. A pipe is opened for writing only, or this process
// would be a reader of it and never learn that the last one has gone. Opening it does not wait for
// a reader.
func openOut(path string) (f *os.File, info os.FileInfo, size int64, err error) {
	was, statErr := os.Stat(path)
	how := os.O_RDWR | os.O_CREATE
	if statErr == nil {
		switch was.Mode().Type() {
		case 0:
		case os.ModeDir:
			return nil, nil, 0, errors.New("is a directory")
		case os.ModeSocket:
			return nil, nil, 0, errors.New("is a socket; name a file or a pipe, or use `| cat`")
		default:
			how = os.O_WRONLY | syscall.O_NONBLOCK
		}
	}
	f, err = os.OpenFile(path, how|os.O_APPEND, 0o644)
	switch {
	case errors.Is(err, syscall.ENXIO) && statErr == nil && was.Mode().Type() == os.ModeNamedPipe:
		if IsStdout(was) { // no other can come
			return nil, nil, 0, syscall.EPIPE
		}
		return nil, nil, 0, errNoReader
	case err != nil:
		return nil, nil, 0, err
	}
	info, err = f.Stat()
	if err == nil && (how&os.O_CREATE != 0) != info.Mode().IsRegular() {
		err = errors.New("it became another kind of file while it was opened")
	}
	if err == nil && info.Mode().IsRegular() {
		size, err = prepare(f, path, errors.Is(statErr, os.ErrNotExist))
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, 0, err
	}
	if !info.Mode().IsRegular() {
		info = nil
	}
	return f, info, size, nil
}

// prepare locks a regular file against other processes, repairs its end and gives its length.
func prepare(f *os.File, path string, made bool) (size int64, err error) {
	if err := lock(f); err != nil {
		return 0, err
	}
	size, err = mend(f)
	if err == nil && made {
		err = syncDir(filepath.Dir(path)) // otherwise a power cut could remove the file itself
	}
	return size, err
}

// IsStdout reports whether a file is this process's standard output.
func IsStdout(file os.FileInfo) bool {
	own, err := os.Stdout.Stat()
	return err == nil && os.SameFile(own, file)
}

// open opens the file at the path for the first time.
func (f *File) open() error {
	return f.call("opening it", func() error {
		out, info, size, err := openOut(f.path)
		if err == nil {
			f.f, f.info, f.size, f.regular = out, info, size, info != nil
		}
		return err
	})
}

// Reopen looks at once whether the path names another file now; otherwise the next lines look.
func (f *File) Reopen() {
	f.reopen.Store(true)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// follow goes on in the file that the path names, which is a new one after a rotation. The old file
// holds whole lines, on disk: a commit is never divided between two files.
func (f *File) follow() error {
	switch {
	case f.f == nil:
		return f.open()
	case f.info == nil:
		return nil // no regular file
	}
	var now os.FileInfo
	err := f.call("a look at its name", func() (err error) {
		now, err = os.Stat(f.path)
		return err
	})
	switch {
	case err == nil && os.SameFile(f.info, now):
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case err == nil && !now.Mode().IsRegular():
		return errGone
	}
	if err := f.repair(); err != nil {
		return err
	}
	before := f.f
	if err := f.open(); err != nil {
		return err
	}
	if f.info == nil { // between the two looks
		_ = f.f.Close()
		f.f = nil
		return errGone
	}
	_ = f.call("closing it", before.Close) // all of it is on disk
	f.opts.Log.Info("lines go on in another file of that name", "file", f.path)
	return nil
}

// kept reports whether what was written stays: the file has a name. A file that was deleted between
// the look at its name and the write has none.
func (f *File) kept() bool {
	file, is := f.f.(*os.File)
	return !is || f.info == nil || hasName(file)
}
