package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// told is a service manager that keeps what it is told.
type told struct {
	*Manager
	log proof.Buffer

	mu     sync.Mutex // guards things
	things []string
}

func newTold(watchdog time.Duration) *told {
	m := &told{}
	m.Manager = &Manager{log: slog.New(slog.NewTextHandler(&m.log, nil)), watchdog: watchdog}
	m.send = func(state string) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.things = append(m.things, strings.Split(state, "\n")...)
		return nil
	}
	return m
}

// count is how often something was said.
func (m *told) count(thing string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.things {
		if t == thing {
			n++
		}
	}
	return n
}

// during is how often something was said while so long passed.
func (m *told) during(d time.Duration, thing string) int {
	synctest.Wait()
	before := m.count(thing)
	time.Sleep(d)
	synctest.Wait()
	return m.count(thing) - before
}

func TestOnlyALoopThatIsStuckStopsTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTold(time.Minute)
		var poller, member atomic.Uint64
		var most atomic.Int64
		most.Store(int64(30 * time.Second))
		end := m.Watch(t.Context(), Process{Requests: &atomic.Int64{}, Look: func() Look {
			return Look{Started: true, Loops: []pump.LoopState{
				{Name: "poller", Rounds: poller.Load(), Most: time.Duration(most.Load())},
				{Name: "member", Rounds: member.Load(), Most: time.Minute},
			}}
		}})
		const alive = "WATCHDOG=1"
		for range 20 { // slower than any tick, and within their times
			poller.Add(1)
			member.Add(1)
			if n := m.during(29*time.Second, alive); n < 28 {
				t.Fatalf("%d pings in 29 s of a process that lives", n)
			}
		}
		poller.Add(1)
		member.Add(1)
		if n := m.during(50*time.Second, alive); n > 32 || n < 28 {
			t.Errorf("%d pings in 50 s, with the poller stuck for the last 20", n)
		}
		proof.Same(t, m.during(time.Hour, alive), 0, "pings of a process that is stuck")
		if log := m.log.String(); !strings.Contains(log, `loop="poller, member"`) || strings.Count(log, "\n") != 2 {
			t.Errorf("the log says %s", log)
		}
		// A loop that need not go round is none.
		most.Store(0)
		member.Add(1)
		if n := m.during(30*time.Second, alive); n < 29 {
			t.Errorf("%d pings in 30 s after that", n)
		}
		end(nil)
	})
}

func TestAStartAsksForTimeAsLongAsItTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTold(0)
		var requests atomic.Int64
		var started atomic.Bool
		end := m.Watch(t.Context(), Process{Requests: &requests, Look: func() Look {
			return Look{Started: started.Load(), Says: "it is starting"}
		}})
		const extend = "EXTEND_TIMEOUT_USEC=60000000"
		synctest.Wait()
		for range 10 {
			requests.Add(1)
			if n := m.during(30*time.Second, extend); n != 1 {
				t.Fatalf("asked %d times for more time after one attempt", n)
			}
		}
		proof.Same(t, m.count("READY=1"), 0, m.things)
		proof.Same(t, m.count("STATUS=it is starting"), 1, m.things)
		started.Store(true)
		requests.Add(1)
		proof.Same(t, m.during(time.Minute, extend), 0, "asked … times for more time after the start")
		proof.Same(t, m.count("READY=1"), 1, "said", m.things)
		end(nil)
		proof.Same(t, m.count("READY=1"), 1, m.things)
		proof.Same(t, m.count("STOPPING=1"), 1, m.things)
	})
}

func TestAStopAsksForTimeForAsLongAsItMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTold(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		end := m.Watch(ctx, Process{Requests: &atomic.Int64{}, Grace: 5 * time.Minute, Look: func() Look {
			return Look{Started: true, Draining: ctx.Err() != nil}
		}})
		time.Sleep(time.Minute)
		cancel()
		const extend = "EXTEND_TIMEOUT_USEC=60000000"
		if n := m.during(5*time.Minute, extend); n < 29 {
			t.Errorf("asked %d times for more time in five minutes of a stop", n)
		}
		if n := m.during(time.Hour, extend); n > 4 {
			t.Errorf("asked %d times for more time after its time", n)
		}
		end(errors.New("it failed"))
		proof.Same(t, m.count("STOPPING=1"), 1, m.things)
		proof.Same(t, m.count("READY=1"), 1, m.things)
	})
}

// TestAShortRunWasReady: systemd takes a service that ends without that for one that has failed.
func TestAShortRunWasReady(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{{nil, 1}, {errors.New("it failed"), 0}} {
		m := newTold(0)
		m.Watch(t.Context(), Process{Requests: &atomic.Int64{}, Look: func() Look { return Look{} }})(tt.err)
		proof.Same(t, m.count("READY=1"), tt.want, tt.err, "ready … times")
	}
}

func TestTheServiceManagerIsToldThroughItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skip(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "60000000")
	t.Setenv("WATCHDOG_PID", "1")
	m := Open(slog.New(slog.DiscardHandler))
	proof.Same(t, m.watchdog, 0, "the watchdog of another process")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if _, set := os.LookupEnv(name); set {
			t.Errorf("children would get %s", name)
		}
	}
	failed := errors.New("the file is wrong")
	proof.Same(t, m.Reload(func() error { return failed }), failed, "reloading")
	m.say(status("two\nlines"))
	var got []string
	for b := make([]byte, 1<<10); len(got) < 3; {
		n, err := socket.Read(b)
		must(t, err)
		got = append(got, string(b[:n]))
	}
	begins, reloads, found := strings.Cut(got[0], "\n")
	if !found || begins != "RELOADING=1" || !strings.HasPrefix(reloads, "MONOTONIC_USEC=") {
		t.Errorf("reloading began with %q", got[0])
	}
	proof.Alike(t, got[1:], []string{"READY=1", "STATUS=two lines"}, "then came")
}

func TestWithoutAServiceManagerNothingIsSaid(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m := Open(slog.New(slog.DiscardHandler))
	if m != nil {
		t.Fatal("there is one")
	}
	m.Watch(t.Context(), Process{})(nil)
	must(t, m.Reload(func() error { return nil }))
}
