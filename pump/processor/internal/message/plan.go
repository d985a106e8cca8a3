package message

import (
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// Verdict is what became of one task in one delivery.
type Verdict uint8

const (
	// Unfinished: not started, released by the handler, or its context ended
	// under it. No attempt is counted.
	Unfinished Verdict = iota
	Skipped            // settled without being handled: its key was, lately
	Finished           // done
	Failed             // an error, a panic, a timeout: an attempt
	Retry              // the handler asked for it: an attempt
	Rejected           // the handler says that it will never succeed
	Postponed          // to be put back for a while without an attempt
	NotNow             // told "not now": to be put back for a while without an attempt
	Known              // recorded as done before (mode once)
)

// Trouble is a verdict that says more than its kind.
type Trouble struct {
	Task  int
	After time.Duration // retry, postponed; the least of failed and not now
	Err   error
}

// step is the request that ends a delivery.
type step uint8

const (
	StepDelete  step = iota // it is done with
	StepReplace             // put back, rewritten
	StepRelease             // put back as it is
	StepForget              // nothing: it comes back by itself
)

// Plan is what is left to do for one message, in this order. A part that is
// done is not done again when a later one has to be retried.
type Plan struct {
	Copies []Copy // each acknowledged before the next
	// Entries are what the ledger is to record; recorded: it did, or there was nothing.
	Entries  []*ledger.Entry
	Recorded bool
	// Lines are the results to keep before the entries; noted: by a row, and not by an entry. Unkept
	// is why they were not.
	Lines  [][]byte
	Noted  bool
	Unkept error
	Final  step
	Text   []byte // of StepReplace
	// of a message on trial: what it is put back with if its result is not recorded
	Unmarked []byte
	Delay    time.Duration // of StepReplace and StepRelease
	Tries    uint64
	// Doubt: the final request was made and not answered, so "gone" may be its own effect.
	Doubt             bool
	Retried, Released int // tasks, counted when it is done
}

// Copy is a message to put before the message in hand is ended: tasks for quarantine, or tasks that
// want another delay than the rest.
type Copy struct {
	Queue  *queues.Queue
	Text   []byte
	Delay  time.Duration
	Reason string    // of a quarantine
	Tasks  int       // in it
	Row    *CauseRow // the cause, if it did not fit into the text
	// Forward: it is the message itself, on the way to its segment's home.
	Forward bool
	Segment uint32 // of a forward
}

// Size is how much memory the texts take that are still to be put.
func (s *Plan) Size() int {
	n := len(s.Text)
	for _, c := range s.Copies {
		n += len(c.Text)
	}
	return n
}

// PutBack makes the whole message visible again instead of its plan.
func (s *Plan) PutBack(d *Delivery, delay time.Duration) {
	s.Entries, s.Lines, s.Copies, s.Text = nil, nil, nil, s.Unmarked
	s.Final, s.Delay = StepRelease, delay
	s.Retried, s.Released = 0, d.Count
	if s.Text != nil {
		s.Final = StepReplace
	}
	d.Untried = d.Written == WrittenInRow
}

// ToQuarantine is a task that will not be tried again.
type ToQuarantine struct {
	Task   int
	Reason string
	Err    error
}

// CauseRow is a cause that did not fit into its message.
type CauseRow struct {
	Queue   *queues.Queue
	Message string
	Cause   codec.Cause
	Text    string // row.TextHash
}
