package proof

import (
	"bytes"
	"sync"
)

// ender is a *testing.T, *testing.B, *testing.F or *rapid.T.
type ender interface {
	Helper()
	Fatal(args ...any)
}

// Must ends the test with an error.
func Must(t ender, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ErrOf is the error of a call whose result a test does not need.
func ErrOf[T any](_ T, err error) error { return err }

// Buffer holds what was written to it. Several goroutines may write and read it at
// once. The zero value is empty and ready; it must not be copied.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps a copy of p. It never fails.
func (g *Buffer) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

// String is what was written so far.
func (g *Buffer) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}
