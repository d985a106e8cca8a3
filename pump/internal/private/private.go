// Package private has those fields of the configuration that are the engine's own: no caller
// outside of the engine can name their type.
package private

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
)

// Config is what the engine notes in a configuration that it has checked, and what a simulation
// adds.
type Config struct {
	Seeding      backoff.Seeding // of a simulation
	ControlGiven bool            // Control was not left out
	AnyQueues    map[string]bool // accounts by name for which Queues was left out
	// Tests and simulations set the following. A distributor works with zero.
	Lanes           int           // packers at work
	CheckpointEvery time.Duration // between checkpoints
	BarrierAge      time.Duration // how old a barrier may get
	MaxUnsaved      int64         // tasks since the last checkpoint
	Names           int           // of tasks without a run, in a segment's ledger
	// Hands is told of the ledger of a processor, and of what the processor holds, when it begins.
	Hands func(l *ledger.Ledger, hold func(segment uint32) (cluster.Hold, bool))
}
