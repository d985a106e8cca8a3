//go:build planted

package control

import (
	"fmt"
	"testing"
)

// TestPlantedLedgerMistakesAreFound is the proof of the fights: with each mistake that a reader of
// the ledger might make, some seed breaks a promise. It prints how many seeds that took.
func TestPlantedLedgerMistakesAreFound(t *testing.T) {
	defer func() { planted = "" }()
	for _, m := range []mistake{noFence, ledgerNoReadBack, blindRetryAfter412} {
		planted = m
		found := false
		for seed := range uint64(*plantedSeeds) {
			if wrong, _ := fightOf(t, seed); len(wrong) > 0 {
				t.Logf("%s: %d seeds: %s", m, seed+1, wrong[0])
				noteFound(t, m, fmt.Sprint(seed+1), wrong[0])
				found = true
				break
			}
		}
		if !found {
			t.Errorf("%s: not found by %d seeds", m, *plantedSeeds)
		}
	}
}
