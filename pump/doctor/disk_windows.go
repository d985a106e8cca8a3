package doctor

import (
	"os"
	"syscall"
	"unsafe"
)

var getDiskFreeSpaceEx = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDiskFreeSpaceExW")

// freeDisk is what this user may still write to the volume of a folder.
func freeDisk(folder string) (free, size uint64, err error) {
	if _, err := os.Stat(folder); err != nil {
		return 0, 0, err
	}
	name, err := syscall.UTF16PtrFromString(folder)
	if err != nil {
		return 0, 0, err
	}
	done, _, err := getDiskFreeSpaceEx.Call(uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&size)), 0)
	if done == 0 {
		return 0, 0, err
	}
	return free, size, nil
}
