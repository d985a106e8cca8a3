package sampling

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

// TestMutantsAreFound is the proof of those tests: with each listed mistake one fails.
func TestMutantsAreFound(t *testing.T) {
	mutants.Find(t, mutants.Hunt{Title: "The history and the day's sum"})
}
