package proof

import (
	"runtime/metrics"
	"testing"
)

// slack is what other goroutines of a test process and the rounding of small
// allocations may add to a measurement.
const slack = 1 << 20

// AtMost fails the test if f allocates more than most bytes, in all and not at
// one time, by more than about 1 MiB. Nothing else that allocates may run meanwhile.
func AtMost(t testing.TB, most int, f func()) {
	t.Helper()
	before := allocated()
	f()
	if got := allocated() - before; got > uint64(most)+slack {
		t.Fatalf("%d bytes were allocated, %d should be enough", got, most)
	}
}

// allocated is how much the process has ever allocated. Unlike
// runtime.ReadMemStats it does not stop the world, which a fuzz test would feel.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
