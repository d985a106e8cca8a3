package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

func newExec(t *testing.T, o CommandOptions) *Exec {
	t.Helper()
	e, err := NewExec(o)
	must(t, err)
	e.starts = 0
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// The time in which a child begins is not its first task's.
func TestTheFirstTaskOfAChildHasTheTimeInWhichItStarts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no sh")
	}
	e := newExec(t, CommandOptions{Argv: []string{"sh", "-c", `sleep 0.3; read l; echo '{"seq":1,"ok":true}'; read l; sleep 60`}, Children: 1, Timeout: 50 * time.Millisecond})
	e.starts = time.Minute
	must(t, proof.ErrOf(e.Work(t.Context(), task("x"))))
	if _, err := e.Work(t.Context(), task("x")); !isLate(err) {
		t.Errorf("the second one: %v", err)
	}
}

func TestAChildGetsOneLineATaskAndItsResultComesBack(t *testing.T) {
	e := newExec(t, command("echo"))
	for i, body := range []string{`{"a": [1,` + "\n" + `2]}`, "plain <text>", "\xff"} {
		result, err := e.Work(t.Context(), task(body))
		must(t, err)
		want := `{"seq":` + strconv.Itoa(i+1) + `,"run":"ab000000000000000000000000000000","segment":5,"n":17,"key":"Oslo","id":"a1","epoch":1152921504606846976,"attempt":2,` +
			[]string{`"body":{"a":[1,2]}`, `"body":"plain <text>"`, `"bodyBase64":"/w=="`}[i] + "}"
		proof.Same(t, string(result), want, "the child read")
	}
}

// A body from a blob comes in one line as any other does. If it is its own key, it stands there once,
// and not in the line of its result.
func TestAChildReadsALargeBodyInItsLine(t *testing.T) {
	e, tk := newExec(t, command("echo")), task(`"`+strings.Repeat("x", 10_000_000)+`"`)
	for _, tk.Key = range [][]byte{tk.Key, tk.Body} {
		result, err := e.Work(t.Context(), tk)
		want := fmt.Sprintf("[10000000,%d]", len(tk.Key)%len(tk.Body))
		if line := taskline.AppendResult(nil, tk, result); err != nil || string(result) != want || len(line) > 200 {
			t.Errorf("%s, %v, in a line of %d bytes", result, err, len(line))
		}
	}
}

// TestAChildThatFailsATaskCostsThatTaskARetry: it dies, hangs, or prints what
// is not an outcome; the task fails, the next one is done by a new child.
func TestAChildThatFailsATaskCostsThatTaskARetry(t *testing.T) {
	for does, want := range map[string]string{
		"die":       `the child ended (exit status 7) and said "cannot go on"`,
		"garbage":   `the child printed "hello", which is not an outcome: invalid character 'h' looking for beginning of value`,
		"endless":   "the child printed a line of more than 1024 KiB",
		"wrong seq": `the child printed "{\"seq\":2,\"ok\":true}", which is not an outcome: its seq is 2, and the task's is 1; print one line a task, in order`,
	} {
		t.Run(does, func(t *testing.T) {
			e := newExec(t, command("echo"))
			_, err := e.Work(t.Context(), task(does))
			proof.Same(t, fmt.Sprint(err), want)
			proof.Is(t, proof.ErrOf(e.Work(t.Context(), task("next"))), nil, "the next task")
			// The processor counts a death of a child once the command is known to work.
			_, again := e.Work(t.Context(), task(does))
			if ends(err) || ends(again) != (does == "die") {
				t.Errorf("the processor would take %v, and then %v, for a child's end: %v, %v", err, again, ends(err), ends(again))
			}
		})
	}
}

// ends is whether an error says of itself that the child ended with its task.
func ends(err error) bool {
	_, is := errors.AsType[interface {
		error
		Ended()
	}](err)
	return is
}

// isLate is whether an error says of itself that it is one of time, as spans have it.
func isLate(err error) bool {
	late, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && late.Timeout()
}

func TestAChildThatHangsIsKilledWithAllItsChildren(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	e := newExec(t, command("echo", "PIDFILE="+pidFile))
	long := e.opts.Timeout
	must(t, proof.ErrOf(e.Work(t.Context(), task("shell"))))
	e.opts.Timeout = 100 * time.Millisecond
	_, err := e.Work(t.Context(), task("hang"))
	if !isLate(err) || err.Error() != "no outcome within 100ms" {
		t.Fatalf("got %v", err)
	}
	e.opts.Timeout = long
	if _, err := e.Work(t.Context(), task("next")); err != nil {
		t.Fatalf("the next task: %v", err)
	}
	_ = e.Close() // waits for the ends
	e.idle <- &slot{}
	text, err := os.ReadFile(pidFile)
	must(t, err)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	waitFor(t, "the grandchild's end", func() bool { return gone(pid) })
}

// TestOneTasksSecondLineIsNotTheNextTasksOutcome is the mistake that the
// sequence number exists for.
func TestOneTasksSecondLineIsNotTheNextTasksOutcome(t *testing.T) {
	e := newExec(t, command("echo"))
	must(t, proof.ErrOf(e.Work(t.Context(), task("twice"))))
	// Whether the line is there already or comes too late, the task's answer is its own.
	result, err := e.Work(t.Context(), task("second"))
	if err == nil && !strings.Contains(string(result), "second") {
		t.Errorf("got the outcome %s", result)
	}
}

func TestAChildThatEndsBetweenTasksCostsNothing(t *testing.T) {
	e := newExec(t, command("echo"))
	seen := map[string]bool{}
	for i := range 8 {
		do := []string{"pid", "pid and end"}[i%2] // each child does two
		result, err := e.Work(t.Context(), task(do))
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
		seen[string(result)] = true
	}
	proof.Same(t, len(seen), 4, "children of four that did 8 tasks")
}

// TestAChildThatLeavesAProcessBehindEndsBetweenTasksToo: that one keeps its standard error open.
func TestAChildThatLeavesAProcessBehindEndsBetweenTasksToo(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not here; a process needs it to leave its group")
	}
	// It has left, for it closes its output after that, when the child answers and ends.
	script := `read x; y=$(setsid sh -c 'exec sleep 10 <&- >&-' &); echo '{"seq":1,"ok":true}'`
	e := newExec(t, CommandOptions{Argv: []string{"sh", "-c", script}, Children: 1})
	for range 3 {
		proof.Is(t, proof.ErrOf(e.Work(t.Context(), task("x"))), nil)
	}
}

func TestATaskThatIsGivenUpEndsItsChild(t *testing.T) {
	hangs := filepath.Join(t.TempDir(), "hangs")
	e := newExec(t, command("echo", "HANGS="+hangs))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for {
			if _, err := os.Stat(hangs); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cancel(errors.New("lease lost"))
	}()
	proof.Same(t, fmt.Sprint(proof.ErrOf(e.Work(ctx, task("hang")))), "lease lost")
	proof.Is(t, proof.ErrOf(e.Work(t.Context(), task("next"))), nil, "the next task")
	if e.health.suspect() {
		t.Error("the command was blamed")
	}
}

// TestTheEndOfATasksContextIsNotTheNextTasks: it may come just after the task's answer.
func TestTheEndOfATasksContextIsNotTheNextTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		end := limit(ctx, time.Now(), func(time.Time) { set.Add(1) })
		cancel()
		end()
		before := set.Load()
		synctest.Wait()
		if before != 2 || set.Load() != before {
			t.Errorf("a deadline was set %d times, and %d times afterwards", before, set.Load()-before)
		}
	})
}

// TestACommandThatCannotWorkIsReportedAndCostsOneTaskAnAttempt: after that the
// handler sees that no child lives long enough to be given a task.
func TestACommandThatCannotWorkIsReportedAndCostsOneTaskAnAttempt(t *testing.T) {
	var reported []error
	e := newExec(t, CommandOptions{
		Argv: []string{"sh", "-c", `echo "no such module" >&2; exit 3`}, Children: 1,
		Broken: func(err error) { reported = append(reported, err) },
	})
	e.settle = time.Hour // it ends before that, however slow the machine is
	const why = `the child ended (exit status 3) and said "no such module"`
	if _, err := e.Work(t.Context(), task("x")); err == nil || err.Error() != why {
		t.Fatalf("the first task: %v", err)
	}
	for range 2 {
		_, err := e.Work(t.Context(), task("x"))
		sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenCommand)))
	}
	if len(reported) != 1 || reported[0].Error() != "the command does not work (4 failures in a row); the last: "+why {
		t.Fatalf("reported %v", reported)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	proof.Same(t, fmt.Sprint(proof.ErrOf(e.Work(ctx, task("x")))), "stopped")
}

func TestAnOutcomeMeansWhatItSays(t *testing.T) {
	for line, want := range map[string]error{
		`{"seq":1,"ok":true}`:                                  nil,
		`{"seq":1,"ok":true,"result":null,"more":1}`:           nil,
		`{"seq":1,"retry":"30s","error":"busy"}`:               pump.RetryAfter(30*time.Second, errors.New("busy")),
		`{"seq":1,"retry":"0s"}`:                               pump.RetryAfter(0, errors.New("the command asked for a retry")),
		`{"seq":1,"busy":"2s","error":"full"}`:                 pump.Busy(2*time.Second, errors.New("full")),
		`{"seq":1,"busy":"0s"}`:                                pump.Busy(0, errors.New("the command is busy")),
		`{"seq":1,"reject":true,"error":"no such city"}`:       pump.Reject(errors.New("no such city")),
		`{"seq":1,"reject":true}`:                              pump.Reject(errors.New("the command rejected it")),
		`{"seq":1,"ok":false,"error":"boom"}`:                  errors.New("boom"),
		`{"seq":1,"error":"` + strings.Repeat("é", 600) + `"}`: errors.New(strings.Repeat("é", 250) + "..."),
	} {
		_, task, garbage := parseOutcome([]byte(line), 1)
		if garbage != nil {
			t.Errorf("%s: %v", line, garbage)
		}
		sameError(t, task, want)
	}
}

func TestWhatIsNoOutcomeIsRefusedWithTheReason(t *testing.T) {
	for line, want := range map[string]string{
		``:                                    "unexpected end of JSON input",
		`{"ok":true}`:                         `it has no "seq"; give back that of the task`,
		`{"seq":1}`:                           `it has none of "ok":true, "retry", "busy", "reject":true and "error"`,
		`{"seq":1,"ok":false}`:                `it has none of "ok":true`,
		`{"seq":1,"ok":true,"reject":true}`:   "it has more than one of ok, retry, busy and reject",
		`{"seq":1,"retry":"1s","busy":"2s"}`:  "it has more than one of",
		`{"seq":1,"busy":"soon"}`:             `"busy" is not a duration such as "2s"`,
		`{"seq":1,"retry":"soon"}`:            `"retry" is not a duration such as "30s"`,
		`{"seq":1,"retry":"-1s"}`:             `"retry" is not a duration such as "30s"`,
		`{"seq":1,"retry":30}`:                "cannot unmarshal number",
		`{"seq":1,"ok":true}{"seq":1}`:        "after top-level value",
		`[1]`:                                 "cannot unmarshal array",
		`{"seq":2,"ok":true}`:                 "its seq is 2, and the task's is 1",
		`{"seq":1,"ok":true` + "\x00" + `}`:   "invalid character",
		`{"seq":18446744073709551616,"ok":1}`: "cannot unmarshal number",
	} {
		_, _, garbage := parseOutcome([]byte(line), 1)
		if garbage == nil || !strings.Contains(garbage.Error(), want) {
			t.Errorf("%q: got %v, want %s", line, garbage, want)
		}
	}
}

func TestAChildGetsTheEnvironmentItIsGivenAndNoOther(t *testing.T) {
	t.Setenv("SECRET", "hunter2")
	o := command("echo")
	o.Env = []string{modeVariable + "=echo", "HARMLESS=yes"}
	e := newExec(t, o)
	result, err := e.Work(t.Context(), task("env"))
	must(t, err)
	proof.Same(t, string(result), `["`+modeVariable+`=echo","HARMLESS=yes"]`, "the child's environment")
}

func TestACommandThatDoesNotExistIsFoundAtOnce(t *testing.T) {
	proof.Says(t, proof.ErrOf(NewExec(CommandOptions{Argv: []string{"no-such-command-here"}})), "no-such-command-here")
	proof.Says(t, proof.ErrOf(NewExecEach(CommandOptions{})), "the command is empty")
}

func TestStandardErrorCannotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes
		l := newStderrLog(discard())
		s := newSaid(l)
		s.add([]byte(strings.Repeat("line\n", 2*logBurst) + strings.Repeat("x", 10*logLine) + "\nthe end\n"))
		proof.Same(t, l.dropped, logBurst+2, "lines were left out")
		proof.Same(t, s.lastOne(), "the end", "the last line")
	})
}

func gone(pid int) bool {
	err := syscall.Kill(pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return true
	}
	// Dead but not waited for, where no process adopts orphans.
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Contains(string(stat), ") Z ")
}

// waitFor waits for something that happens outside of this process.
func waitFor(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// TestAChildThatDoesNotReadItsTaskIsSaid long before the time for the task is over.
func TestAChildThatDoesNotReadItsTaskIsSaid(t *testing.T) {
	var log proof.Buffer
	e := newExec(t, CommandOptions{
		Argv: []string{"sleep", "1000"}, Children: 1, Timeout: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitFor(t, "the line", func() bool { return strings.Contains(log.String(), "a child does not read its task") })
		cancel(errors.New("stopped"))
	}()
	// More than a pipe holds.
	proof.Same(t, fmt.Sprint(proof.ErrOf(e.Work(ctx, task(strings.Repeat("x", 1<<20))))), "stopped")
}

// TestClosingWaitsForNoChildThatNeverEnds: one that hangs in the system gets no signal. A task in
// work for ever stands for it.
func TestClosingWaitsForNoChildThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := NewExec(CommandOptions{Argv: []string{"true"}, Children: 2})
		must(t, err)
		s := <-e.idle
		began := time.Now()
		if err := e.Close(); err == nil || time.Since(began) != 4*endPatience {
			t.Errorf("closing it: %v after %v", err, time.Since(began))
		}
		e.idle <- s
	})
}
