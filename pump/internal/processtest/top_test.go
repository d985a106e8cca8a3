package processtest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// terminal is a command in a terminal, with all that it has drawn.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	file interface{ Write([]byte) (int, error) }
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *terminal) drawn() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// shows waits until a text was drawn since the last key.
func (c *terminal) shows(text string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(c.drawn(), text) {
			return
		}
	}
	c.t.Fatalf("%q is not shown:\n%q", text, tail(c.drawn()))
}

func (c *terminal) press(key string) {
	c.t.Helper()
	c.mu.Lock()
	c.text.Reset()
	c.mu.Unlock()
	must(c.t, errOf(c.file.Write([]byte(key))))
}

// top starts top in a terminal.
func (w *world) top() *terminal {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "distributor"), "top", "--config", w.config)
	file, inside := openTerminal(w.t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(w.t, cmd.Start())
	must(w.t, inside.Close())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, mostly
		_ = file.Close()
	})
	c := &terminal{t: w.t, cmd: cmd, file: file}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := file.Read(b)
			c.mu.Lock()
			c.text.Write(b[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

// In a terminal top draws the tables that its keys ask for, and q ends it with the screen as it
// was.
func TestTopDrawsInATerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	w.fill(40, "--key", "city")
	c := w.top()
	c.shows("account1")
	c.shows("no processor")
	c.press("2")
	c.shows("test-00")
	c.press("4")
	c.shows("sealed")
	c.press("q")
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case err := <-ended:
		proof.Is(t, err, nil, "q")
	case <-time.After(patience):
		t.Error("q does not end it")
	}
	c.shows("\x1b[?1049l") // the screen of before
}
