package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// recordOutcome notes the outcome of one task. The last one of a message settles it.
func (p *workers) recordOutcome(
	ctx context.Context, d *message.Delivery, i int, err error, began time.Time,
	span trace.SpanContext,
) {
	r := p.r
	v, after := verdictOf(ctx, err)
	var sent pump.Task
	if waited := !d.Header.NotNow.First.IsZero(); v > message.Finished || waited {
		fresh := !waited && d.Header.Attempt == 0
		sent = d.AsSent(i)
		v, after = r.notNows.judge(&sent, v, after, err, began, fresh)
	}
	switch v {
	case message.Finished:
		r.Counts.Handled.Add(1)
	case message.Skipped:
		r.Counts.Skipped.Add(1)
	case message.Failed:
		r.Counts.Failed.Add(1)
	case message.Rejected:
		r.Counts.Rejected.Add(1)
	case message.NotNow:
		r.Counts.NotNow.Add(1)
	}
	if v > message.Finished {
		r.failures.note(d, i, sent, v, err, span)
	}
	if d.Outcomes.End(i, v, after, err) {
		d.Settler.Add(d)
	}
}

// verdicts are those of the outcomes that a handler says outright.
var verdicts = map[pump.Outcome]message.Verdict{
	pump.OutcomeDone: message.Skipped, pump.OutcomeRejected: message.Rejected,
	pump.OutcomeUntried: message.Unfinished, pump.OutcomeBusy: message.NotNow,
	pump.OutcomeRetry: message.Retry,
}

// verdictOf says what a handler's error means, as [pump.OutcomeOf] does. An error with an Answer
// counts as a failure here: notNows.judge decides then whether the answer says "not now".
func verdictOf(ctx context.Context, err error) (v message.Verdict, after time.Duration) {
	is, after := pump.OutcomeOf(err)
	switch v, said := verdicts[is]; {
	case err == nil:
		return message.Finished, 0
	case is == pump.OutcomeUntried && after > 0:
		return message.Postponed, after
	case said && answerOf(err) == "":
		return v, after
	}
	// A handler whose context ended for reasons that are not its task's cannot
	// be blamed for returning early.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrTimedOut) {
		return message.Unfinished, 0
	}
	return message.Failed, after
}

// Failing says whether the handlers of a processor fail: whether, among the tasks that ended in the
// last minute, as many failed as were done, and three at least. The answer stays while no task
// ends.
type Failing struct {
	// Count is how many tasks failed or were rejected since Since; 0 and null: handlers do not fail.
	Count int64      `json:"count"`
	Since *time.Time `json:"since"`
	// LastError is what the last of them failed of, and Task which task that was.
	LastError string `json:"lastError,omitempty"`
	Task      string `json:"task,omitempty"`
}

const (
	// failWindow is about how far back tasks are counted.
	failWindow = time.Minute
	// failLeast is from how many failures on it is said: one task may be a bad one.
	failLeast = 3
	// failForgotten is when failures say nothing any more because no task has ended since.
	failForgotten = 15 * time.Minute
	// maxFailText bounds a text in the beat.
	maxFailText = 200
)

// failures are those of a processor's handlers.
type failures struct {
	*base.Env

	mu           sync.Mutex // guards what follows
	count        int64      // tasks that failed since ...
	since        time.Time
	err          error     // of the last failed task, ...
	task         pump.Task // ... without its key and body
	last         time.Time // when that was
	fails        bool
	older, newer ended // as of half a window ago and more, and since
}

// ended counts tasks that ended up to a time.
type ended struct {
	at           time.Time
	done, failed int64
}

// kinds are the words of the log for verdicts that are failures.
var kinds = map[message.Verdict]string{
	message.Failed: "a task failed", message.Rejected: "a task was rejected",
	message.NotNow: `a task was told "not now"`,
}

// note takes one failure. The log names the first task of each kind at once, and then one every ten
// seconds, with their number: a million failures do not drown the log.
func (f *failures) note(
	d *message.Delivery, i int, t pump.Task, v message.Verdict, err error, span trace.SpanContext,
) {
	kind := kinds[v]
	if kind == "" {
		return
	}
	key := string(t.Key)
	t.Key, t.Trace = nil, nil // their buffer is used again
	if v != message.NotNow {
		f.mu.Lock()
		f.last = time.Now()
		if f.count == 0 {
			f.since = f.last
		}
		f.count++
		f.err, f.task = err, t
		f.mu.Unlock()
	}
	attrs := d.TaskAttrs(i, span)
	f.Lines.Of(kind).Add(1, func(tasks, _ int) {
		f.Log.Warn(kind, append(attrs, "id", briefly(t.ID), "key", briefly(key),
			"error", briefly(err.Error()), "tasks", tasks)...)
	})
}

// briefly gives a text of unknown origin as one short line without secrets.
func briefly(text string) string {
	const enough = 4 << 10 // to find secrets whole
	text = row.Clip(logs.Cleaned(text[:min(len(text), enough)]))
	if len(text) > maxFailText {
		text = strings.ToValidUTF8(text[:maxFailText-len("…")], "") + "…"
	}
	return text
}

// taskName is how the log and people know a task.
func taskName(t *pump.Task) string {
	name := fmt.Sprintf("%s/%d/%d", t.Run, t.Segment, t.N)
	if t.Foreign != "" {
		name = t.Foreign
	}
	if t.ID != "" {
		name = t.ID + " (" + name + ")"
	}
	return briefly(name)
}

// look judges, once a second.
func (f *failures) look(now time.Time) {
	c := &f.Counts
	is := ended{now, c.Handled.Load() + c.Skipped.Load(), c.Failed.Load() + c.Rejected.Load()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.newer.at) >= failWindow/2 {
		f.older, f.newer = f.newer, is
	}
	done, failed := is.done-f.older.done, is.failed-f.older.failed
	switch {
	case failed > 0 && failed >= done:
		f.fails = f.fails || f.count >= failLeast
	case done > 0 || now.Sub(f.last) > failForgotten:
		f.fails, f.count, f.err = false, 0, nil
	}
}

// State is the failures as people see them.
func (f *failures) State() Failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fails {
		return Failing{}
	}
	return Failing{f.count, new(f.since), briefly(f.err.Error()), taskName(&f.task)}
}
