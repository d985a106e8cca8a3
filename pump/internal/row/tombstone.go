package row

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// TombstoneReason is the cause by which an envelope tells the owner of its segment that an
// operator gave its quarantined tasks up. No task is quarantined for it.
const TombstoneReason = "dropped"

// A tombstone is how quarantined tasks are given up for good in a workload of delivery mode once
// (P4.4). Only the owner of a segment writes its ledger, so a command that drops tasks tells the
// owner, with an envelope in the segment's home queue: the same run, segment and n with empty
// bodies, the next generation, and the reason TombstoneReason. The owner records those n as done,
// deletes the envelope and starts nothing. The command deletes the poison message only when the
// envelope is acknowledged. In the opposite order a crash would leave tasks that the ledger has as
// quarantined and that exist nowhere else, and their run would never be complete.

// IsTombstone reports whether an envelope only says that its tasks were dropped. The cause must
// always stay with it: without a cause it is an envelope of tasks without bodies.
func IsTombstone(h *codec.Header) bool {
	return h.Cause != nil && h.Cause.Reason == TombstoneReason
}

// NewTombstone makes the tombstone of the tasks that a poison envelope's header names.
func NewTombstone(h codec.Header, by string, now time.Time) ([]byte, error) {
	cause := codec.Cause{
		Reason: TombstoneReason, Instance: by, Attempts: h.Attempt, First: now, Last: now,
	}
	h.Generation++
	h.Attempt = 0 // the version stays: a reader of the envelope can read its tombstone (P4.6)
	b := codec.NewBuilder(storage.MaxText - codec.DefaultHeadroom)
	b.Reset(h)
	for n := range h.Tasks.All() {
		switch fits, err := b.Add(codec.Task{N: n}); {
		case err != nil:
			return nil, fmt.Errorf("tombstone: %w", err)
		case !fits:
			return nil, fmt.Errorf("a tombstone of %d tasks does not fit into a message",
				h.Tasks.Len())
		}
	}
	text, _, err := b.Seal(nil)
	if err != nil {
		return nil, fmt.Errorf("tombstone: %w", err)
	}
	return codec.Quarantined(text, cause)
}

// TextHash finds the row of a cause that did not fit into its message: a message has
// another id in quarantine than before, but the same text.
func TextHash(text []byte) string { return fmt.Sprintf("%016x-%d", xxhash.Sum64(text), len(text)) }

// CausePartition is where causes stand that did not fit into their messages.
func CausePartition(workload string) string { return workload + ".quarantine" }
