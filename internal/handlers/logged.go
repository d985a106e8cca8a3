package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
)

// Logged is a worker whose failures are logged, once in a while: how many, and the text of the last
// one. It never shows a task's body, but shows as it is what the worker itself says of a failure.
type Logged struct {
	worker Worker
	log    *slog.Logger
	lines  logs.Limited

	mu    sync.Mutex // guards first
	first []string   // different failures, see First
}

// maxFirst is how many failures First gives.
const maxFirst = 3

// First gives the texts of the first few different failures.
func (n *Logged) First() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.first)
}

// NewLogged makes a worker that logs the failures of w.
func NewLogged(w Worker, log *slog.Logger) *Logged {
	return &Logged{worker: w, log: log, lines: logs.Limited{Every: logs.PerTask}}
}

// Work does the work; see [Worker].
func (n *Logged) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	result, err := n.worker.Work(ctx, t)
	n.note(ctx, err)
	return result, err
}

func (n *Logged) note(ctx context.Context, err error) {
	// A context that ended says nothing of the task, and a task that was given
	// back untried has its cause in the log already.
	if err == nil || ctx.Err() != nil || errors.Is(err, errUntried) {
		return
	}
	n.notice(err)
	n.lines.Add(1, func(failures, _ int) {
		n.log.Warn("tasks fail", "failures", failures, "last", shorten(err.Error(), maxCause))
	})
}

// notice keeps what First gives.
func (n *Logged) notice(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.first) < maxFirst {
		if said := shorten(err.Error(), maxCause); !slices.Contains(n.first, said) {
			n.first = append(n.first, said)
		}
	}
}

// Close logs what was not logged yet.
func (n *Logged) Close() error {
	n.lines.Flush()
	return nil
}
