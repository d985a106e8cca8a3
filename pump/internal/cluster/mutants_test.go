package cluster

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

const mutantsText = `Histories of one seed after the other are played until one breaks a promise; ` + "`make verify`" + ` fails if
300 do not.
`

// TestMutantsAreFound is the proof of the proof: with each listed mistake, a script of testdata or
// the history of some seed breaks a promise.
func TestMutantsAreFound(t *testing.T) {
	play := func(t *testing.T, s *clusterScript) string {
		if w := playCluster(t, s); len(w.wrong) > 0 {
			return w.wrong[0]
		}
		return ""
	}
	proof.Find(t, proof.Hunt{
		Title: "The cluster", Text: mutantsText, Seeds: 300,
		Ways: map[string]func(*testing.T, uint64) string{
			"cluster": func(t *testing.T, seed uint64) string { return play(t, clusterScriptOf(seed)) },
		},
		Files: map[string]func(*testing.T, string) string{
			".cluster": func(t *testing.T, text string) string {
				s, err := parseClusterScript(text)
				must(t, err)
				return play(t, s)
			},
		},
	})
}
