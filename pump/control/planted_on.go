//go:build planted

package control

import (
	"fmt"
	"slices"
)

var planted mistake

// ledgerMistakes by the names that a simulation of the whole pump calls them by.
var ledgerMistakes = map[string]mistake{
	"noFence":            noFence,
	"ledgerNoReadBack":   ledgerNoReadBack,
	"blindRetryAfter412": blindRetryAfter412,
}

// PlantedNames lists the mistakes that Plant knows, sorted: those about the ledger.
// Those about the cluster are found by this package's own scripts.
func PlantedNames() []string {
	names := make([]string, 0, len(ledgerMistakes))
	for name := range ledgerMistakes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Plant plants a mistake, or none if the name is empty, in the whole process. It
// must not be called while anything of this package is at work, and panics on a name that it does not know.
func Plant(name string) {
	m, known := ledgerMistakes[name]
	if !known && name != "" {
		panic(fmt.Sprintf("control: there is no mistake %q", name))
	}
	planted = m
}
