package handlers

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/time/rate"
)

// A child's standard error goes to our log line by line, and must not be able
// to flood it: so many lines a second, so many bytes a line.
const (
	logLine  = 2 << 10
	logRate  = 100
	logBurst = 500
)

// stderrLog passes what children print to the log. It may be used by many at once.
type stderrLog struct {
	log     *slog.Logger
	limiter *rate.Limiter

	mu      sync.Mutex
	dropped int
}

func newStderrLog(log *slog.Logger) *stderrLog {
	return &stderrLog{log: log, limiter: rate.NewLimiter(logRate, logBurst)}
}

// said is what one child writes to its standard error, line by line.
type said struct {
	log  *stderrLog
	pipe syscall.RawConn
	mu   sync.Mutex // guards what follows, and is held from each read until its lines are known
	buf  [logLine]byte
	// waits: the pipe was empty when it was read last.
	waits bool
	line  []byte // not ended yet
	old   bool   // it was begun for an earlier task
	last  string // for the task at hand
	begun bool   // a task has
}

func newSaid(l *stderrLog) *said { return &said{log: l} }

// read takes all that comes from a pipe, until its end.
func (s *said) read(f *os.File) {
	for more := s.pipe != nil; more; {
		more = s.readSome(f, s.pipe)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// begin forgets the lines for earlier tasks; lines before a child's first task say why it cannot
// work. A line that the child wrote before its answer may still be in the pipe, so begin empties
// that first.
func (s *said) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun || s.pipe == nil {
		s.begun = true
		return
	}
	s.empty(s.pipe)
	s.last, s.old = "", len(s.line) > 0
}

// add takes what the child has written next. It is called with mu held, or by the only user.
func (s *said) add(b []byte) {
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte{'\n'})
		s.line = append(s.line, part[:min(len(part), logLine-len(s.line))]...)
		if b = rest; ended {
			s.end()
		}
	}
}

// end ends a line, and leaves out the rest of a line that is too long.
func (s *said) end() {
	text := strings.ToValidUTF8(strings.TrimRight(string(s.line), "\r"), "\uFFFD")
	old := s.old
	s.line, s.old = s.line[:0], false
	if text == "" {
		return
	}
	if !old {
		s.last = text
	}
	s.log.print(text)
}

// lastOne is the last line for the task at hand, shortened to fit an error.
func (s *said) lastOne() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return shorten(s.last, 200)
}

func (l *stderrLog) print(line string) {
	l.mu.Lock()
	dropped := 0
	allowed := l.limiter.Allow()
	if allowed {
		dropped, l.dropped = l.dropped, 0
	} else {
		l.dropped++
	}
	l.mu.Unlock()
	if dropped > 0 {
		l.log.Warn("lines of the command were left out", "lines", dropped)
	}
	if allowed {
		l.log.Info("command", "says", line)
	}
}

// shorten cuts a text that goes into an error.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
