package ledger

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

const mutantsText = `Fights of one seed after the other are played until one breaks a promise; ` + "`make verify`" + ` fails if
300 do not.
`

// TestMutantsAreFound is the proof of the proof: with each listed mistake, the fight of some seed
// breaks a promise.
func TestMutantsAreFound(t *testing.T) {
	proof.Find(t, proof.Hunt{
		Title: "The ledger", Text: mutantsText, Seeds: 300,
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
