package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// fewer is a log that shows each of the pump's warnings at most twice: a test provokes them by the
// thousand. With --debug it shows all.
type fewer struct {
	slog.Handler
	seen *seenWarnings
}

// seenWarnings counts them by their text. It is shared by all that are derived from one handler.
type seenWarnings struct {
	mu    sync.Mutex
	times map[string]int
}

// shownEach is how often a warning is shown.
const shownEach = 2

// unused is a warning that scale-out means to provoke: it adds the accounts that it names, which
// may be a hundred, by and by.
const unused = "accounts of the configuration are not in use; add them to the workload " +
	"with: distributor accounts add"

func newFewer(h slog.Handler) *fewer {
	return &fewer{h, &seenWarnings{times: map[string]int{}}}
}

// all is whether everything is shown.
func (f *fewer) all(ctx context.Context) bool { return f.Handler.Enabled(ctx, slog.LevelDebug) }

// Enabled implements [slog.Handler].
func (f *fewer) Enabled(ctx context.Context, l slog.Level) bool {
	return f.Handler.Enabled(ctx, l) && (l >= slog.LevelWarn || f.all(ctx))
}

// Handle implements [slog.Handler].
func (f *fewer) Handle(ctx context.Context, r slog.Record) error {
	if !f.all(ctx) {
		if r.Message == unused {
			return nil
		}
		f.seen.mu.Lock()
		f.seen.times[r.Message]++
		n := f.seen.times[r.Message]
		f.seen.mu.Unlock()
		if n > shownEach {
			return nil
		}
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (f *fewer) WithAttrs(a []slog.Attr) slog.Handler {
	return &fewer{f.Handler.WithAttrs(a), f.seen}
}

// WithGroup implements [slog.Handler].
func (f *fewer) WithGroup(name string) slog.Handler {
	return &fewer{f.Handler.WithGroup(name), f.seen}
}

// rest tells how many were not shown.
func (f *fewer) rest(log *slog.Logger) {
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	for _, text := range slices.Sorted(maps.Keys(f.seen.times)) {
		if n := f.seen.times[text] - shownEach; n > 0 {
			log.Warn("more of a warning that was shown", "warning", text, "times", n)
		}
	}
}
