package proof

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
)

// tester is a *testing.T, *testing.B, *testing.F or *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
}

// Must ends the test with an error.
func Must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ErrOf is the error of a call whose result a test does not need.
func ErrOf[T any](_ T, err error) error { return err }

// Is reports an error that is not the one that is wanted; of says of what.
func Is(t tester, err, want error, of ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v: got %v, want %v", of, err, want)
	}
}

// Says reports an error that does not say some words, and that there is none; of says of what.
func Says(t tester, err error, words string, of ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%v: got %v, want it to say %q", of, err, words)
	}
}

// Same reports what is not as it is wanted; of says of what.
func Same[T comparable](t tester, got, want T, of ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%v: got %v, want %v", of, got, want)
	}
}

// Alike is Same for lists.
func Alike[T comparable](t tester, got, want []T, of ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%v: got %v, want %v", of, got, want)
	}
}

// Has reports a text that has some words not in it; of says of what.
func Has(t tester, text, words string, of ...any) {
	t.Helper()
	if !strings.Contains(text, words) {
		t.Errorf("%v: %q is not in\n%s", of, words, text)
	}
}

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
