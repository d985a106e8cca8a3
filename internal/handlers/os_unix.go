//go:build unix

package handlers

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps other processes from writing to the file.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("is being written by another process; give each processor a file of its own")
	}
	if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOLCK) {
		return nil // a file system without locks
	}
	return err
}

// syncDir makes a new file's name survive a power cut.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// hasName reports whether a file still has a name: what is written to a file without one is lost.
func hasName(f *os.File) bool {
	var s syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &s) != nil || s.Nlink > 0
}

// readSome waits until a pipe can be read, and takes what it holds. It reports false at its end.
func (s *said) readSome(_ *os.File, pipe syscall.RawConn) (more bool) {
	err := pipe.Read(func(fd uintptr) (done bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		more = s.take(fd)
		return !more || !s.waits
	})
	return more && err == nil
}

// empty takes what a pipe holds, without waiting. It is called with mu held.
func (s *said) empty(pipe syscall.RawConn) {
	_ = pipe.Control(func(fd uintptr) { s.take(fd) })
}

// take takes at most what a pipe may hold.
func (s *said) take(fd uintptr) (more bool) {
	s.waits = false
	for range (64 << 10) / logLine {
		n, err := syscall.Read(int(fd), s.buf[:])
		switch {
		case n > 0:
			s.add(s.buf[:n])
		case err == syscall.EAGAIN:
			s.waits = true
			return true
		case err != syscall.EINTR:
			return false
		}
	}
	return true
}
