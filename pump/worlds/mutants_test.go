package worlds

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

const mutantsHead = `# Mutants that the simulation must find

Made by ` + "`make mutants`" + `. Each of these mistakes ([the list](testdata/mutants.txt)) is built into the
pump, and worlds of one seed after the other are played until one shows something wrong; ` + "`make test`" + `
fails if 200 do not. Those of the ledger, the cluster and the election are beside them:
[cluster](../internal/cluster/MUTANTS.md), [ledger](../internal/ledger/MUTANTS.md),
[election](../internal/election/MUTANTS.md), [workload](../internal/workload/MUTANTS.md). "3 of kind
partitions" is the third of the worlds of that [kind](simulation_kinds_test.go).
`

// TestMutantsAreFound is the proof of the simulation: with each listed mistake, a plan of testdata
// or of some seed shows something wrong.
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
	kinds := map[string]string{}
	for _, k := range append(simKinds, simKind{name: simKindSmall}) {
		way := "worlds of kind " + k.name
		kinds[way] = "kind " + k.name
		ways[way] = func(t *testing.T, seed uint64) string { return play(t, k.planOf(seed)) }
	}
	mutants.Find(t, mutants.Hunt{
		Head: mutantsHead, Seeds: 200, Ways: ways, Kinds: kinds,
		Files: map[string]func(*testing.T, string) string{
			".plan": func(t *testing.T, text string) string {
				plan, err := parseSimPlan(text)
				if err != nil {
					t.Fatal(err)
				}
				return play(t, plan)
			},
		},
	})
}
