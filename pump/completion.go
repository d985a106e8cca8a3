package pump

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// WaitOptions are the options of runs.Wait. The zero value works.
type WaitOptions struct {
	// Progress is called after each look that brought news, by one goroutine.
	Progress func(RunProgress)
	// StuckAfter is how long nothing must have been recorded, and how long then
	// every queue must look empty, before the run is given up as stuck. Default 1 min,
	// at least 1 s. A run does not look stuck while any message of the workload
	// is in any queue, that of another run included.
	StuckAfter time.Duration
	// Timeout ends the waiting with [ErrTimeout], also while nothing answers. 0: it has no end.
	Timeout time.Duration
}

// Within gives a context that ends when the waiting does, with [ErrTimeout]: for what a caller asks
// before runs.Wait, which counts its own time from its call.
func (o WaitOptions) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.Timeout, ErrTimeout)
}

// ErrTimeout is that a run was not over within [WaitOptions.Timeout].
var ErrTimeout = errors.New("the run was not over in the time given for waiting")

// Completion is how a run ended.
type Completion struct {
	Run         RunID           `json:"run"`
	State       CompletionState `json:"state"`
	Tasks       uint64          `json:"tasks"` // in the run; 0 if it is not sealed
	Done        uint64          `json:"done"`
	Quarantined uint64          `json:"quarantined"`
	// Lacking are the segments of a run that is stuck, and what is missing of each; never null.
	Lacking []SegmentLack `json:"lacking"`
	// Closed: the run was closed, because it is done and nothing of it is in quarantine.
	Closed bool `json:"closed"`
	// Reported is what the processors have said they did.
	Reported RunReport `json:"reported"`
	Seconds  float64   `json:"seconds"` // of waiting
}

// CompletionState is how far a run was when the waiting for it ended.
type CompletionState string

// The states of a [Completion].
const (
	RunDone        CompletionState = "done"
	RunQuarantined CompletionState = "quarantined" // all is settled, and tasks are in quarantine
	RunStuck       CompletionState = "stuck"       // tasks are missing
	RunWaiting     CompletionState = "waiting"     // the waiting ended before any of that
)

// RunReport is what processors say they did of a run. It is for people. Processors note it about
// every five seconds, so it may lag behind. If a processor is killed, what it did after its last
// note is missing. A task counts as often as it was delivered.
type RunReport struct {
	Handled     uint64 `json:"handled"`
	Failed      uint64 `json:"failed"`
	Retried     uint64 `json:"retried"`
	Quarantined uint64 `json:"quarantined"`
	Duplicates  uint64 `json:"duplicates"` // recognised, and not handled
}

// RunProgress is how far a run is by the ledger. It is exact: each task counts once, also if it was
// delivered more often. It is known in delivery mode [Once] only.
type RunProgress struct {
	// Total is the number of tasks in the run, and Remaining how many of them are neither done nor in
	// quarantine; both are null until the run is sealed.
	Total       *uint64 `json:"total"`
	Done        uint64  `json:"done"`
	Quarantined uint64  `json:"quarantined"`
	Remaining   *uint64 `json:"remaining"`
	// Percent is how much of Total is done or in quarantine; null with it. It is 100 only if
	// that is all.
	Percent *float64 `json:"percent"`
}

// SegmentLack is how many tasks of a run a segment lacks: they were put, and are
// neither done nor in quarantine.
type SegmentLack struct {
	Segment uint32 `json:"segment"`
	Tasks   uint64 `json:"tasks"`
}

// StuckError is that a run will not be over by itself. Tasks of it are missing: they are not
// recorded, and no queue has had a message for a while. Or it is open, and for a while no
// distributor has sent it on.
type StuckError struct {
	Run     RunID
	Open    bool // it was not sent to its end
	Missing uint64
	Lacking []SegmentLack
}

func (e *StuckError) Error() string {
	if e.Open {
		return fmt.Sprintf(
			"run %s is stuck: it was not sent to its end, and no distributor is at work on it; "+
				"send the rest of its source with: distributor runs repair %[1]s --input FILE",
			e.Run,
		)
	}
	return fmt.Sprintf(
		"run %s is stuck: %d tasks are neither done nor in quarantine, and the queues are empty: %s; "+
			"put them again from the run's source with: distributor runs repair %[1]s --input FILE",
		e.Run, e.Missing, lackText(e.Lacking),
	)
}

// lackText names the first segments that lack something.
func lackText(lack []SegmentLack) string {
	const most = 8
	var parts []string
	for _, l := range lack[:min(len(lack), most)] {
		parts = append(parts, fmt.Sprintf("%d of segment %d", l.Tasks, l.Segment))
	}
	if more := len(lack) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and those of %d more segments", more))
	}
	return strings.Join(parts, ", ")
}
