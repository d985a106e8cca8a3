package closing

import "github.com/queuepump/queuepump/pump/internal/workload"

// Verdict is what a run row says about a message of that run.
type Verdict uint8

const (
	// GoOn: the run is open, sealed or broken, or the control plane cannot be
	// read: at-least-once goes on without it (P5.6).
	GoOn   Verdict = iota
	Closed         // all of it is done
	// Rest: it is closed, and had tasks in quarantine then, which the ledger knows.
	Rest
	// Spent: it is closed, and what the ledger knew of tasks in quarantine was given up.
	Spent
	// Ended: unrecorded tasks go to quarantine. Over: all that come do. Dropped: tasks that come are
	// dropped.
	Ended
	Over    // see Ended
	Dropped // see Ended
	Absent  // the run has no row
	// Unread: its row could not be read. Damaged: nor will it be soon. Only LookSince says so.
	Unread
	Damaged // see Unread
)

// VerdictOf is what a run's row says about its messages.
func VerdictOf(run *workload.Run) Verdict {
	switch {
	case run.State == workload.RunClosed && run.Over:
		return Spent
	case run.State == workload.RunClosed && run.Rest > 0:
		return Rest
	case run.State == workload.RunClosed:
		return Closed
	case run.State != workload.RunEnded:
		return GoOn
	case run.Drop:
		return Dropped
	case run.Over:
		return Over
	}
	return Ended
}

// Redriven reports whether a task that was redriven is done under the identity of a foreign
// message: the ledger no longer knows its run, and never will.
func (v Verdict) Redriven() bool {
	return v == Spent || v == Ended || v == Over || v == Dropped || v == Absent
}
