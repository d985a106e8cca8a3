package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
)

// When a command counts as broken. A command that has not done a single task is the likely culprit,
// and is found within seconds. Once it has worked, poisoned tasks are the likely culprits, and only
// more failures than a bad batch explains speak against it. Many children fail as often in a moment
// as one child in a minute, so the failures must also go on for a time in which no child does a
// task.
const (
	unusableTime = time.Second
	usedTime     = 10 * time.Second
	// unusableStarts is how often in a row the command may end before it was given a task, or fail to
	// start.
	unusableStarts = 4
	// So many deaths in a row, of processes of so many different tasks, count: a poisoned task or two
	// are tried again and again, and then quarantined.
	unusableDeaths = 5
	unusableTasks  = 3
	usedTasks      = 50
)

// health watches over all tasks whether a command works.
type health struct {
	report func(error)
	lines  logs.Limited

	mu      sync.Mutex
	worked  bool                // it has given a proper outcome
	since   time.Time           // the first failure in a row
	hold    time.Time           // until then tasks wait: they would only show what is known
	amiss   string              // why no process is started; "": they are
	waiting time.Time           // since when
	starts  int                 // failures in a row to get to a task
	deaths  int                 // in a row, with a task
	killed  map[taskID]struct{} // the tasks that had these deaths
	broken  chan struct{}       // closed when it is
}

// taskID tells tasks apart.
type taskID struct {
	run     pump.RunID
	segment uint32
	n       uint64
	foreign string
}

func newHealth(report func(error)) *health {
	return &health{
		report: report, killed: map[taskID]struct{}{}, broken: make(chan struct{}),
		lines: logs.Limited{Every: logs.PerTask},
	}
}

// works notes that the command has given a proper outcome.
func (h *health) works() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worked = true
	h.starts, h.deaths, h.amiss = 0, 0, ""
	h.since, h.hold = time.Time{}, time.Time{}
	clear(h.killed)
}

// suspect reports whether it has failed and never worked.
func (h *health) suspect() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.worked && h.starts+h.deaths > 0
}

// scarce are the errors of a machine that is short of something for a while, which says nothing of
// the command.
var scarce = []error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM}

// fixes for errors that keep a command from being started.
var fixes = map[error]string{
	syscall.ENOENT: "put the file back, or the interpreter that its first line names",
	syscall.EACCES: "let this user execute it: chmod +x, and no file system that is mounted noexec",
}

// doesNotStart notes that the command failed before it had a task.
func (h *health) doesNotStart(why error) {
	is := func(e error) bool { return errors.Is(why, e) }
	if slices.ContainsFunc(scarce, is) {
		h.waits(why.Error())
		return
	}
	for e, fix := range fixes {
		if errors.Is(why, e) {
			why = fmt.Errorf("%w; %s", why, fix)
		}
	}
	h.mu.Lock()
	h.starts++
	h.judge(h.starts >= unusableStarts, h.starts, why)
}

// waits notes why no process is started. Tasks that need one wait, and the command is not blamed.
func (h *health) waits(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.amiss == "" {
		h.waiting = time.Now()
	}
	h.amiss = why
}

// says logs that no process is started, sparingly.
func (h *health) says(log *slog.Logger, why error) {
	h.lines.Add(1, func(times, _ int) {
		log.Error("the command does not start; tasks wait", "times", times, "error", why)
	})
}

// timed starts a process by start, and notes if that does not return.
func (h *health) timed(log *slog.Logger, start func() error) error {
	late := time.AfterFunc(overdue, func() {
		h.waits("starting the command has not returned")
		h.says(log, fmt.Errorf("its start has not returned for %v", overdue))
	})
	defer late.Stop()
	err := start()
	if err == nil {
		h.mu.Lock()
		h.amiss = ""
		h.mu.Unlock()
	}
	return err
}

// Amiss says why no process is started, and for how long; "": all is well.
func (h *health) Amiss() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.amiss == "" {
		return ""
	}
	return fmt.Sprintf("%s, for %v", h.amiss, time.Since(h.waiting).Round(time.Second))
}

// cannotRun notes that the task's process found nothing to run. That costs the task an attempt,
// because it may depend on the task.
func (h *health) cannotRun(t *pump.Task, why error) {
	if h.hasWorked() {
		h.dies(t, why)
		return
	}
	h.doesNotStart(why)
}

// dies notes that the command was given the task, and gave no outcome.
func (h *health) dies(t *pump.Task, why error) {
	h.mu.Lock()
	h.deaths++
	if len(h.killed) < usedTasks {
		h.killed[taskID{t.Run, uint32(t.Segment), t.N, t.Foreign}] = struct{}{}
	}
	tasks := unusableTasks
	if h.worked {
		tasks = usedTasks
	}
	h.judge(h.deaths >= unusableDeaths && len(h.killed) >= tasks, h.deaths, why)
}

func (h *health) hasWorked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worked
}

// judge is called with mu held and releases it. It reports a broken command once.
func (h *health) judge(broken bool, failures int, why error) {
	now, most := time.Now(), unusableTime
	if h.worked {
		most = usedTime
	}
	if h.since.IsZero() {
		h.since = now
	}
	if broken && !h.worked {
		h.hold = h.since.Add(most)
	}
	if broken = broken && now.Sub(h.since) >= most; broken {
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

// handBack is how long a task that cannot be tried is held before it is given back. By then the
// processor takes no more tasks; otherwise all of them would come here one by one, again and again.
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

// wait gives back the tasks of a broken command, instead of at the end of the processor's grace
// period, which is for tasks in work.
func (h *health) wait(ctx context.Context) error {
	h.mu.Lock()
	hold := time.Until(h.hold)
	h.mu.Unlock()
	if hold > 0 {
		select {
		case <-time.After(hold):
		case <-h.broken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-h.broken:
		return giveBack(ctx, errBrokenCommand)
	default:
		return nil
	}
}
