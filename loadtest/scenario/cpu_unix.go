//go:build unix

package scenario

import (
	"syscall"
	"time"
)

// processorTime is the processor time that this process has used so far, in
// seconds; nil if that cannot be learned.
func processorTime() *float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return nil
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return new(used.Seconds())
}
