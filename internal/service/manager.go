package service

import (
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/queuepump/queuepump/internal/logs"
)

// Manager is the service manager that started this process. The methods of a nil Manager do
// nothing.
type Manager struct {
	log *slog.Logger
	// a process that has not said for so long that it lives is ended; 0: never
	watchdog time.Duration
	send     func(state string) error
	failed   logs.Limited
}

// Open finds the service manager. It takes the manager's variables out of the environment, so
// that children do not speak in the name of this process.
func Open(log *slog.Logger) *Manager {
	socket := os.Getenv("NOTIFY_SOCKET")
	watchdog, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("the service manager's watchdog cannot be told that the process lives", "error", err)
	}
	if socket == "" {
		return nil
	}
	_ = os.Unsetenv("NOTIFY_SOCKET")
	// The watchdog ends the process with SIGABRT, and a panic is a failure too: without this both
	// would be exit status 2, that of a wrong configuration, after which it is not started again.
	debug.SetTraceback("crash")
	return &Manager{
		log: log, watchdog: watchdog, failed: logs.Limited{Every: logs.PerTask},
		send: func(state string) error { return notify(socket, state) },
	}
}

// say tells the service manager one or more things, each NAME=VALUE. A service manager that does
// not listen is not a reason for a process to end.
func (m *Manager) say(things ...string) {
	if err := m.send(strings.Join(things, "\n")); err != nil {
		m.failed.Say(m.log.Warn, "the service manager does not listen", "error", err)
	}
}

// status is a line for people. Its parts may hold names from outside.
func status(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// Reload tells the service manager that the process reloads its configuration while f does, and how
// that ended.
func (m *Manager) Reload(f func() error) error {
	if m == nil {
		return f()
	}
	m.say(daemon.SdNotifyReloading, strings.TrimSuffix(daemon.SdNotifyMonotonicUsec(), "\n"))
	err := f()
	m.say(daemon.SdNotifyReady)
	return err
}
