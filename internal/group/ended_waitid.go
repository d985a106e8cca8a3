//go:build linux || (darwin && !ios)

package group

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// ended waits until the child has ended, without reaping it; false: that cannot be told.
func ended(p *os.Process) bool {
	const byPid, exited, unreaped = 1, 4, 0x1000000 // P_PID, WEXITED, WNOWAIT of Linux
	options := exited | unreaped
	if runtime.GOOS == "darwin" {
		options = 4 | 0x20
	}
	var info [16]uint64 // as large as any siginfo_t
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(p.Pid),
			uintptr(unsafe.Pointer(&info[0])), uintptr(options), 0, 0)
		if err != syscall.EINTR {
			return err == 0
		}
	}
}
