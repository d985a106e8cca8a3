package processor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// NotNow says how tasks of a processor were told "not now" by what its handlers use.
type NotNow struct {
	// Count is how many times that was so since it began at Since; 0 and null if it is not so now. It
	// is over after a minute of done tasks without a "not now".
	Count int64      `json:"count"`
	Since *time.Time `json:"since"`
	// LastError is what the last of them was told.
	LastError string `json:"lastError,omitempty"`
	// Rate is how many tasks a second are started because of it; 0: as many as there are.
	Rate float64 `json:"rate"`
	// Causes counts, since the start, those that were told so ("429", "503", "busy") and those that
	// asked for another attempt themselves ("retry").
	Causes map[string]int64 `json:"causes"`
}

const (
	// lastTasks are the different tasks by which an answer is judged: it says "not now" if half of
	// them were told so, and otherwise concerns its own task only.
	lastTasks = 20
	// notNowOver is how long tasks must be done without a "not now" until it is over.
	notNowOver = time.Minute
)

// notNows are the answers by which tasks of this process were told "not now", and the one brake of
// all its handlers.
type notNows struct {
	*base.Env
	backlog *message.Backlog
	brake   *queues.Brake

	mu     sync.Mutex   // guards what follows
	recent []recentTask // different ones, the last of them last
	passed int64        // tasks that were done when recent was brought up to date
	state  NotNow
	last   time.Time // when the last task was told so
	done   int64     // tasks that were done then
}

// recentTask is a task that a handler had lately.
type recentTask struct {
	run     pump.RunID
	segment uint32
	n       uint64
	foreign string
	known   bool // else it is any done task
	told    bool
}

// noCauses has all causes, so that each is a series from the start.
func noCauses() map[string]int64 {
	return map[string]int64{"429": 0, "503": 0, "busy": 0, "retry": 0}
}

func newNotNows(env *base.Env, b *message.Backlog, handlers int) *notNows {
	n := &notNows{Env: env, backlog: b, state: NotNow{Causes: noCauses()}}
	n.brake = queues.NewBrake(float64(handlers), n.passes)
	return n
}

// passes is how many tasks handlers were done with, one way or the other.
func (n *notNows) passes() int64 {
	return n.Counts.Handled.Load() + n.Counts.Rejected.Load()
}

// answerOf is the Answer of a handler's error; empty without one.
func answerOf(err error) string {
	if e, _ := errors.AsType[*pump.TaskError](err); e != nil && e.Outcome == pump.OutcomeBusy {
		return e.Answer
	}
	return ""
}

// judge gives the outcome of a task that began at a time: it decides whether an answer that may say
// "not now" does. It is not called for tasks that were done at once.
func (n *notNows) judge(
	t *pump.Task, v message.Verdict, after time.Duration, err error, began time.Time, fresh bool,
) (message.Verdict, time.Duration) {
	cause := ""
	switch v {
	case message.NotNow:
		cause = "busy"
	case message.Failed:
		cause = answerOf(err)
	case message.Finished, message.Retry, message.Rejected:
	default:
		return v, after // it does not concern what the handler uses
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.note(t, cause != "")
	if v == message.Retry {
		n.state.Causes["retry"]++
	}
	if cause == "" {
		return v, after
	}
	half := 2*told >= len(n.recent)
	if half || fresh {
		if n.brake.Refused(began, half && told > 1) {
			n.Log.Warn(`tasks are told "not now"; fewer are started until that is over`,
				"rate", fmt.Sprintf("%.3g/s", n.brake.Rate()), "error", err)
		}
		n.backlog.Brake(n.brake.Rate())
	}
	if v == message.NotNow || half {
		n.count(cause, err)
		return message.NotNow, after
	}
	return message.Failed, after
}

// note makes a task the last one, and gives how many of the last were told "not now".
func (n *notNows) note(t *pump.Task, told bool) (all int) {
	now := n.passes()
	for range min(now-n.passed, lastTasks) {
		n.recent = append(n.recent, recentTask{})
	}
	n.passed = now
	is := recentTask{
		run: t.Run, segment: t.Segment, n: t.N, foreign: t.Foreign, known: true, told: told,
	}
	n.recent = slices.DeleteFunc(n.recent, func(r recentTask) bool {
		r.told = told
		return r == is
	})
	n.recent = append(n.recent, is)
	n.recent = slices.Delete(n.recent, 0, max(0, len(n.recent)-lastTasks))
	for _, r := range n.recent {
		if r.told {
			all++
		}
	}
	return all
}

// count notes that a task was told "not now".
func (n *notNows) count(cause string, err error) {
	now := time.Now()
	if n.over(now) {
		n.state.Since, n.state.Count = &now, 0
	}
	n.state.Count++
	n.state.Causes[cause]++
	n.state.LastError = briefly(err.Error())
	n.last, n.done = now, n.passes()
}

// over reports whether tasks are not told "not now" any more.
func (n *notNows) over(now time.Time) bool {
	return n.state.Count == 0 || now.Sub(n.last) > notNowOver && n.passes() > n.done
}

// grow lets the brake follow the time.
func (n *notNows) grow(now time.Time) {
	if n.brake.Grow(now) {
		n.Log.Info(`no task was told "not now" for a while; all are started again`)
	}
	if rate := n.brake.Rate(); rate != n.backlog.Braked() {
		n.backlog.Brake(rate)
	}
}

// State is the answers as people see them.
func (n *notNows) State() NotNow {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.state
	s.Rate, s.Causes = n.brake.Rate(), maps.Clone(s.Causes)
	if n.over(time.Now()) {
		s.Count, s.Since, s.LastError = 0, nil, ""
	}
	return s
}
