package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/queuepump/queuepump/pump"
)

// Noted is a worker whose first failures are kept for the end of the process, as the worker says
// them. The processor logs failures itself.
type Noted struct {
	worker Worker

	mu    sync.Mutex // guards first
	first []string   // different failures, see First
}

// maxFirst is how many failures First gives.
const maxFirst = 3

// First gives the texts of the first few different failures.
func (n *Noted) First() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.first)
}

// NewNoted makes a worker that notes the failures of w.
func NewNoted(w Worker) *Noted { return &Noted{worker: w} }

// Work does the work; see [Worker].
func (n *Noted) Work(ctx context.Context, t *pump.Task) (json.RawMessage, error) {
	result, err := n.worker.Work(ctx, t)
	n.note(ctx, err)
	return result, err
}

func (n *Noted) note(ctx context.Context, err error) {
	// A context that ended says nothing of the task, and a task that was given
	// back untried has its cause in the log already.
	if err == nil || ctx.Err() != nil || errors.Is(err, errUntried) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.first) < maxFirst {
		if said := shorten(err.Error(), maxCause); !slices.Contains(n.first, said) {
			n.first = append(n.first, said)
		}
	}
}
