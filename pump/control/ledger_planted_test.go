//go:build planted

package control

import "testing"

// TestPlantedLedgerMistakesAreFound is the proof of the fights: with each mistake that a reader of
// the ledger might make, some seed breaks a promise. It prints how many seeds that took.
func TestPlantedLedgerMistakesAreFound(t *testing.T) {
	defer Plant("")
	for _, name := range PlantedNames() {
		Plant(name)
		found := false
		for seed := range uint64(*plantedSeeds) {
			if wrong, _ := fightOf(t, seed); len(wrong) > 0 {
				t.Logf("%s: %d seeds: %s", name, seed+1, wrong[0])
				found = true
				break
			}
		}
		if !found {
			t.Errorf("%s: not found by %d seeds", name, *plantedSeeds)
		}
	}
}
