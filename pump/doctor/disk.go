package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// leastFree is four times what a processor holds of messages and tasks: less would be full before
	// you have looked.
	leastFree = 256 << 20
	// goodFree is eight times that, some million lines of 2 KiB. Of a small disk a tenth will do.
	goodFree = 8 * leastFree
)

// disk looks whether the file system of a path has room.
func (c *checkup) disk(path string) {
	if s, err := os.Stat(path); err == nil && !s.Mode().IsRegular() && !s.IsDir() {
		return // a device or a pipe
	}
	folder := filepath.Dir(path)
	free, size, err := c.o.FreeDisk(folder)
	mend := "df -h " + folder
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case errors.Is(err, os.ErrNotExist):
		c.find(CheckDisk, Error, path, "mkdir -p "+folder, "the folder %s is not there", folder)
	case err != nil:
		c.find(CheckDisk, Warning, path, mend, "the room of %s cannot be learned: %v", folder, err)
	case free < leastFree:
		c.find(CheckDisk, Error, path, mend,
			"the disk of %s has %s left; a full one stops the processor", folder, room(free))
	case free < goodFree && free < size/10:
		c.find(CheckDisk, Warning, path, mend, "the disk of %s has %s left of %s", folder,
			room(free), room(size))
	}
}

func room(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
