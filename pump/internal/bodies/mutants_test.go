package bodies_test

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// TestMutantsAreFound is the proof of the tests of bodies: with each listed mistake one fails.
func TestMutantsAreFound(t *testing.T) {
	proof.Find(t, proof.Hunt{Title: "The bodies of large tasks"})
}
