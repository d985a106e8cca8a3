package proof

import "testing"

// Only skips t under -short, which `make test` and `make test-race` set. The race detector makes
// a test ten times as slow, and smaller tests beside these run the same code under it.
func Only(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("costs seconds of a core; make verify runs it")
	}
}

// Less reports whether t is to run fewer cases than it could: under -short; make verify runs all of
// them. The remaining cases show the same.
func Less(t testing.TB) bool {
	t.Helper()
	return testing.Short()
}
