//go:build linux || darwin

package doctor

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeDisk is what an unprivileged process may still write to the file system of a folder.
func freeDisk(folder string) (free, size uint64, err error) {
	if _, err := os.Stat(folder); err != nil {
		return 0, 0, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
