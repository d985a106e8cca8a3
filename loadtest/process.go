package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/group"
)

// process is one of the binaries under trial, running.
type process struct {
	name string
	cmd  *exec.Cmd
	out  bytes.Buffer // standard output: the summary; complete once done is closed
	log  *slog.Logger
	done chan struct{}
	err  error // how it ended; valid once done is closed

	mu     sync.Mutex // guards what follows
	last   []string   // lines of standard error
	values map[string]float64
	shown  map[string]bool // warnings that were relayed
	causes []string        // of quarantined tasks, each once
}

const (
	// keptLines is how many of a process's last lines are shown if it fails.
	keptLines = 15
	// keptCauses is how many different causes of quarantined tasks are kept.
	keptCauses = 3
	// maxShown is how many different warnings of a process are relayed.
	maxShown = 50
)

// processes are all that run, for killProcesses.
var processes sync.Map

// killProcesses ends everything at once.
func killProcesses() {
	processes.Range(func(p, _ any) bool {
		_ = p.(*process).cmd.Process.Kill()
		return true
	})
}

// startProcess starts a binary whose log is JSON. The process has a process group of its own:
// otherwise Ctrl-C at the terminal would be the first signal for all of them, and ours the second.
func startProcess(name string, log *slog.Logger, path string, args ...string) (*process, error) {
	p := &process{
		name: name, cmd: exec.Command(path, args...), log: log, done: make(chan struct{}),
		values: map[string]float64{}, shown: map[string]bool{},
	}
	group.Own(p.cmd)
	p.cmd.Stdout = &p.out
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	processes.Store(p, true)
	go func() {
		p.read(stderr)
		p.err = p.cmd.Wait()
		processes.Delete(p)
		close(p.done)
	}()
	return p, nil
}

// read takes the log of the process: its progress, what is worth showing, and the last lines.
func (p *process) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var record map[string]any
		if json.Unmarshal(lines.Bytes(), &record) == nil && record["msg"] == "progress" {
			p.note(record)
			continue
		}
		p.mu.Lock()
		p.last = append(p.last, lines.Text())
		if len(p.last) > keptLines {
			p.last = p.last[1:]
		}
		p.mu.Unlock()
		if level, _ := record["level"].(string); level == "WARN" || level == "ERROR" {
			p.relay(record)
		}
	}
	_, _ = io.Copy(io.Discard, stderr) // a line beyond the buffer: the process must not block
}

// relay shows a warning of the process with its reason. Of equal warnings, which come with every
// message, it shows the first.
func (p *process) relay(record map[string]any) {
	msg := fmt.Sprint(record["msg"])
	var attrs []any
	for _, name := range []string{"error", "why", "reason", "detail", "note"} {
		if v, ok := record[name]; ok {
			attrs = append(attrs, name, v)
		}
	}
	text := msg + fmt.Sprint(attrs...)
	p.mu.Lock()
	show := !p.shown[text] && len(p.shown) < maxShown
	if show {
		p.shown[text] = true
	}
	if cause := causeOf(record); msg == "quarantined" && len(p.causes) < keptCauses &&
		!slices.Contains(p.causes, cause) {
		p.causes = append(p.causes, cause)
	}
	p.mu.Unlock()
	if show {
		p.log.Warn(p.name+": "+msg, attrs...)
	}
}

// causeOf is why tasks were quarantined, in the words of the processor's log.
func causeOf(record map[string]any) string {
	reason, _ := record["reason"].(string)
	if detail, _ := record["detail"].(string); detail != "" {
		return reason + ": " + detail
	}
	return reason
}

// quarantineCauses are the first different causes that the process logged.
func (p *process) quarantineCauses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.causes)
}

func (p *process) note(record map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, v := range record {
		if n, ok := v.(float64); ok {
			p.values[name] = n
		}
	}
}

// value is a number of the progress that the process logged last.
func (p *process) value(name string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(p.values[name])
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

// stop asks the process to end, and after patience kills it.
func (p *process) stop(patience time.Duration) {
	group.Stop(p.cmd.Process)
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// failure is the error of a process that ended badly, with its last lines.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	said := strings.Join(p.last, "\n  ")
	if said == "" {
		return fmt.Errorf("the %s ended with %w", p.name, p.err)
	}
	return fmt.Errorf("the %s ended with %w; its last lines:\n  %s", p.name, p.err, said)
}

// summary decodes the JSON object that the process printed.
func (p *process) summary(into any) error {
	if err := p.failure(); err != nil {
		return err
	}
	if err := json.Unmarshal(p.out.Bytes(), into); err != nil {
		return fmt.Errorf("the summary of the %s: %w", p.name, err)
	}
	return nil
}

// sibling is the path of a binary beside this one.
func sibling(name string) string {
	self, _ := os.Executable() // without it the name is looked up
	return filepath.Join(filepath.Dir(self), name)
}

var errStalled = errors.New("nothing has moved for too long")
