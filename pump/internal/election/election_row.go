package election

import (
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Phase is whether a distribution is under way.
type Phase string

// The phases.
const (
	Idle    Phase = "idle"
	Running Phase = "running"
)

const (
	// checkpointPart is what one binary property holds; a property takes 64 KiB.
	checkpointPart  = 60 << 10
	checkpointParts = 4
	// MaxCheckpoint is the largest checkpoint, in bytes: 16,384 counters of at
	// most 160 KiB and a cursor, with room.
	MaxCheckpoint = checkpointPart * checkpointParts
)

// ErrCheckpointTooLarge: a checkpoint has more than MaxCheckpoint bytes.
var ErrCheckpointTooLarge = errors.New("the checkpoint is too large")

// electionRow is the row's content.
type electionRow struct {
	leader     string // token of the present or last leader; empty: vacant
	epoch      uint64 // one more with each win
	beats      uint64 // writes of this term
	phase      Phase
	run        codec.RunID // zero until the term has begun one
	checkpoint []byte      // of run, or nil

	// Of a schedule: its text, up to when due times are considered, the next one after that while no
	// process leads, and the due time of run.
	cron             string
	upTo, next, made time.Time

	// The leader's own times, for observers whose configuration differs.
	every, beat, lease, margin time.Duration
}

func electionRowOf(t storage.Table, name string, o Options) row.Row[electionRow] {
	key := "election"
	if !o.Run.IsZero() {
		key = workload.NamedKey(o.Run)
	}
	return row.Row[electionRow]{
		Table: t, Partition: workload.ElectionPartition(name), Key: key, Timeout: o.timeout(),
		Encode: encodeElection, Decode: decodeElection,
	}
}

func encodeElection(e electionRow) map[string]any {
	props := map[string]any{
		"Leader": e.leader, "Epoch": int64(e.epoch), "Beats": int64(e.beats), "Phase": string(e.phase),
		"Run": row.RunText(e.run),
		// ns
		"Every": int64(e.every), "Beat": int64(e.beat), "Lease": int64(e.lease),
		"Margin": int64(e.margin),
	}
	if e.cron != "" {
		props["Cron"], props["UpTo"] = e.cron, e.upTo
		for name, at := range map[string]time.Time{"Next": e.next, "Made": e.made} {
			if !at.IsZero() { // the service has no such time
				props[name] = at
			}
		}
	}
	for i, rest := 0, e.checkpoint; len(rest) > 0; i++ {
		part := rest[:min(len(rest), checkpointPart)]
		props[checkpointName(i)] = part
		rest = rest[len(part):]
	}
	return props
}

func decodeElection(f *row.Fields) electionRow {
	e := electionRow{
		leader: f.Text("Leader"), epoch: f.UpTo("Epoch", row.MaxEpoch), beats: f.Count("Beats"),
		phase: Phase(f.Text("Phase")), run: f.Run("Run"),
		every: f.Duration("Every"), beat: f.Duration("Beat"), lease: f.Duration("Lease"),
		margin: f.Duration("Margin"),
		cron:   f.Line("Cron"), upTo: f.Moment("UpTo"), next: f.Moment("Next"), made: f.Moment("Made"),
	}
	for i := range checkpointParts {
		e.checkpoint = append(e.checkpoint, f.Binary(checkpointName(i))...)
	}
	if e.phase != Idle && e.phase != Running {
		f.Fail("Phase", fmt.Sprintf("is %q", e.phase))
	}
	return e
}

func checkpointName(part int) string { return fmt.Sprintf("Checkpoint%d", part) }
