package doctor

import (
	"os"

	"golang.org/x/sys/windows"
)

// freeDisk is what this user may still write to the volume of a folder.
func freeDisk(folder string) (free, size uint64, err error) {
	if _, err := os.Stat(folder); err != nil {
		return 0, 0, err
	}
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return 0, 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, &size, nil)
	return free, size, err
}
