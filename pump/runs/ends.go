package runs

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Ends is what holds back the ends of runs that no distributor continues: in delivery mode once
// such a run lives, and takes room in the ledger, until a quiet time has passed.
type Ends struct {
	// Waiting is the number of runs that are broken, abandoned or ended, and not over yet.
	Waiting int `json:"waiting"`
	// HeldBackBy is the queue that is read least far, or the segment that no processor reads.
	// BehindSeconds is how long messages may wait there, null if that is not known. They are empty and
	// null if no run of Runs waits for reading; see [RunEnd].
	HeldBackBy    string   `json:"heldBackBy"`
	BehindSeconds *float64 `json:"behindSeconds"`
	// Runs are the waiting runs that have waited longest.
	Runs []RunEnd `json:"runs"`
}

// RunEnd is what the end of one run waits for.
type RunEnd struct {
	ID    string `json:"id"`
	State string `json:"state"` // "broken", "abandoned", "ended"
	// LastSign is when a message of the run was last noted, or until when one is hidden, by the
	// control account's clock.
	LastSign time.Time `json:"lastSign"`
	// WaitsFor is "reading" while the queues are not read beyond the last sign, then "quiet".
	WaitsFor string `json:"waitsFor"`
	// NotBefore is when the run ends at the earliest, if no message of it is met until then.
	NotBefore time.Time `json:"notBefore"`
	// Text says all of this for people.
	Text string `json:"text"`
}

// endOf tells what the end of a run waits for; empty if the run does not wait for one.
func endOf(ctx context.Context, o *setup.Session, run *workload.Run) (string, error) {
	if o.Workload.Delivery != string(pump.Once) || !closing.WaitsForEnd(run.State, run.Over) {
		return "", nil
	}
	r, err := closing.ReadEnding(ctx, o.Queues.Control, o.Workload.Name, run.ID, run.State,
		run.Mode, run.Changed)
	if err != nil {
		return "", err
	}
	sums, err := ledger.ReadSums(ctx, o.Queues.Control, o.Workload.Name, o.Workload.Map.Segments)
	if err != nil {
		return "", err
	}
	v, err := cluster.LoadView(ctx, o.Queues.Control, o.Workload.Name)
	if err != nil {
		return "", err
	}
	now := v.Read
	server, local, err := workload.ServerTime(ctx, o.Queues.Control, o.Workload.Name)
	switch {
	// a credential that may only read is fine for looking
	case err != nil && failure.Ends(failure.Help, err, failure.Command):
		return "", err
	case err == nil && !server.IsZero():
		now = server.Add(v.Read.Sub(local))
	}
	e := closing.EndsBy(v, now, sums.Use, o.Cfg.Retention)
	return e.Of(r).Text, nil
}
