package workload

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// TestMutantsAreFound is the proof of the proof: with each listed mistake, a test fails.
func TestMutantsAreFound(t *testing.T) { proof.Find(t, proof.Hunt{Title: "A workload's rows"}) }
