package handlers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/group"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// The exit statuses of a process that mean something, from sysexits.h.
const (
	exitDataErr  = 65 // EX_DATAERR: the input was incorrect
	exitTempFail = 75 // EX_TEMPFAIL: the user is invited to retry
	// A shell's statuses for a command that it cannot execute, or cannot find.
	exitNotExecutable = 126
	exitNotFound      = 127
)

// tempFailDelay is the time until a task is delivered again if its process said EX_TEMPFAIL.
const tempFailDelay = 30 * time.Second

// ExecEach runs one process a task. The body is its standard input, the rest
// of the task is in its environment:
//
//	QUEUEPUMP_TASK_RUN, _SEGMENT, _N   the task's identity
//	QUEUEPUMP_TASK_KEY                 or QUEUEPUMP_TASK_KEY_BASE64
//	QUEUEPUMP_TASK_ID, _ATTEMPT
//	QUEUEPUMP_TASK_EPOCH               [pump.Task]'s Epoch
//	QUEUEPUMP_TASK_FOREIGN             only of a message that no distributor made
//	TRACEPARENT, TRACESTATE                         only of a task that is traced
//
// Its exit status is the outcome: 0 done, 65 (EX_DATAERR) rejected, 75
// (EX_TEMPFAIL) again in 30 s, anything else or a signal failed. Its standard
// output is the result, up to 1 MiB.
type ExecEach struct {
	opts   CommandOptions
	idle   chan struct{}
	stderr *stderrLog
	health *health
}

// NewExecEach checks that the command can be found.
func NewExecEach(o CommandOptions) (*ExecEach, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	// The trace context in which this process was started does not belong to a task.
	o.Env = slices.DeleteFunc(slices.Clone(o.Env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name == "TRACEPARENT" || name == "TRACESTATE"
	})
	return &ExecEach{
		opts: o, idle: make(chan struct{}, o.Children), stderr: newStderrLog(o.Log),
		health: newHealth(o.Broken),
	}, nil
}

// Amiss says why no process is started; "": all is well.
func (e *ExecEach) Amiss() string { return e.health.Amiss() }

// Work runs a process for the task and waits for its end; see [Worker].
func (e *ExecEach) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	select {
	case e.idle <- struct{}{}:
	case <-e.health.broken:
		return nil, e.health.wait(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-e.idle }()
	for {
		if err := e.health.wait(ctx); err != nil {
			return nil, err
		}
		out, err := e.run(ctx, t)
		startErr, notStarted := errors.AsType[*startError](err)
		if !notStarted {
			e.watch(ctx, t, err)
			return out, err
		}
		// The task is not the cause: it waits until processes can be started again.
		e.health.says(e.opts.Log, startErr)
		e.health.doesNotStart(startErr)
		select {
		case <-time.After(time.Second):
		case <-e.health.broken:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// watch tells the health what became of a task's process. A command that was started works: its
// end, with any status, is the outcome of this attempt.
func (e *ExecEach) watch(ctx context.Context, t *pump.Task, err error) {
	exit, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && ctx.Err() != nil: // says nothing
	case isExit && (exit.ExitCode() == exitNotExecutable || exit.ExitCode() == exitNotFound):
		e.health.cannotRun(t, err)
	default:
		e.health.works()
	}
}

type startError struct{ err error }

func (e *startError) Error() string { return "starting the command: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

func (e *ExecEach) run(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	late := lateError(fmt.Sprintf("not ended within %v", e.opts.Timeout))
	limited, cancel := context.WithTimeoutCause(ctx, e.opts.Timeout, late)
	defer cancel()
	cmd := exec.CommandContext(limited, e.opts.Argv[0], e.opts.Argv[1:]...)
	group.Own(cmd)
	cmd.Env = append(e.opts.Env[:len(e.opts.Env):len(e.opts.Env)], taskEnv(ctx, t)...)
	cmd.Stdin = bytes.NewReader(t.Body)
	var out, said head
	out.max, said.max = maxAnswer, 64<<10
	cmd.Stdout, cmd.Stderr = &out, &said
	var all *group.Group
	started := make(chan struct{}) // all is set
	cmd.Cancel = func() error {
		<-started
		all.Terminate()
		return nil
	}
	cmd.WaitDelay = endPatience // then it is killed, and its pipes are closed

	err := e.health.timed(e.opts.Log, func() error { return startTied(cmd) })
	if err != nil {
		if limited.Err() != nil { // the task has ended before its process began
			return nil, context.Cause(limited)
		}
		return nil, &startError{err}
	}
	all = group.New(cmd)
	close(started)
	running.Store(all, true)
	err = all.Wait(true, cmd.Wait) // processes that it left behind are killed
	running.Delete(all)
	last := newSaid(e.stderr)
	last.add(said.b)
	last.end()
	if limited.Err() != nil {
		return nil, context.Cause(limited)
	}
	exit, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	// a grandchild kept a pipe; its parent is done
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		if out.cut {
			return nil, fmt.Errorf("the command printed more than %d KiB", maxAnswer>>10)
		}
		return taskline.AsResult(out.b), nil
	case !isExit:
		return nil, err
	}
	why := fmt.Errorf("the command ended with %w", exit)
	if line := last.lastOne(); line != "" {
		why = fmt.Errorf("%w and said %q", why, line)
	}
	switch exit.ExitCode() {
	case -1: // by a signal
		return nil, endedError{why}
	case exitDataErr:
		return nil, pump.Reject(why)
	case exitTempFail:
		return nil, pump.RetryAfter(tempFailDelay, why)
	}
	return nil, why
}

func taskEnv(ctx context.Context, t *pump.Task) []string {
	env := []string{
		"QUEUEPUMP_TASK_RUN=" + t.Run.String(),
		"QUEUEPUMP_TASK_SEGMENT=" + strconv.FormatUint(uint64(t.Segment), 10),
		"QUEUEPUMP_TASK_N=" + strconv.FormatUint(t.N, 10),
		"QUEUEPUMP_TASK_EPOCH=" + strconv.FormatUint(t.Epoch, 10),
		"QUEUEPUMP_TASK_ATTEMPT=" + strconv.Itoa(t.Attempt),
	}
	add := func(name, value string) {
		switch {
		case len(value) > taskline.MaxKey: // Linux takes 128 KiB a string
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			env = append(env, name+"_BASE64="+base64.StdEncoding.EncodeToString([]byte(value)))
		default:
			env = append(env, name+"="+value)
		}
	}
	add("QUEUEPUMP_TASK_KEY", string(t.Key))
	add("QUEUEPUMP_TASK_ID", t.ID)
	if t.Foreign != "" {
		add("QUEUEPUMP_TASK_FOREIGN", t.Foreign)
	}
	if parent, state := t.TraceContext(ctx); parent != "" {
		add("TRACEPARENT", parent)
		if state != "" {
			add("TRACESTATE", state)
		}
	}
	return env
}

// head keeps the first max bytes written to it. It takes the rest too: a process must not block or
// die because its output is not read.
type head struct {
	b   []byte
	max int
	cut bool
}

func (w *head) Write(p []byte) (int, error) {
	keep := min(len(p), w.max-len(w.b))
	w.b = append(w.b, p[:keep]...)
	w.cut = w.cut || keep < len(p)
	return len(p), nil
}
