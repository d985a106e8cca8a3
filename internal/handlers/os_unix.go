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

// hasName reports whether a file has a name still: what is written to one without is gone with it.
func hasName(f *os.File) bool {
	var s syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &s) != nil || s.Nlink > 0
}
