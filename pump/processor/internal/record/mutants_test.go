package record

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// TestMutantsAreFound is the proof of the tests of results: with each listed mistake one fails.
func TestMutantsAreFound(t *testing.T) {
	proof.Find(t, proof.Hunt{Title: "The results of tasks"})
}
