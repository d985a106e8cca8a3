package bench

import (
	"runtime"
	"syscall"
	"time"
)

// Usage is what a piece of work took of the process that did it.
type Usage struct {
	// user and system, of all threads, the garbage collector's too
	CPUSeconds float64 `json:"cpuSeconds"`
	Seconds    float64 `json:"seconds"` // by the clock
	// SimulatorSeconds is the CPU time of a simulator in the same process, which CPUSeconds leaves
	// out.
	SimulatorSeconds float64 `json:"simulatorSeconds,omitempty"`
	// Allocs and AllocBytes are 0 where they are not known: of the binaries.
	Allocs     uint64 `json:"allocs"`
	AllocBytes uint64 `json:"allocBytes"`
	PeakBytes  int64  `json:"peakBytes"` // the most that the process has had resident so far
}

// metered does the work and says what it took. Nothing else may be at work in
// the process. Garbage of before is collected first, so that it is not
// this work that pays for it.
func metered(work func() error) (Usage, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, began := processCPU(), time.Now()
	err := work()
	u := Usage{CPUSeconds: processCPU() - cpu, Seconds: time.Since(began).Seconds()}
	runtime.ReadMemStats(&after)
	u.PeakBytes = peakMemory()
	u.Allocs, u.AllocBytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return u, err
}

// processCPU is the CPU time that this process has taken so far, in seconds.
func processCPU() float64 {
	u := usageOf(syscall.RUSAGE_SELF)
	return inSeconds(u.Utime) + inSeconds(u.Stime)
}

// peakMemory is the most memory that this process has had resident, in bytes.
func peakMemory() int64 { return peakBytes(usageOf(syscall.RUSAGE_SELF)) }

func usageOf(who int) (u syscall.Rusage) {
	_ = syscall.Getrusage(who, &u) // fails only for a who that does not exist
	return u
}

func inSeconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// peakBytes is ru_maxrss in bytes: Linux counts KiB, macOS bytes.
func peakBytes(u syscall.Rusage) int64 {
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}
