package message

import (
	"sync"
	"time"
)

// Outcomes are what became of a message's tasks, as workers, the watch that gives up handlers, and
// the settler know it.
type Outcomes struct {
	mu       sync.Mutex // guards what follows
	verdicts []Verdict  // nil: the message is not opened
	troubles []Trouble
	pending  int  // tasks that are to be started and have no verdict
	hung     bool // a handler that ignores its context may still read the tasks
}

// Make makes room for verdicts, unless there is some.
func (o *Outcomes) Make(tasks int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.verdicts == nil {
		o.verdicts = make([]Verdict, tasks)
	}
}

// Set is the verdict on a task that is not started.
func (o *Outcomes) Set(v Verdict, t Trouble) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdicts[t.Task] = v
	if v > Finished && v != Known {
		o.troubles = append(o.troubles, t)
	}
}

// Await says how many tasks are to be started.
func (o *Outcomes) Await(tasks int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = tasks
}

// End is the verdict on a task that was started. It reports whether that was the last.
// It is called for each task, so it defers nothing.
func (o *Outcomes) End(task int, v Verdict, after time.Duration, err error) (last bool) {
	o.mu.Lock()
	o.verdicts[task] = v
	if v > Finished {
		o.troubles = append(o.troubles, Trouble{Task: task, After: after, Err: err})
	}
	o.pending--
	last = o.pending == 0
	o.mu.Unlock()
	return last
}

// Withdraw leaves tasks unstarted, and reports whether no verdict is awaited any more.
func (o *Outcomes) Withdraw(tasks int) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending -= tasks
	return o.pending == 0
}

// Hang says that a handler goes on although its task has a verdict.
func (o *Outcomes) Hang() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hung = true
}

// All gives the verdicts, nil if the message was not opened, and their troubles. No verdict is
// awaited any more.
func (o *Outcomes) All() ([]Verdict, []Trouble) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.verdicts, o.troubles
}

// Forget lets go of the verdicts, and reports whether a handler may still read the tasks.
func (o *Outcomes) Forget() (hung bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdicts, o.troubles = nil, nil
	return o.hung
}
