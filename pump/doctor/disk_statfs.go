//go:build linux || darwin

package doctor

import (
	"os"
	"syscall"
)

// freeDisk is what an unprivileged process may still write to the file system of a folder.
func freeDisk(folder string) (free, size uint64, err error) {
	if _, err := os.Stat(folder); err != nil {
		return 0, 0, err
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
