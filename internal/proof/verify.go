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

// Less reports that t is to do less than all of what it can: under -short, and make verify runs all
// of it. What is left shows the same of fewer cases.
func Less(t testing.TB) bool {
	t.Helper()
	return testing.Short()
}
