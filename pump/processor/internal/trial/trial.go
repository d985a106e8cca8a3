package trial

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/record"
	"github.com/queuepump/queuepump/pump/storage"
)

// A trial: the attempt is written down and acknowledged (attempt.go). Then the message is opened
// and its task started like any other. If the process dies, that record is left. So each task that
// was on trial when a process died takes a share of the blame. The more blame a task has, the fewer
// others may be on trial with it: with n handlers n at first, then a quarter of that with each
// attempt. The last attempts are made alone: nothing else is started in the process. Only those
// condemn: tasks that came in with a guilty one share its first attempts, but all except a few are
// done by then, and those few are tried without it. A trial alone also spares other work in the
// process the expected end.
const (
	// aloneAttempts are the last of RetryPolicy.MaxAttempts: a suspect is alone in the process for
	// them. To convict it wrongly, a process would have to die three times then for other reasons.
	aloneAttempts = 3
	// fewerEach is by how much the number of trials at once shrinks with each attempt, as a shift.
	fewerEach = 2
	// soloPatience bounds how long a suspect waits for handlers without a time limit before it is
	// tried beside them.
	soloPatience = 15 * time.Minute
	// recordMost is how long a trial lasts at most after its task is done, until the result is
	// recorded. The control plane may be dark, and then the next trial need not wait.
	recordMost = 2 * waits.RequestTimeout
)

// HungAfter is how long a handler may take to return after its context ended. Then its task is
// settled without it.
const HungAfter = 10 * time.Second

// Options are the options of a processor that trials go by.
type Options struct {
	MaxAttempts func() int    // of a task; 0: as many as it takes
	Handlers    int           // that may be at work at once
	Timeout     time.Duration // of one call of the handler; 0 or less: none
}

// Parts are the parts of a processor that trials use.
type Parts struct {
	Backlog  *message.Backlog
	Keeper   *message.Keeper
	Recorder *record.Recorder // nil: nothing is recorded
	// Open opens a message whose trial begins.
	Open func(d *message.Delivery)
}

// Trials are the single tasks of one processor that may have ended their processes: those that wait
// for a trial, and those on trial.
type Trials struct {
	*base.Env
	Parts
	o       Options
	readers readerCounts

	mu      sync.Mutex          // guards what follows and Delivery.Trial
	waiting []*message.Delivery // in the order of their coming
	trials  []*message.Delivery
	alone   bool // the suspect on trial is alone, or is to be
	closed  bool
}

// New makes the trials of a processor. It makes no request.
func New(env *base.Env, parts Parts, o Options) *Trials {
	return &Trials{Env: env, Parts: parts, o: o}
}

// Enqueue keeps a message for a trial if it needs one, and reports whether it does. The message is
// opened later, when its trial begins. Enqueue is called before the message is opened.
func (t *Trials) Enqueue(d *message.Delivery) bool {
	suspect := t.Suspects(d)
	if d.Count != 1 || d.Trial || !suspect && !roomless(d) {
		return false
	}
	if err := t.readAttempts(d); err != nil && suspect {
		t.postpone(d, err)
		return true
	}
	if !t.Suspects(d) { // as its row says
		return false
	}
	if t.o.MaxAttempts() <= 0 || t.outOfTrials(d) { // see KillsProcess
		return false
	}
	t.mu.Lock()
	t.waiting = append(t.waiting, d)
	t.mu.Unlock()
	t.StartDue()
	return true
}

// roomless reports whether there may be a row about a message that was delivered before, because
// its text leaves no room for a header.
func roomless(d *message.Delivery) bool {
	return d.Foreign != "" && d.Dequeued > 1 && len(d.Text) > storage.MaxText/2
}

// Waiting lists the messages that wait for a trial.
func (t *Trials) Waiting() []*message.Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.waiting)
}

// atOnce is how many suspects, d included, may be on trial together with d after its attempts so
// far; 0: d is alone in the process.
func (t *Trials) atOnce(d *message.Delivery) int {
	attempts := int(d.Header.Attempt)
	if attempts >= t.o.MaxAttempts()-aloneAttempts {
		return 0
	}
	return max(1, t.o.Handlers>>min(fewerEach*attempts, 31))
}

// StartDue starts the trials that may begin, and settles the messages that will not be started any
// more. It is called when anything has changed.
func (t *Trials) StartDue() {
	t.mu.Lock()
	var gone []*message.Delivery
	t.waiting = slices.DeleteFunc(t.waiting, func(d *message.Delivery) bool {
		if !t.closed && !t.Backlog.IsWithdrawn(d) {
			return false
		}
		gone = append(gone, d)
		return true
	})
	t.startLocked()
	t.mu.Unlock()
	for _, d := range gone {
		t.settleUnstarted(d)
	}
}

// startLocked starts the trials that may begin, with the lock held.
func (t *Trials) startLocked() {
	for len(t.waiting) > 0 && !t.alone {
		d := t.waiting[0]
		most := t.atOnce(d)
		for _, other := range t.trials {
			most = min(most, t.atOnce(other))
		}
		if len(t.trials) >= max(most, 1) {
			return
		}
		t.waiting = t.waiting[1:]
		t.trials = append(t.trials, d)
		t.alone = most == 0
		d.Trial = true
		go t.begin(d, t.alone)
	}
}

// settleUnstarted settles a message that will not be started here.
func (t *Trials) settleUnstarted(d *message.Delivery) {
	t.Backlog.SetAside(d)
	d.Settle()
}

// postpone puts a message back whose attempt cannot be written down.
func (t *Trials) postpone(d *message.Delivery, err error) {
	attrs := append(d.Attrs(), "error", err)
	t.Lines.Of("unmarked").Add(d.Count, func(messages, _ int) {
		t.Log.Warn("a task that may have ended its processes could not be marked; "+
			"it is put back for a while",
			append(attrs, "messages", messages)...)
	})
	d.Whole = &message.Disposition{Delay: t.Jitter.Around(markAgain, "mark", d.ID, uint64(d.Dequeued))}
	t.settleUnstarted(d)
}

// begin writes an attempt down and has the message opened.
func (t *Trials) begin(d *message.Delivery, alone bool) {
	t.Cfg.Sim.Seeding.Turn.Wait("try", d.Queue.Account.Name, d.ID)
	if alone {
		d.Started.Store(true) // any other process would wait as well
		patience := t.o.Timeout + HungAfter
		if t.o.Timeout <= 0 {
			patience = soloPatience
		}
		if !t.Backlog.Exclusive(d, patience) {
			t.settleUnstarted(d)
			return
		}
	}
	if err := t.writeAttempt(d, alone); err != nil {
		t.postpone(d, err)
		return
	}
	attrs := append(d.Attrs(), "deliveries", d.Dequeued,
		"attempt", fmt.Sprintf("%d of %d", d.Header.Attempt+1, t.o.MaxAttempts()), "alone", alone)
	t.Lines.Of("trial").Add(1, func(messages, _ int) { // also many that were put back for long
		t.Log.Warn("a message came back so often that its task may have ended its processes; "+
			"this attempt was written down before it begins", append(attrs, "messages", messages)...)
	})
	t.Open(d)
}

// Finish ends the splitting or the trial of a message that was settled, or whose settling was
// tried: its handler has returned, so the task cannot end the process any more. In mode once the
// result must be recorded first: if the next suspect ended the process earlier, only the written
// attempt would be left of a harmless task.
func (t *Trials) Finish(d *message.Delivery) {
	t.Backlog.SetSplitting(d, false)
	if d.Trial && d.Recording.Load() { // Finish is called again when it is settled
		time.AfterFunc(recordMost, func() { t.end(d) })
		return
	}
	t.end(d)
}

func (t *Trials) end(d *message.Delivery) {
	t.mu.Lock()
	i := slices.Index(t.trials, d)
	if i < 0 {
		t.mu.Unlock()
		return
	}
	t.trials = slices.Delete(t.trials, i, i+1)
	if t.alone {
		t.alone = false
		t.Backlog.Resume()
	}
	t.mu.Unlock()
	t.StartDue()
}

// Close ends trials that have not begun.
func (t *Trials) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.StartDue()
}
