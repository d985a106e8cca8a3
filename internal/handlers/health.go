package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// When a command counts as broken. As long as it has done nothing at all it is
// the likelier culprit, and is found out within seconds; once it has worked,
// poisoned tasks are, and only a number of them that no bad batch explains speaks against it.
const (
	// unusableStarts is how often in a row it may end before it was given a task,
	// or not be started; usedStarts if it has worked before, as when a machine
	// runs out of processes for a moment.
	unusableStarts = 4
	usedStarts     = 20
	// deaths of so many tasks' processes in a row, of so many different ones: a
	// poisoned task or two are tried again and again, and then quarantined.
	unusableDeaths = 5
	unusableTasks  = 3
	usedTasks      = 50
	// unusableRefusals is how many different tasks in a row may be told to have
	// failed, none having ever been done, by a process that is there for one task.
	unusableRefusals = 20
)

// health watches whether a command works at all, over all tasks.
type health struct {
	report func(error)

	mu      sync.Mutex
	worked  bool                // it has done a task
	starts  int                 // failures in a row to get to a task
	deaths  int                 // in a row, with a task
	killed  map[taskID]struct{} // whose tasks those were
	refused map[taskID]struct{} // tasks in a row that failed properly
	broken  chan struct{}       // closed when it is
}

// taskID tells tasks apart.
type taskID struct {
	run     pump.RunID
	segment uint32
	n       uint64
	foreign string
}

func idOf(t *pump.Task) taskID { return taskID{t.Run, uint32(t.Segment), t.N, t.Foreign} }

func newHealth(report func(error)) *health {
	return &health{
		report: report, killed: map[taskID]struct{}{}, refused: map[taskID]struct{}{},
		broken: make(chan struct{}),
	}
}

// works: it has given a proper outcome.
func (h *health) works() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worked = true
	h.starts, h.deaths = 0, 0
	clear(h.killed)
	clear(h.refused)
}

// suspect reports whether it has failed and never worked.
func (h *health) suspect() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.worked && h.starts+h.deaths > 0
}

// doesNotStart: it failed before it had a task.
func (h *health) doesNotStart(why error) {
	h.mu.Lock()
	h.starts++
	h.judge(h.starts >= h.limit(unusableStarts, usedStarts), h.starts, why)
}

// cannotRun: its process said that it found nothing to run. That costs
// the task an attempt, because it may depend on the task.
func (h *health) cannotRun(t *pump.Task, why error) {
	if h.hasWorked() {
		h.dies(t, why)
		return
	}
	h.doesNotStart(why)
}

// dies: it was given the task, and gave no outcome.
func (h *health) dies(t *pump.Task, why error) {
	h.mu.Lock()
	h.deaths++
	if len(h.killed) < usedTasks {
		h.killed[idOf(t)] = struct{}{}
	}
	h.judge(h.deaths >= unusableDeaths && len(h.killed) >= h.limit(unusableTasks, usedTasks),
		h.deaths, why)
}

// refuses: its process failed the task in an orderly way.
func (h *health) refuses(t *pump.Task, why error) {
	if h.hasWorked() {
		h.works()
		return
	}
	h.mu.Lock()
	if len(h.refused) < unusableRefusals {
		h.refused[idOf(t)] = struct{}{}
	}
	h.judge(len(h.refused) >= unusableRefusals, len(h.refused), why)
}

func (h *health) hasWorked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worked
}

func (h *health) limit(unusable, used int) int {
	if h.worked {
		return used
	}
	return unusable
}

// judge is called with mu held and releases it. It reports a broken command once.
func (h *health) judge(broken bool, failures int, why error) {
	if broken {
		select {
		case <-h.broken:
			broken = false
		default:
			close(h.broken)
		}
	}
	h.mu.Unlock()
	if broken {
		h.report(fmt.Errorf("the command does not work (%d failures in a row); the last: %w",
			failures, why))
	}
}

// handBack is how long a task that cannot be tried is held before it is given
// back. By then the processor takes no more tasks, which would all come here
// one after the other, and again and again.
const handBack = time.Second

// giveBack holds a task that cannot be tried for a moment, then releases it.
func giveBack(ctx context.Context, why error) error {
	select {
	case <-time.After(handBack):
		return pump.Release(fmt.Errorf("%w: %w", errUntried, why))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errUntried is a task that was given back because of something that is in the log already.
var errUntried = errors.New("the task was given back untried")

var errBrokenCommand = errors.New("the command does not work")

// wait gives back the tasks of a broken command, rather than at the end of the
// processor's grace period, which is for tasks that are being worked on.
func (h *health) wait(ctx context.Context) error {
	select {
	case <-h.broken:
		return giveBack(ctx, errBrokenCommand)
	default:
		return nil
	}
}
