package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// maxFailures is after how many failures in a row, without a single outcome
// in between, a command counts as broken. It is above what two poisoned tasks
// alone in a queue can cause (2 x 8 attempts), and in a busy queue is reached
// long before one task has been tried eight times.
const maxFailures = 20

// health counts a worker's failures in a row, over all tasks.
type health struct {
	report func(error)

	mu       sync.Mutex
	failures int
	broken   chan struct{} // closed when maxFailures was reached
}

func newHealth(report func(error)) *health {
	return &health{report: report, broken: make(chan struct{})}
}

func (h *health) works() {
	h.mu.Lock()
	h.failures = 0
	h.mu.Unlock()
}

func (h *health) fails(why error) {
	h.mu.Lock()
	h.failures++
	now := h.failures == maxFailures
	if now {
		select {
		case <-h.broken: // reported once is enough
			now = false
		default:
			close(h.broken)
		}
	}
	h.mu.Unlock()
	if now {
		h.report(fmt.Errorf("the command does not work (%d failures in a row); the last: %w", maxFailures, why))
	}
}

// handBack is how long a task of a broken command is held before it is given
// back. By then the processor starts no more tasks, which would all come here
// one after the other and lose an attempt each.
const handBack = time.Second

// wait holds the tasks of a broken command. They are not tried, but given back
// at once rather than at the end of the processor's grace period, which is for
// tasks that are being worked on. That is an attempt of those few that were in
// hand, as their trial would have been.
func (h *health) wait(ctx context.Context) error {
	select {
	case <-h.broken:
	default:
		return nil
	}
	select {
	case <-time.After(handBack):
		return pump.RetryAfter(0, errBrokenCommand)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errBrokenCommand = errors.New("the command does not work; the task was given back untried")
