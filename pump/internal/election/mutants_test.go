package election

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

const mutantsHead = `# Mutants that the tests of the election must find

Made by ` + "`make mutants`" + `. Each of these mistakes ([the list](testdata/mutants.txt)) is built in, and a
test must fail. Those that histories of a whole cluster find are [beside it](../cluster/MUTANTS.md).
`

// TestMutantsAreFound is the proof of the proof: with each listed mistake, a test fails.
func TestMutantsAreFound(t *testing.T) { mutants.Find(t, mutants.Hunt{Head: mutantsHead}) }
