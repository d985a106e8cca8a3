package processtest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

// bin is where the binaries are.
var bin string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "queuepump-bin"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	args := []string{"build", "-o", bin + string(filepath.Separator)}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../../../cmd/distributor", "../../../cmd/processor", "../../../loadtest",
		"../../../loadtest/azsim/cmd/azsim")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the binaries:", err)
		return 1
	}
	// The tests wait for other processes most of their time, so more of them
	// than cores can go on at once.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait for another process: far above what any takes on
// a busy machine, so that reaching it means that what was waited for will not come.
const patience = 5 * time.Minute

// process is a binary that runs, or has run.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{}

	out, log proof.Buffer
}

// start starts a binary; it is killed when the test ends.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startEnv(t, nil, name, args...)
}

func startEnv(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	return startCommand(t, env, name, filepath.Join(bin, name), args...)
}

func startCommand(t *testing.T, env []string, name, path string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	return startAs(t, name, cmd)
}

// startAs starts what is prepared; it keeps what has no output yet.
func startAs(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.log
	}
	// A child that outlives a killed processor must not hold the pipes, and the test with them.
	p.cmd.WaitDelay = time.Second
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s %s: %v\nstandard output:\n%s\nstandard error:\n%s", name, strings.Join(cmd.Args[1:], " "), p.cmd.ProcessState, tail(p.out.String()), tail(p.log.String()))
		}
	})
	return p
}

func tail(s string) string {
	const keep = 6000
	if len(s) > keep {
		return "..." + s[len(s)-keep:]
	}
	return s
}

// wait waits for the end of the process and gives its exit status.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// succeeds waits for the end of the process, which must be a good one.
func (p *process) succeeds() {
	p.t.Helper()
	if code := p.wait(); code != 0 {
		p.t.Fatalf("%s: exit status %d", p.name, code)
	}
}

// says waits until the process has logged a text.
func (p *process) says(text string) {
	p.t.Helper()
	p.until("its log says "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// until waits until something holds, while the process runs.
func (p *process) until(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		select {
		case <-p.done:
			if holds() {
				return
			}
			p.t.Fatalf("%s ended before %s", p.name, what)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: waited in vain until %s", p.name, what)
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// kill is kill -9.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// sent is the summary of a distributor.
type sent struct {
	Run         string
	Tasks       int64
	Envelopes   int64
	BytesIn     int64
	BytesSent   int64
	Requests    pump.Requests
	Throttled   int64
	Seconds     float64
	Skipped     int64
	Quarantined int64
	Resumed     bool
}

// summary decodes the JSON object that the process printed, in which no other
// line may stand beside it.
func (p *process) summary(into any) {
	p.t.Helper()
	text := strings.TrimSpace(p.out.String())
	if strings.Contains(text, "\n") {
		p.t.Fatalf("%s printed more than one line:\n%s", p.name, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		p.t.Fatalf("%s printed %q: %v", p.name, text, err)
	}
}
