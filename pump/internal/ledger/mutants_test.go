package ledger

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

const mutantsHead = `# Mutants that the tests of the ledger must find

Made by ` + "`make mutants`" + `. Each of these mistakes ([the list](testdata/mutants.txt)) is built in, and
fights of one seed after the other are played until one breaks a promise; ` + "`make test`" + ` fails if 300
do not. Those of the whole pump are [beside the worlds](../../worlds/MUTANTS.md).
`

// TestMutantsAreFound is the proof of the proof: with each listed mistake, the fight of some seed
// breaks a promise.
func TestMutantsAreFound(t *testing.T) {
	mutants.Find(t, mutants.Hunt{
		Head: mutantsHead, Seeds: 300,
		Ways: map[string]func(*testing.T, uint64) string{
			"fights": func(t *testing.T, seed uint64) string {
				if wrong, _ := fightOf(t, seed); len(wrong) > 0 {
					return wrong[0]
				}
				return ""
			},
		},
	})
}
