package processtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// manager stands in for systemd: it hears what a process says.
type manager struct {
	env []string

	mu   sync.Mutex
	said []string
}

func newManager(t *testing.T, w *world) *manager {
	t.Helper()
	path := w.path("notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	m := &manager{env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=800000"}}
	go func() {
		for b := make([]byte, 4<<10); ; {
			n, err := socket.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said = append(m.said, strings.Split(string(b[:n]), "\n")...)
			m.mu.Unlock()
		}
	}()
	return m
}

// heard is how often the process has said something that begins so.
func (m *manager) heard(prefix string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.said {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// heardItEnd waits until the process has ended well and the test has heard all that it said: its
// last words may still be in the socket when it is gone. A socket of this kind is read in order, so
// a word of the test's own comes after all of them.
func (m *manager) heardItEnd(p *process) {
	p.t.Helper()
	p.succeeds()
	c, err := net.Dial("unixgram", strings.TrimPrefix(m.env[0], "NOTIFY_SOCKET="))
	must(p.t, err)
	defer c.Close()
	must(p.t, errOf(c.Write([]byte("OVER=1"))))
	for deadline := time.Now().Add(patience); m.heard("OVER=1") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: its last words were not heard", p.name)
		}
	}
}

func (m *manager) hears(p *process, prefix string) {
	p.t.Helper()
	p.until("it says "+prefix, func() bool { return m.heard(prefix) > 0 })
}

// TestAServiceManagerIsTold how a processor and a distributor get on, and their children are not in
// its way.
func TestAServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	m := newManager(t, w)
	args := []string{"run", "--config", w.config, "--exec-each", `sh -c 'echo "[$NOTIFY_SOCKET$WATCHDOG_USEC]" >&2'`}
	p := startEnv(t, m.env, "processor", args...)
	m.hears(p, "READY=1") // although there is no workload yet
	m.hears(p, "STATUS=it is starting, it waits for the workload")
	writeTasks(t, w.path("tasks.jsonl"), 1)
	of := newManager(t, newWorld(t, 1, 1))
	d := startEnv(t, of.env, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city")
	of.heardItEnd(d)
	if of.heard("READY=1") != 1 || of.heard("STOPPING=1") != 1 {
		t.Errorf("the distributor said %q", of.said)
	}
	p.says("[]")
	m.hears(p, "STATUS=0 tasks/s, ")
	alive := m.heard("WATCHDOG=1")
	p.until("it has said five times more that it lives", func() bool { return m.heard("WATCHDOG=1") >= alive+5 })
	p.signal(syscall.SIGTERM)
	m.heardItEnd(p)
	if m.heard("STOPPING=1") != 1 || m.heard("READY=1") != 1 || m.heard("EXTEND_TIMEOUT_USEC=") == 0 {
		t.Errorf("the processor said %q", m.said)
	}
}

// TestAProcessThatItsWatchdogEndsDiesBySignal: a service manager ends it with SIGABRT, which Go
// answers with its stacks and exit status 2. That is the status of a wrong configuration, after
// which the unit does not start again.
func TestAProcessThatItsWatchdogEndsDiesBySignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	m := newManager(t, w)
	p := startEnv(t, m.env, "processor", "run", "--config", w.config, "--discard")
	m.hears(p, "READY=1")
	p.signal(syscall.SIGABRT)
	p.wait()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGABRT {
		t.Errorf("it ended with %v", p.cmd.ProcessState)
	}
	has(t, p.log.String(), "goroutine ", "there are no stacks in its log")
}

// TestASignalHasTheConfigurationReadAgain: an account that is new in the file can be added to the
// workload then, and a wrong file changes nothing.
func TestASignalHasTheConfigurationReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	m := newManager(t, w)
	both := readText(t, w.config)
	writeConfig(t, w.dir, 2, w.server.ConnectionString("account1"))
	w.fill(10, "--key", "city")
	p := startEnv(t, m.env, "processor", "run", "--config", w.config, "--discard", "--beat", "500ms")
	p.until("it has the tasks", func() bool { return m.heard("READY=1") == 1 })
	writeText(t, w.path("both.yaml"), both)
	add := []string{"accounts", "add", "account2", "--config", w.path("both.yaml")}
	if code := start(t, "distributor", add...).wait(); code == 0 {
		t.Fatal("an account was added that the processor cannot reach")
	}
	writeText(t, w.config, "workload: test\naccounts: none\n")
	p.signal(syscall.SIGHUP)
	p.says("the configuration is not taken")
	p.until("it has reloaded", func() bool { return m.heard("READY=1") == 2 })
	writeText(t, w.config, both)
	p.signal(syscall.SIGHUP)
	p.says("this process can reach more accounts")
	p.until("it has reloaded", func() bool {
		return m.heard("READY=1") == 3 && m.heard("RELOADING=1") == 2 && m.heard("MONOTONIC_USEC=") == 2
	})
	p.until("the account can be added", func() bool { return start(t, "distributor", add...).wait() == 0 })
	stop(p)
}

// TestResultsAreRotated by a rename and a signal.
func TestResultsAreRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	writeTasks(t, w.path("tasks.jsonl"), 100)
	send := func() {
		start(t, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city").succeeds()
	}
	lines := func(name string) int {
		text, err := os.ReadFile(w.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		return bytes.Count(text, []byte("\n"))
	}
	send()
	p := start(t, "processor", "run", "--config", w.config, "--out", w.path("done.jsonl"))
	p.until("the tasks are done", func() bool { return lines("done.jsonl") == 100 })
	must(t, os.Rename(w.path("done.jsonl"), w.path("done.jsonl.1")))
	p.signal(syscall.SIGHUP)
	p.says("lines go on in another file")
	send()
	p.until("the tasks are done again", func() bool { return lines("done.jsonl") == 100 })
	proof.Same(t, lines("done.jsonl.1"), 100, "lines in the file before")
	stop(p)
}

// TestAMachineThatEndsIsLeftInTime: its processor hands its segments over within 10 s, although a
// task takes longer, and lets the event come then.
func TestAMachineThatEndsIsLeftInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	acknowledged := make(chan time.Time, 1)
	var announced atomic.Bool
	azure := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/name"):
			fmt.Fprint(rw, "vm1")
		case r.Method == http.MethodPost:
			acknowledged <- time.Now()
		case announced.Load():
			fmt.Fprint(rw, `{"Events":[{"EventId":"e1","EventType":"Preempt","EventStatus":"Scheduled","Resources":["vm1"]}]}`)
		default:
			fmt.Fprint(rw, `{"Events":[]}`)
		}
	}))
	defer azure.Close()
	appendText(t, w.config, "scheduledEvents: "+azure.URL+"\n")
	w.fill(1, "--key", "city")
	p := start(t, "processor", "run", "--config", w.config, "--exec-each", "sh -c 'touch "+w.path("begun")+"; sleep 300'")
	p.until("its task has begun", func() bool {
		_, err := os.Stat(w.path("begun"))
		return err == nil
	})
	announced.Store(true)
	p.says("this machine is about to end")
	p.succeeds()
	select {
	case <-acknowledged:
	default:
		t.Error("the event is not acknowledged")
	}
	if log := p.log.String(); !strings.Contains(log, "grace=5s") || !strings.Contains(log, "left the cluster") {
		t.Error("the processor did not leave")
	}
}
