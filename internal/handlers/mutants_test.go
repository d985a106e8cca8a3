package handlers

import (
	"testing"

	"github.com/queuepump/queuepump/internal/mutants"
)

// TestMutantsAreFound is the proof of those tests: with each listed mistake one fails.
func TestMutantsAreFound(t *testing.T) {
	mutants.Find(t, mutants.Hunt{Title: "Children and outputs"})
}
