// Package logs keeps a log readable where a line could come with every task, beat or look. The
// first line is written at once, because a user who has just started a process looks at its log.
// Later lines come once in a while, as long as their cause goes on. It also knows which build
// writes.
package logs

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// PerTask is the least time between two lines that could come with every task.
const PerTask = 10 * time.Second

// Limited is a line of the log that is written once in a while. The zero value writes it once a
// minute. Many goroutines may use it at once.
type Limited struct {
	Every time.Duration // the least time between two lines; 0: a minute

	mu            sync.Mutex // guards what follows, and writing a [Line]
	since, at     time.Time  // when it began, and when the line was written last; zero: never
	events, tasks int        // since the last line
	last          Line       // of the last event
}

// Line writes a line of the log for so many events that concern so many tasks in all: the event for
// which it was made, and the events before that were not written. It may be called later and by
// another goroutine, so it must not hold anything that changes.
type Line func(events, tasks int)

// Due notes that there is something to write, and reports whether the caller is to write it now.
func (l *Limited) Due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.due()
}

// due is called with mu held.
func (l *Limited) due() bool {
	now := time.Now()
	if l.since.IsZero() {
		l.since = now
	}
	due := l.at.IsZero() || now.Sub(l.at) >= cmp.Or(l.Every, time.Minute)
	if due {
		l.at = now
	}
	return due
}

// Say writes a line by log, a method of a [slog.Logger], if it is due.
func (l *Limited) Say(log func(msg string, attrs ...any), msg string, attrs ...any) {
	if l.Due() {
		log(msg, attrs...)
	}
}

// GoesOn writes a line by log about what goes on, with how long it has: at once, a minute later,
// and then when it has gone on for twice as long, but once an hour at least.
func (l *Limited) GoesOn(log func(msg string, attrs ...any), msg string, attrs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < min(l.at.Sub(l.since), time.Hour) || !l.due() {
		return
	}
	if lasts := time.Since(l.since).Round(time.Second); lasts > 0 {
		attrs = append(attrs, "for", lasts)
	}
	log(msg, attrs...)
}

// IsOver writes a line by log if there was something to write, with how long it lasted. The next
// line is due at once.
func (l *Limited) IsOver(log func(msg string, attrs ...any), msg string, attrs ...any) {
	if lasted, was := l.Over(); was {
		log(msg, append(attrs, "after", lasted)...)
	}
}

// Tell writes a line about what goes on while a thing that is tried again and again fails, and one
// when it works again. An error after ctx has ended says nothing.
func (l *Limited) Tell(
	ctx context.Context, log *slog.Logger, err error, what, over string, attrs ...any,
) {
	switch {
	case err == nil:
		l.IsOver(log.Info, over, attrs...)
	case ctx.Err() == nil:
		l.GoesOn(log.Warn, what, append(attrs, "error", err)...)
	}
}

// Over notes that the cause of the line is over, and reports whether there was something to write,
// and for how long. The next line is due at once.
func (l *Limited) Over() (lasted time.Duration, was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was = !l.since.IsZero(); was {
		lasted = time.Since(l.since).Round(time.Second)
		l.since, l.at = time.Time{}, time.Time{}
	}
	return lasted, was
}

// Add notes an event that concerns so many tasks. Its line is written now, or later by the next
// event when a line is due, or by Flush.
func (l *Limited) Add(tasks int, line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events++
	l.tasks += tasks
	l.last = line
	if l.due() {
		l.write()
	}
}

// Flush writes a line for the events that were not written yet, if any.
func (l *Limited) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events > 0 {
		l.write()
	}
}

// write is called with mu held.
func (l *Limited) write() {
	l.last(l.events, l.tasks)
	l.events, l.tasks, l.last = 0, 0, nil
}

// Kinds are lines of several kinds, each limited by itself. There must be few kinds: do not make a
// kind of a text that differs in each line. The zero value is ready; many goroutines may use it at
// once.
type Kinds struct {
	Every time.Duration // see [Limited]

	mu    sync.Mutex // guards lines
	lines map[string]*Limited
}

// Of gives the lines of a kind.
func (k *Kinds) Of(kind string) *Limited {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lines == nil {
		k.lines = map[string]*Limited{}
	}
	l := k.lines[kind]
	if l == nil {
		l = &Limited{Every: k.Every}
		k.lines[kind] = l
	}
	return l
}

// Sparing makes log, a method of a [slog.Logger], write few lines with the same message, each for
// all that came since the last one: many queues in trouble mostly have one cause. Due writes what
// is left.
func (k *Kinds) Sparing(log func(msg string, attrs ...any)) func(msg string, attrs ...any) {
	return func(msg string, attrs ...any) {
		k.Of(msg).Add(0, func(events, _ int) {
			if events > 1 {
				attrs = append(attrs, "others", events-1)
			}
			log(msg, attrs...)
		})
	}
}

// Due writes the lines of [Kinds.Sparing] that may be written by now, in the order of their kinds.
func (k *Kinds) Due() {
	k.each(func(l *Limited) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.events > 0 && l.due() {
			l.write()
		}
	})
}

// Flush flushes all of them, in the order of their kinds.
func (k *Kinds) Flush() { k.each((*Limited).Flush) }

func (k *Kinds) each(do func(*Limited)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(k.lines)) {
		do(k.lines[kind])
	}
}
