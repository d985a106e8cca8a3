package engine

import "github.com/queuepump/queuepump/pump/internal/workload"

// runVerdict is what a run row says about a message of that run.
type runVerdict uint8

const (
	// runGoOn: the run is open, sealed or broken, or the control plane cannot be
	// read: at-least-once goes on without it (P5.6).
	runGoOn runVerdict = iota
	runClosed
	// runRest: it is closed, and had tasks in quarantine then, which the ledger knows.
	runRest
	// runSpent: it is closed, and what the ledger knew of tasks in quarantine was given up.
	runSpent
	// runEnded: what is not recorded of it goes to quarantine. runOver: all that comes does. runDropped: what comes
	// is dropped.
	runEnded
	runOver
	runDropped
	runAbsent
	// runUnread: its row could not be read. Only lookSince says so.
	runUnread
)

// verdictOf is what a run's row says about its messages.
func verdictOf(run *workload.Run) runVerdict {
	switch {
	case run.State == workload.RunClosed && run.Over:
		return runSpent
	case run.State == workload.RunClosed && run.Rest > 0:
		return runRest
	case run.State == workload.RunClosed:
		return runClosed
	case run.State != workload.RunEnded:
		return runGoOn
	case run.Drop:
		return runDropped
	case run.Over:
		return runOver
	}
	return runEnded
}

// redriven reports whether a task that was redriven is done under the identity of a foreign
// message: the ledger says nothing of its run any more, and never will.
func (v runVerdict) redriven() bool {
	return v == runSpent || v == runEnded || v == runOver || v == runDropped || v == runAbsent
}
