package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// noteEvery is how often failures are logged while they go on. The first one is
// logged at once: whoever has just started a processor looks at its log.
const noteEvery = 10 * time.Second

// Noted is a worker whose failures are logged: how many, and what the last one
// said. It never shows a task's body, but what the worker itself says of a failure
// is shown as it is.
type Noted struct {
	worker Worker
	log    *slog.Logger

	mu    sync.Mutex // guards what follows
	count int        // since the last line of the log
	last  error
	at    time.Time // of the last line
	first []string  // different failures, see First
}

// maxFirst is how many failures First gives.
const maxFirst = 3

// First gives what the first few different failures said.
func (n *Noted) First() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.first)
}

// NewNoted makes a worker that does what w does.
func NewNoted(w Worker, log *slog.Logger) *Noted { return &Noted{worker: w, log: log} }

// Work does the work; see [Worker].
func (n *Noted) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	result, err := n.worker.Work(ctx, t)
	// A context that ended says nothing of the task, and a task that was given
	// back untried has its cause in the log already.
	if err != nil && ctx.Err() == nil && !errors.Is(err, errUntried) {
		n.note(err)
	}
	return result, err
}

func (n *Noted) note(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	n.last = err
	if len(n.first) < maxFirst {
		if said := shorten(err.Error(), maxCause); !slices.Contains(n.first, said) {
			n.first = append(n.first, said)
		}
	}
	if now := time.Now(); n.at.IsZero() || now.Sub(n.at) >= noteEvery {
		n.at = now
		n.print()
	}
}

// print is called with mu held.
func (n *Noted) print() {
	n.log.Warn("tasks fail", "failures", n.count, "last", shorten(n.last.Error(), maxCause))
	n.count = 0
}

// Close logs what was not logged yet.
func (n *Noted) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count > 0 {
		n.print()
	}
	return nil
}
