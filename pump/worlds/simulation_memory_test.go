package worlds

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"github.com/queuepump/queuepump/pump/internal/ledger"
)

// simBytesPerRun is what the sums of all live runs may take for each of them: a map that grows
// takes some 150. 16 bytes of each segment for each run are 1 KiB at 64 segments and 64 KiB at
// 4,096.
const simBytesPerRun = 400

// profiling is held while all allocations of the process are sampled.
var profiling sync.Mutex

// sumsAreSmall judges, in worlds of many runs, what the sums of all live runs take in memory (A2).
// Processors, status and wait read them. A simulated process has no memory of its own, so the judge
// reads them itself and asks the profile of the heap what the functions that add up have allocated.
func (w *simWorld) sumsAreSmall(ctx context.Context) {
	if w.plan.runs == 0 {
		return
	}
	profiling.Lock()
	defer profiling.Unlock()
	before := addingUpTook()
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	sums, err := ledger.ReadSums(ctx, w.openTable(), "work", w.plan.segments)
	runtime.MemProfileRate = rate
	if err != nil {
		return // another judge tells
	}
	if took, n := addingUpTook()-before, len(sums.Runs); took > int64(n+5)*simBytesPerRun {
		w.wrongf("the sums of %d live runs in %d segments took %d bytes to add up", n, w.plan.segments, took)
	}
}

// addingUpTook is how many bytes ledger.ReadSums itself has allocated for this judge, in all
// worlds.
func addingUpTook() (bytes int64) {
	runtime.GC() // the profile is of the last but one
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 4096)
	n, ok := runtime.MemProfile(records, true)
	for ; !ok; n, ok = runtime.MemProfile(records, true) {
		records = make([]runtime.MemProfileRecord, 2*n)
	}
	for _, r := range records[:n] {
		if r.AllocBytes > 0 && addsUp(r.Stack()) {
			bytes += r.AllocBytes
		}
	}
	return bytes
}

// addsUp reports whether what was allocated is ReadSums' own, and this judge had called it.
func addsUp(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	own := false
	for {
		f, more := frames.Next()
		switch {
		case strings.Contains(f.Function, "ledger.ReadSums"):
			own = true
		case own && strings.Contains(f.Function, "sumsAreSmall"):
			return true
		case !own && !strings.HasPrefix(f.Function, "runtime.") &&
			!strings.HasPrefix(f.Function, "internal/runtime/"):
			return false
		}
		if !more {
			return false
		}
	}
}
