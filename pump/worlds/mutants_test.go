package worlds

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

const mutantsText = `Worlds of one seed after the other are played until one shows something wrong; ` + "`make verify`" + ` fails
if 200 do not. "3 of kind partitions" is the third of the worlds of that
[kind](../../pump/worlds/simulation_kinds_test.go); "7 of the first 12" is how many of the first 12
worlds of the kind show something wrong.
`

// mutantsCounted is of how many worlds of the larger kinds it is counted how many find a mutant;
// else 12.
var mutantsCounted = map[string]int{
	"many segments": 2, "many runs": 2, "full states": 4, "foreign": 10,
}

// TestMutantsAreFound is the proof of the simulation: with each listed mistake a plan of testdata or that of some
// seed shows something wrong.
func TestMutantsAreFound(t *testing.T) {
	play := func(t *testing.T, plan *simPlan) string {
		if w := playSim(t, plan); len(w.wrong) > 0 {
			return w.wrong[0]
		}
		return ""
	}
	ways := map[string]func(*testing.T, uint64) string{
		"worlds": func(t *testing.T, seed uint64) string { return play(t, simPlanOf(seed)) },
	}
	kinds, counted := map[string]string{}, map[string]int{}
	for _, k := range append(simKinds, simKind{name: simKindSmall}) {
		way := "worlds of kind " + k.name
		kinds[way], counted[way] = "kind "+k.name, 12
		if n := mutantsCounted[k.name]; n > 0 {
			counted[way] = n
		}
		ways[way] = func(t *testing.T, seed uint64) string { return play(t, k.planOf(seed)) }
	}
	proof.Find(t, proof.Hunt{
		Title: "The whole pump", Text: mutantsText, Seeds: 200, Ways: ways, Kinds: kinds, Counted: counted,
		Files: map[string]func(*testing.T, string) string{
			".plan": func(t *testing.T, text string) string {
				plan, err := parseSimPlan(text)
				must(t, err)
				return play(t, plan)
			},
		},
	})
}
