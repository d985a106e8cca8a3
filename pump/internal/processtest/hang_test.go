package processtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// pipeHolds is how much the kernel holds for the reader of a pipe.
const pipeHolds = 64 << 10

func fifo(t *testing.T, path string) string {
	t.Helper()
	must(t, syscall.Mkfifo(path, 0o600))
	return path
}

// distributed is a world with so many tasks in its queues.
func distributed(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t, 1, 2)
	w.fill(n, "--key", "city", "--pack", "20")
	return w
}

// left takes what is in the queues, untried so far.
func (w *world) left() []done {
	w.t.Helper()
	out := w.path("left.jsonl")
	start(w.t, "processor", "run", "--config", w.config, "--out", out, "--until-idle", "2s").succeeds()
	all := readDone(w.t, out)
	firstTries(w.t, all)
	return all
}

// TestOutIntoAPipeWhoseReaderLeavesRecordsOnlyWhatThePipeHolds as `--out /dev/stdout | head` does.
// It recorded tasks as done as long as there was room in a pipe that no process would read.
func TestOutIntoAPipeWhoseReaderLeavesRecordsOnlyWhatThePipeHolds(t *testing.T) {
	t.Parallel()
	const n = 6000
	w := distributed(t, n)
	r, out, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(filepath.Join(bin, "processor"), "run", "--config", w.config, "--out", "/dev/stdout")
	cmd.Stdout = out
	p := startAs(t, "processor", cmd)
	_ = out.Close()
	read := 0
	for lines := bufio.NewReader(r); read < 100; read++ {
		must(t, errOf(lines.ReadString('\n')))
	}
	_ = r.Close()
	if code := p.wait(); code != 1 || !strings.Contains(p.log.String(), "its reader is gone") {
		t.Errorf("exit status %d: %s", code, p.log.String())
	}
	// What bufio has read ahead and what the pipe held is gone, and no more. A line has over 100 bytes.
	left := len(w.left())
	if recorded := n - left; recorded > read+(pipeHolds+4096)/100 || left == 0 {
		t.Errorf("%d tasks were recorded, %d lines were read", recorded, read)
	}
}

// TestAPipeThatNobodyReadsHoldsUpNoStartAndNoEnd: one without a reader, and one whose reader does
// not read.
func TestAPipeThatNobodyReadsHoldsUpNoStartAndNoEnd(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"no reader": "it is a pipe that no process reads", "it does not read": "a write has not returned"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 2000
			w := distributed(t, n)
			pipe := fifo(t, w.path("pipe"))
			if name != "no reader" {
				r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
				must(t, err)
				defer r.Close()
			}
			p := start(t, "processor", "run", "--config", w.config, "--out", pipe, "--out-patience", "1h", "--grace", "1s")
			address := p.admin()
			p.until("it is not ready, and says why", func() bool {
				status, body := ask(t, address, "/readyz")
				return status == 503 && strings.Contains(body, says)
			})
			p.says("nothing is settled until this")
			p.signal(syscall.SIGTERM)
			code, most := 0, 0
			if name != "no reader" {
				code, most = 1, pipeHolds/100
			}
			proof.Same(t, p.wait(), code, "exit status")
			if left := len(w.left()); left < n-most {
				t.Errorf("%d tasks are left of %d", left, n)
			}
			if name == "no reader" { // there is no task any more that would need one
				start(t, "processor", "run", "--config", w.config, "--out", pipe, "--until-idle", "1s").succeeds()
			}
		})
	}
}

// TestAPipeThatIsNotReadEndsAProcessAfterItsPatience, with status 1 and every task given back.
func TestAPipeThatIsNotReadEndsAProcessAfterItsPatience(t *testing.T) {
	t.Parallel()
	const n = 500
	w := distributed(t, n)
	pipe := fifo(t, w.path("pipe"))
	p := start(t, "processor", "run", "--config", w.config, "--out", pipe, "--out-patience", "1s", "--grace", "10m")
	if code := p.wait(); code != 1 || !strings.Contains(p.log.String(), "pipe cannot be written: it is a pipe that no process reads") {
		t.Errorf("exit status %d", code)
	}
	requireEachOnceNamed(t, w.left(), n)
}

// Test32ChildrenThatHangAreLeftWithinTheGrace: they ignore the end of their input and SIGTERM.
func Test32ChildrenThatHangAreLeftWithinTheGrace(t *testing.T) {
	t.Parallel()
	const n = 64
	w := distributed(t, n)
	begun := w.path("begun")
	must(t, os.Mkdir(begun, 0o700))
	writeText(t, w.path("worker"), fmt.Sprintf("trap '' TERM\nread -r line\n: >%s/$$\nwhile :; do sleep 1; done\n", begun))
	p := start(t, "processor", "run", "--config", w.config, "--exec", "sh "+w.path("worker"), "--children", "32", "--grace", "1s")
	p.until("all hang", func() bool {
		all, err := os.ReadDir(begun)
		return err == nil && len(all) == 32
	})
	stop(p)
	requireEachOnceNamed(t, w.left(), n)
}

// TestSIGHUPDoesNotEndAProcessThatHasOnlyBegun: it came before the configuration was read, and ended
// the process. It still ends a command that takes nothing new from a configuration.
func TestSIGHUPDoesNotEndAProcessThatHasOnlyBegun(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"processor", "run", "--discard", "--until-idle", "100ms"},
		{"distributor", "run", "--input", "tasks.jsonl"},
		{"distributor", "status"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			w := distributed(t, 5)
			text := w.text(w.config)
			pipe := fifo(t, w.path("config"))
			cmd := exec.Command(filepath.Join(bin, args[0]), append(args[1:], "--config", pipe)...)
			cmd.Dir = w.dir
			p := startAs(t, args[0], cmd)
			config, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the process reads it
			must(t, err)
			defer config.Close()
			p.signal(syscall.SIGHUP)
			// A process that ignores it, as under nohup, has children that do.
			if args[1] == "status" && !signal.Ignored(syscall.SIGHUP) {
				if p.wait(); p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
					t.Errorf("it ended with %v", p.cmd.ProcessState)
				}
				return
			}
			must(t, errOf(config.WriteString(text)))
			_ = config.Close()
			p.succeeds()
		})
	}
}
