package handlers

import (
	"os"
	"syscall"
)

// lock does nothing on Windows: give each processor a file of its own.
func lock(*os.File) error { return nil }

// syncDir has nothing to do: a directory cannot be synced on Windows.
func syncDir(string) error { return nil }

// hasName: a file that is open cannot be deleted on Windows.
func hasName(*os.File) bool { return true }

// readSome waits until a pipe can be read, and takes what it holds. It reports false at its end.
func (s *said) readSome(f *os.File, _ syscall.RawConn) (more bool) {
	b := make([]byte, logLine)
	n, err := f.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(b[:n])
	return err == nil
}

// empty has nothing to do: a pipe cannot be read without waiting on Windows.
func (s *said) empty(syscall.RawConn) {}
