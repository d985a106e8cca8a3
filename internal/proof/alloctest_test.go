package proof

import (
	"fmt"
	"testing"
)

// failing notes a failure instead of failing.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()                   {}
func (f *failing) Fatalf(s string, a ...any) { f.said = fmt.Sprintf(s, a...) }

var sink []byte

func TestWhatAllocatesTooMuchIsFound(t *testing.T) {
	for _, tt := range []struct {
		bytes, most int
		fails       bool
	}{{1 << 10, 1 << 10, false}, {8 << 20, 1 << 20, true}, {8 << 20, 8 << 20, false}} {
		f := &failing{TB: t}
		AtMost(f, tt.most, func() { sink = make([]byte, tt.bytes) })
		Same(t, f.said != "", tt.fails, tt.bytes, "bytes of", tt.most, f.said)
	}
}
