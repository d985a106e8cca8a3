// Package private has those fields of the configuration that are the engine's own: no caller
// outside of the engine can name their type.
package private

import "github.com/queuepump/queuepump/pump/internal/backoff"

// Config is what the engine notes in a configuration that it has checked, and what a simulation adds.
type Config struct {
	Seeding      backoff.Seeding // of a simulation
	ControlGiven bool            // Control was not left out
	AnyQueues    map[string]bool // accounts by name for which Queues was left out
}
