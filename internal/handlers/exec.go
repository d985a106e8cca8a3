package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
)

// CommandOptions of [Exec] and [ExecEach].
type CommandOptions struct {
	// Argv is the command and its arguments.
	Argv []string
	// Env is the environment of the children; nil: this process's own.
	Env []string
	// Children is how many run at once. Default: one a core.
	Children int
	// Timeout of one task, or one batch, from when a child begins with it. Default 5 min.
	Timeout time.Duration
	// Batch is how many tasks a child of an Exec gets at once, at most; see [Recorded]. Default: one.
	Batch int
	// Broken is called once if the command does not work, see the package comment.
	Broken func(error)
	Log    *slog.Logger
}

func (o *CommandOptions) defaults() error {
	if len(o.Argv) == 0 {
		return errors.New("the command is empty")
	}
	// Found now, so that a misspelt command is a mistake of the command line and not of every task.
	path, err := exec.LookPath(o.Argv[0])
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the command cannot be run: %w; run `chmod +x %[2]s`, or put its "+
			"interpreter before it", err, o.Argv[0])
	}
	if err != nil {
		return fmt.Errorf("the command cannot be run: %w", err)
	}
	o.Argv = append([]string{path}, o.Argv[1:]...)
	if o.Children <= 0 {
		o.Children = runtime.GOMAXPROCS(0)
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Minute
	}
	if o.Broken == nil {
		o.Broken = func(error) {}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return nil
}

// Exec gives tasks to a pool of long-lived children. A child reads one JSON line a task on its
// standard input,
//
//	{"seq":1,"run":"0a..","segment":5,"n":17,"key":"Oslo","id":"","attempt":1,"body":{...}}
//
// and prints one line for it on its standard output before it gets the next:
//
//	{"seq":1,"ok":true}                               done; may have a "result": any JSON value
//	{"seq":1,"retry":"30s","error":"..."}             again after that time, as an attempt
//	{"seq":1,"busy":"2s","error":"..."}               not now, nor others: no attempt
//	{"seq":1,"reject":true,"error":"..."}             never: quarantined at once
//	{"seq":1,"error":"..."}                           failed: again with growing delay
//
// A task that is traced has a "traceparent" too, and a "tracestate" if there is one. seq counts the
// tasks of that child and has to be given back. The body is JSON if it is JSON, else a string, else
// "bodyBase64"; the key likewise is "key" or "keyBase64". The child ends when its input does.
//
// A child that dies, exceeds the timeout, or prints anything else is killed with its process group
// and replaced, and the task fails. A line too many does not undo the outcome before it: if the
// line is there when the child would get its next task, the child is replaced and nothing fails. If
// it comes later it is taken for the next task's answer, has the wrong seq, and fails that task. A
// child that ends with status 0 between two tasks is replaced, and no task fails.
type Exec struct {
	opts   CommandOptions
	idle   chan *slot // every slot that no task uses
	stderr *stderrLog
	ending sync.WaitGroup // children being ended
	health *health
	lines  logs.Kinds
	settle time.Duration // settleIn but for tests
	starts time.Duration // startsIn but for tests
}

// slot is the place of one child, kept while children come and go.
type slot struct {
	child     *child // nil without one
	deaths    int    // of children in a row that answered nothing
	notBefore time.Time
}

// The back-off of a slot whose children die without an answer: quick at first, because one poisoned
// task is the likelier reason, then slow, because starting a command that cannot work must not use
// up the machine.
const (
	restartBase = 100 * time.Millisecond
	restartMax  = 10 * time.Second
)

// NewExec makes the pool; children are started when they are needed.
func NewExec(o CommandOptions) (*Exec, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	e := &Exec{
		opts: o, idle: make(chan *slot, o.Children), stderr: newStderrLog(o.Log),
		health: newHealth(o.Broken), lines: logs.Kinds{Every: logs.PerTask}, settle: settleIn,
		starts: startsIn,
	}
	for range o.Children {
		e.idle <- &slot{}
	}
	return e, nil
}

// Work gives the task to a child and waits for its outcome; see [Worker].
func (e *Exec) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	a := e.give(ctx, []*pump.Task{t})[0]
	return a.result, a.err
}

// give gives tasks to a child together, and waits for their outcomes.
func (e *Exec) give(ctx context.Context, tasks []*pump.Task) []answer {
	answers := make([]answer, len(tasks))
	err := e.tryGive(ctx, tasks, answers)
	for i := range answers {
		if !answers[i].said {
			answers[i].err = err
		}
	}
	return answers
}

// tryGive says why not all tasks have an answer.
func (e *Exec) tryGive(ctx context.Context, tasks []*pump.Task, answers []answer) error {
	var s *slot
	select {
	case s = <-e.idle:
	case <-e.health.broken:
		return e.health.wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { e.idle <- s }()
	if err := e.health.wait(ctx); err != nil {
		return err
	}
	err := e.ask(ctx, s, tasks, answers)
	if errors.Is(err, errRecycled) { // at most once: a new child has answered nothing before
		e.finish(s)
		err = e.ask(ctx, s, tasks, answers)
	}
	if s.child == nil && err != nil {
		return err
	}
	if slices.ContainsFunc(answers, func(a answer) bool { return a.said }) {
		s.deaths = 0
		e.health.works()
	}
	if err != nil {
		unsaid := slices.IndexFunc(answers, func(a answer) bool { return !a.said })
		e.replace(s, tasks[max(unsaid, 0)], ctx.Err() == nil, err)
		if ended, is := err.(endedError); is && (e.health.suspect() || len(tasks) > 1) {
			err = ended.error // the cause may be the command, or another task
		}
	}
	return err
}

// ask gives tasks to the slot's child and reads its answers.
func (e *Exec) ask(ctx context.Context, s *slot, tasks []*pump.Task, answers []answer) error {
	if err := e.ready(ctx, s); err != nil {
		return err
	}
	c := s.child
	c.stderr.begin()
	o := outcomes{first: c.seq + 1, answers: answers, batch: e.opts.Batch > 1}
	// No slot keeps it for its next tasks: with a body from a blob it is long.
	request := make([]byte, 0, 1<<10)
	for i, t := range tasks {
		left := -1
		if o.batch {
			left = len(tasks) - 1 - i
		}
		c.seq++
		request = appendRequest(ctx, request, c.seq, left, t)
	}
	timeout := e.opts.Timeout
	if c.calls++; c.calls == 1 {
		timeout += e.starts
	}
	err := c.ask(ctx, request, timeout, &o)
	if err == nil && o.stray {
		e.sayReplaced(c, "it printed more than one line for a task")
		e.finish(s)
	}
	return err
}

// ready makes sure that the slot has a living child. The task does not cause a failed start, so it
// goes on waiting.
func (e *Exec) ready(ctx context.Context, s *slot) error {
	for {
		if s.child != nil && s.child.alive() {
			return nil
		}
		if s.child != nil { // ended between two tasks, as a child that recycles itself does
			e.finish(s)
		}
		if wait := time.Until(s.notBefore); wait > 0 {
			select {
			case <-time.After(wait):
			case <-e.health.broken:
			case <-ctx.Done():
			}
		}
		if err := e.health.wait(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c, err := e.start(ctx)
		if err == nil {
			s.child = c
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.health.says(e.opts.Log, err)
		s.backOff()
		e.health.doesNotStart(err)
	}
}

// settleIn is how long a new child must live before it is given a task, if its command failed and
// has never worked. Most defects of a command, such as a missing module, end the child by then, and
// so cost no further task an attempt.
const settleIn = 500 * time.Millisecond

// startsIn is how long a child may take to begin, which cannot be told from the time of its first
// task.
const startsIn = 20 * time.Second

func (e *Exec) start(ctx context.Context) (*child, error) {
	var c *child
	err := e.health.timed(e.opts.Log, func() (err error) {
		c, err = startChild(e.opts.Argv, e.opts.Env, e.stderr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("starting the command: %w", err)
	}
	if !e.health.suspect() {
		return c, nil
	}
	select {
	case <-c.exited:
		err = c.whyEnded(false)
	case <-time.After(e.settle):
		return c, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	e.ending.Go(func() { c.end(0) })
	return nil, err
}

// replace ends a child that gave no outcome to t. Blamed says that the child itself is the cause.
func (e *Exec) replace(s *slot, t *pump.Task, blamed bool, why error) {
	if blamed {
		e.sayReplaced(s.child, why)
		s.backOff()
		e.health.dies(t, why)
	}
	e.finish(s)
}

func (e *Exec) sayReplaced(c *child, why any) {
	pid := c.group.Pid()
	e.lines.Of("replaced").Add(1, func(times, _ int) {
		e.opts.Log.Warn("a child is replaced", "times", times, "pid", pid, "why", why)
	})
}

// finish ends the slot's child in the background: a child that ignores SIGTERM must not hold up the
// task's next delivery.
func (e *Exec) finish(s *slot) {
	c := s.child
	s.child = nil
	e.ending.Go(func() { c.end(0) })
}

func (s *slot) backOff() {
	s.notBefore = time.Now().Add(min(restartBase<<min(s.deaths, 10), restartMax))
	s.deaths++
}

// Amiss says why no child is started; "": all is well.
func (e *Exec) Amiss() string { return e.health.Amiss() }

// Close ends the children: it closes their input and gives them a little time to end by themselves.
// It does not wait for a child that hangs in the system, where no signal reaches it.
func (e *Exec) Close() error {
	all := make(chan struct{})
	go func() {
		defer close(all)
		for range e.opts.Children {
			s := <-e.idle
			if c := s.child; c != nil {
				e.ending.Go(func() { c.end(endPatience) })
			}
		}
		e.ending.Wait()
	}()
	select {
	case <-all:
	case <-time.After(4 * endPatience):
		KillChildren()
		return errors.New("a child has not ended, or its start has not returned; it is not waited for")
	}
	if !e.health.suspect() { // else the end says it
		e.lines.Flush()
	}
	return nil
}
