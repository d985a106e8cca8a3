package workload

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

// TestMutantsAreFound is the proof of the proof: with each listed mistake, a test fails.
func TestMutantsAreFound(t *testing.T) { mutants.Find(t, mutants.Hunt{Title: "A workload's rows"}) }
