package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newExecEach(t *testing.T, o CommandOptions) *ExecEach {
	t.Helper()
	e, err := NewExecEach(o)
	must(t, err)
	return e
}

func TestTheExitStatusDecides(t *testing.T) {
	e := newExecEach(t, command("each"))
	for body, want := range map[string]string{
		"exit 1":  `the command ended with exit status 1 and said "going"`,
		"exit 65": `the command ended with exit status 65 and said "going"`,
		"exit 75": `the command ended with exit status 75 and said "going"`,
		"exit 0":  "",
		"a body":  "",
	} {
		_, err := e.Work(t.Context(), task(body))
		if want == "" {
			proof.Is(t, err, nil, body)
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v", body, err)
			continue
		}
		cause := errors.Unwrap(err)
		switch body {
		case "exit 65":
			sameError(t, err, pump.Reject(cause))
		case "exit 75":
			sameError(t, err, pump.RetryAfter(30*time.Second, cause))
		}
	}
}

func TestAProcessGetsTheBodyAndTheRestOfTheTask(t *testing.T) {
	e := newExecEach(t, command("each"))
	result, err := e.Work(t.Context(), task("a \"body\""))
	must(t, err)
	proof.Same(t, string(result), `"a \"body\""`)
	tk := task("environment")
	tk.Key, tk.ID = []byte("\xff"), strings.Repeat("x", taskline.MaxKey+1)
	result, err = e.Work(t.Context(), tk)
	must(t, err)
	want := `"QUEUEPUMP_TASK_RUN=ab000000000000000000000000000000\nQUEUEPUMP_TASK_SEGMENT=5\nQUEUEPUMP_TASK_N=17\nQUEUEPUMP_TASK_EPOCH=1152921504606846976\nQUEUEPUMP_TASK_ATTEMPT=2\nQUEUEPUMP_TASK_KEY_BASE64=/w=="`
	proof.Same(t, string(result), want)
}

// TestACommandThatTheShellCannotFindIsReported before a task has lost all its attempts.
func TestACommandThatTheShellCannotFindIsReported(t *testing.T) {
	var reported []error
	e := newExecEach(t, CommandOptions{Argv: []string{"sh", "-c", "no-such-command-here"}, Children: 1, Broken: func(err error) { reported = append(reported, err) }})
	for range unusableStarts + 1 { // the last after unusableTime
		if _, err := e.Work(t.Context(), task("x")); err == nil || errors.Is(err, errUntried) {
			t.Fatalf("got %v", err)
		}
	}
	_, err := e.Work(t.Context(), task("x"))
	sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenCommand)))
	if len(reported) != 1 || !strings.Contains(reported[0].Error(), "exit status 127") {
		t.Errorf("reported %v", reported)
	}
}

// TestACommandThatFailsEachTaskIsNotBroken: each status is one attempt's failure, and what all tasks
// have in common is the operator's to see. It ended the processor after 20 tasks and a second.
func TestACommandThatFailsEachTaskIsNotBroken(t *testing.T) {
	e := newExecEach(t, CommandOptions{Argv: []string{"false"}, Children: 1, Broken: func(err error) { t.Errorf("reported %v", err) }})
	for n := range 30 {
		_, err := e.Work(t.Context(), &pump.Task{N: uint64(n)})
		if err == nil || err.Error() != "the command ended with exit status 1" {
			t.Fatalf("task %d: %v", n, err)
		}
	}
}

// TestATaskThatIsGivenUpBeforeItsProcessBeginsSaysNothingOfTheCommand: it looked as if the machine
// had no process left, which often enough in a row is a command that does not work.
func TestATaskThatIsGivenUpBeforeItsProcessBeginsSaysNothingOfTheCommand(t *testing.T) {
	var log proof.Buffer
	e := newExecEach(t, CommandOptions{
		Argv: []string{"true"}, Children: 1, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Broken: func(err error) { t.Errorf("reported %v", err) },
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	for range 200 { // half of them find a place before they see that they are given up
		if _, err := e.Work(ctx, task("x")); err == nil || err.Error() != "stopped" {
			t.Fatalf("got %v", err)
		}
	}
	proof.Same(t, log.String(), "", "the log says")
}

func TestAProcessThatHangsIsEnded(t *testing.T) {
	o := command("each")
	o.Timeout = 100 * time.Millisecond
	e := newExecEach(t, o)
	if _, err := e.Work(t.Context(), task("hang")); !isLate(err) || err.Error() != "not ended within 100ms" {
		t.Errorf("got %v", err)
	}
}

func TestABodyThatTheProcessDoesNotReadIsNoFailure(t *testing.T) {
	e := newExecEach(t, CommandOptions{Argv: []string{"true"}, Children: 1})
	must(t, proof.ErrOf(e.Work(t.Context(), task(strings.Repeat("x", 1<<20)))))
}

func TestMoreOutputThanAResultMayHaveIsAFailure(t *testing.T) {
	e := newExecEach(t, CommandOptions{Argv: []string{"head", "-c", "2000000", "/dev/zero"}, Children: 1})
	proof.Same(t, fmt.Sprint(proof.ErrOf(e.Work(t.Context(), task("")))), "the command printed more than 1024 KiB")
}
