package source

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

const mutantsHead = `# Mutants that the tests of sources must find

Made by ` + "`make mutants`" + `. Each of these mistakes ([the list](testdata/mutants.txt)) is built in, and a
test must fail. Those of the whole pump are [beside the worlds](../worlds/MUTANTS.md).
`

// TestMutantsAreFound is the proof of those tests: with each listed mistake one fails.
func TestMutantsAreFound(t *testing.T) {
	mutants.Find(t, mutants.Hunt{Head: mutantsHead})
}
