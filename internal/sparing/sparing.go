// Package sparing keeps a log readable where a line could come with every task. Of each
// kind the first line is written at once, since who has just started a process looks at its
// log, and then one every ten seconds, with how many it stands for.
package sparing

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Every is the least time between two lines of one kind.
const Every = 10 * time.Second

// Line writes one line of the log, which stands for so many events that concern so many
// tasks in all: the one that it was made for and those before it that were not written. It may
// be called later and by another goroutine, so it must hold nothing that changes.
type Line func(events, tasks int)

// Lines are those of one kind. The zero value is ready; many goroutines may use it at once.
type Lines struct {
	mu            sync.Mutex // guards what follows, and writing
	events, tasks int        // since the last line
	at            time.Time  // of that
	last          Line       // of the last event
}

// Add notes an event that concerns so many tasks. Its line is written now, or is left to
// what comes later: the next event after ten seconds, or Flush.
func (l *Lines) Add(tasks int, line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events++
	l.tasks += tasks
	l.last = line
	if now := time.Now(); l.at.IsZero() || now.Sub(l.at) >= Every {
		l.at = now
		l.write()
	}
}

// Flush writes the line of what was not written yet, if there is something.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events > 0 {
		l.write()
	}
}

// write is called with mu held.
func (l *Lines) write() {
	l.last(l.events, l.tasks)
	l.events, l.tasks, l.last = 0, 0, nil
}

// Kinds are lines of several kinds, each sparing by itself. There are few of them: what is
// different in each line makes no kind. The zero value is ready; many goroutines may use it at
// once.
type Kinds struct {
	mu    sync.Mutex // guards lines
	lines map[string]*Lines
}

// Of gives the lines of a kind.
func (k *Kinds) Of(kind string) *Lines {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lines == nil {
		k.lines = map[string]*Lines{}
	}
	l := k.lines[kind]
	if l == nil {
		l = &Lines{}
		k.lines[kind] = l
	}
	return l
}

// Flush flushes all of them, in the order of their kinds.
func (k *Kinds) Flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(k.lines)) {
		k.lines[kind].Flush()
	}
}
