package handlers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"

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
	lastOne string
}

func newStderrLog(log *slog.Logger) *stderrLog {
	return &stderrLog{log: log, limiter: rate.NewLimiter(logRate, logBurst)}
}

// copy passes everything from r on, until its end.
func (l *stderrLog) copy(r io.Reader) {
	b := bufio.NewReaderSize(r, logLine)
	for {
		line, err := b.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			l.print(string(line))
		}
		for long { // the rest of a line that is too long
			_, err = b.ReadSlice('\n')
			long = errors.Is(err, bufio.ErrBufferFull)
		}
		if err != nil {
			return
		}
	}
}

func (l *stderrLog) print(line string) {
	line = strings.ToValidUTF8(line, "\uFFFD")
	l.mu.Lock()
	l.lastOne = line
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

// last is the last line, shortened to what fits an error.
func (l *stderrLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return shorten(l.lastOne, 200)
}

// shorten cuts a text that goes into an error.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
