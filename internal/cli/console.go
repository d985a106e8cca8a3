package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Console is standard error: the log, and progress as a bar on a terminal or
// else as a line of the log now and then. It may be used by many at once.
type Console struct {
	Log *slog.Logger

	out      *os.File
	terminal bool
	quiet    bool
	every    time.Duration
	left     atomic.Int64 // one more than the lines left out while a write hangs; 0: none hangs

	mu   sync.Mutex // guards what follows, and writing to a terminal
	bar  *bar       // nil where none is shown
	last time.Time  // when progress was logged
	told string     // what it was then
	gone func()     // called when no reader is left
}

// ConsoleFlags are the flags of a Console.
type ConsoleFlags struct {
	format string
	quiet  bool
	debug  bool
	every  time.Duration
}

// Add adds the flags to a command, which logs its progress so often by default; 0: it has no
// progress.
func (f *ConsoleFlags) Add(cmd *cobra.Command, every time.Duration) {
	cmd.Flags().StringVar(&f.format, "log-format", "",
		"the `FORMAT` of the log on standard error: text, json or journal "+
			"(default: journal where systemd's journal reads it, else text)")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false,
		"log warnings and errors only, and no progress")
	cmd.Flags().BoolVar(&f.debug, "debug", false, "log details too")
	if every > 0 {
		cmd.Flags().DurationVar(&f.every, "progress-every", every,
			"how often progress is logged where standard error is not a terminal")
		Seldom(cmd, "progress-every")
	}
}

// Console makes the console that the flags ask for.
func (f *ConsoleFlags) Console() (*Console, error) {
	c := &Console{out: os.Stderr, quiet: f.quiet, every: f.every, last: time.Now()}
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	switch {
	case f.quiet && f.debug:
		return nil, Usage("--quiet and --debug exclude each other")
	case f.quiet:
		o.Level = slog.LevelWarn
	case f.debug:
		o.Level = slog.LevelDebug
	}
	switch f.kind() {
	case "text":
		c.Log = slog.New(newIdentified(slog.NewTextHandler(c, o)))
		c.terminal = term.IsTerminal(int(c.out.Fd()))
	case "json":
		o.ReplaceAttr = readable
		c.Log = slog.New(newIdentified(slog.NewJSONHandler(c, o)))
	case "journal":
		if !Listens() {
			return nil,
				Usage("--log-format: there is no journal of systemd on this machine; use text or json")
		}
		c.Log = slog.New(NewJournal(o.Level, c))
	default:
		return nil, Usage("--log-format: %q is not a format; use text, json or journal", f.format)
	}
	return c, nil
}

// readable writes a time span as the text format does; people do not read nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// Nonzero gives attributes without the counts that are zero.
func Nonzero(attrs ...any) (kept []any) {
	for i := 0; i+1 < len(attrs); i += 2 {
		if n, is := attrs[i+1].(int64); !is || n != 0 {
			kept = append(kept, attrs[i], attrs[i+1])
		}
	}
	return kept
}

// kind is the requested format, or the one that suits where the log goes.
func (f *ConsoleFlags) kind() string {
	switch {
	case f.format != "":
		return f.format
	case IsStderr():
		return "journal"
	}
	return "text"
}

// logPatience is how long a process waits for the reader of its log: its work would wait with it.
const logPatience = 5 * time.Second

// Write writes a line of the log. While an earlier write hangs it is left out.
func (c *Console) Write(line []byte) (int, error) {
	if c.left.Load() > 0 {
		c.left.Add(1)
		return len(line), nil
	}
	text, done := bytes.Clone(line), make(chan error, 1) // line is the caller's when this returns
	go func() { done <- c.write(text) }()
	select {
	case err := <-done:
		return len(line), err
	case <-time.After(logPatience):
	}
	c.left.Store(1)
	go func() {
		<-done
		c.Log.Warn("the log was not read; lines were left out", "lines", c.left.Swap(0)-1)
	}()
	return len(line), nil
}

// write writes a line. A terminal's bar makes room for it.
func (c *Console) write(line []byte) error {
	c.mu.Lock()
	gone, unlock := c.gone, sync.OnceFunc(c.mu.Unlock)
	defer unlock()
	if c.clear(); !c.terminal {
		unlock()
	}
	_, err := c.out.Write(line)
	if errors.Is(err, syscall.EPIPE) && gone != nil {
		gone()
	}
	return err
}

// Outlive lets the process outlive the readers of its standard output and error, because it has a
// cluster to leave; otherwise SIGPIPE would end it at once. Without readers, writing to standard
// output fails, as on a full disk, and the context that Outlive gives ends, as by a signal, once a
// line of the log finds no reader.
func (c *Console) Outlive(parent context.Context) (context.Context, context.CancelFunc) {
	// Not Ignore, which children would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(parent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = func() { cancel(&Interrupted{syscall.SIGPIPE}) }
	return ctx, func() { cancel(nil) }
}

// Progress shows how far the work is: done of total, which is 0 if it is not known, described by
// text, and in the log by attrs. The log is silent as long as attrs do not change.
func (c *Console) Progress(done, total int64, text string, attrs ...any) {
	if c.quiet {
		return
	}
	if !c.terminal {
		now := fmt.Sprint(attrs...)
		c.mu.Lock()
		due := time.Since(c.last) >= c.every && now != c.told
		if due {
			c.last, c.told = time.Now(), now
		}
		c.mu.Unlock()
		if due {
			c.Log.Info("progress", attrs...)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar == nil {
		c.bar = &bar{since: time.Now()}
	}
	columns, _, err := term.GetSize(int(c.out.Fd()))
	if err != nil || columns <= 0 {
		columns = 80
	}
	fmt.Fprintf(c.out, "\r%s\x1b[0K", c.bar.line(done, total, text, columns))
}

// clear empties the line of a bar that is shown.
func (c *Console) clear() {
	if c.bar != nil {
		_, _ = c.out.WriteString("\x1b[2K\r")
	}
}

// Done takes the bar away.
func (c *Console) Done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.bar = nil
}

// bar is a line that shows how far the work is.
type bar struct {
	since time.Time
	speed Rate
	turns int
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// line draws the bar, or a spinner if the total is not known, with the time that has passed and the
// time that is left.
func (b *bar) line(done, total int64, text string, columns int) string {
	times := time.Since(b.since).Truncate(time.Second).String()
	if total <= 0 {
		b.turns++
		sign := spinner[(b.turns-1)%len(spinner)]
		return ansi.Truncate(fmt.Sprintf("%c  [%s] %s", sign, times, text), columns, "…")
	}
	done = min(done, total)
	if speed := b.speed.perSecond(done); speed > 0 {
		left := min(float64(total-done)/speed, 1e9)
		times += ":" + (time.Duration(left) * time.Second).String()
	}
	const most, beside = 24, len("  99% ||")
	about := fmt.Sprintf("  [%s] %s", times, text)
	width := max(0, min(most, columns-beside-ansi.StringWidth(about)))
	part := float64(done) / float64(total)
	full := int(part * float64(width))
	return ansi.Truncate(fmt.Sprintf("%4d%% |%s%s|%s", int(100*part), strings.Repeat("█", full),
		strings.Repeat(" ", width-full), about), columns, "…")
}

// Rate is a speed between two calls of it, for display.
type Rate struct {
	at    time.Time
	count int64
	rate  float64
}

// Per gives the rate of the last seconds, from the count now.
func (r *Rate) Per(count int64) string {
	return fmt.Sprintf("%s/s", humanize.Comma(int64(r.perSecond(count))))
}

func (r *Rate) perSecond(count int64) float64 {
	now := time.Now()
	switch since := now.Sub(r.at); {
	case r.at.IsZero():
		r.at, r.count = now, count
	case since >= time.Second:
		// The mean of the last second and of the seconds before it: otherwise the number is too restless
		// to read.
		r.rate = (r.rate + float64(count-r.count)/since.Seconds()) / 2
		r.at, r.count = now, count
	}
	return r.rate
}
