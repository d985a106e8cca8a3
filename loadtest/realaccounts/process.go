package realaccounts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/group"
	"github.com/queuepump/queuepump/internal/redact"
)

// process is a binary of the pump that runs.
type process struct {
	name     string
	group    *group.Group
	out, log lastBytes
	done     chan struct{}
	err      error // how it ended; valid once done is closed
}

// running are all that run, for [KillAll].
var running sync.Map

// KillAll ends all binaries that were started, at once.
func KillAll() {
	running.Range(func(p, _ any) bool {
		p.(*process).group.Kill()
		return true
	})
}

// start starts a binary with more in its environment.
func start(name, path string, env []string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	p := &process{name: name, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.log
	cmd.WaitDelay = time.Second // a child that outlives a killed processor holds the pipes
	group.Own(cmd)
	dieWithParent(cmd)
	started := make(chan error)
	go func() {
		// The thread that has started a child must last as long as that; see dieWithParent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.group = group.New(cmd)
			running.Store(p, true)
		}
		started <- err
		if err == nil {
			p.err = p.group.Wait(true, cmd.Wait)
			running.Delete(p)
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
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

// kill is kill -9.
func (p *process) kill() {
	p.group.Kill()
	<-p.done
}

// stop asks the process to end, and kills it if it does not.
func (p *process) stop(patience time.Duration) {
	p.group.Terminate()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.kill()
	}
}

// wait waits for the end of the process, or of the context.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.failure()
	case <-ctx.Done():
		p.kill()
		return context.Cause(ctx)
	}
}

// failure is the error of a process that ended badly, with the last that it said.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	said := redact.Cleaned(strings.TrimSpace(p.log.String()))
	return fmt.Errorf("%s: %w; its last lines:\n%s", p.name, p.err, said)
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lastBytes)(nil)

// keptBytes is more than any summary has, and shows some thirty lines of a log.
const keptBytes = 256 << 10

func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	if over := l.b.Len() - keptBytes; over > 0 {
		l.b.Next(over)
	}
	return len(p), nil
}

func (l *lastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
