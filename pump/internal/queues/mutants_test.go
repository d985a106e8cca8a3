package queues

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// TestMutantsAreFound is the proof of those tests: with each listed mistake one fails.
func TestMutantsAreFound(t *testing.T) {
	proof.Find(t, proof.Hunt{Title: "A day's cap"})
}
