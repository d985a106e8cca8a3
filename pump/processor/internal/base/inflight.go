package base

import (
	"context"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// InFlight counts what is under way.
type InFlight struct {
	mu    sync.Mutex // guards what follows
	n     int
	since time.Time     // when the last work was done
	empty chan struct{} // gets a token when n becomes 0
}

// NewInFlight makes a count of nothing.
func NewInFlight() *InFlight { return &InFlight{since: time.Now(), empty: make(chan struct{}, 1)} }

// Add counts more.
func (h *InFlight) Add(n int) {
	h.mu.Lock()
	h.n += n
	h.mu.Unlock()
}

// Done counts less, and reports whether nothing is left. What was not work does not change
// IdleSince.
func (h *InFlight) Done(n int, work bool) (calm bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n -= n
	if work {
		h.since = time.Now()
	}
	if h.n > 0 {
		return false
	}
	waits.Signal(h.empty)
	return true
}

// IdleSince is since when nothing has been under way, if nothing is.
func (h *InFlight) IdleSince() (since time.Time, calm bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.n == 0
}

// Wait waits until nothing is under way and reports whether that came before
// the context's end.
func (h *InFlight) Wait(ctx context.Context) bool {
	for {
		if _, calm := h.IdleSince(); calm {
			return true
		}
		select {
		case <-h.empty:
		case <-ctx.Done():
			_, calm := h.IdleSince()
			return calm
		}
	}
}

// Restart makes now the time since which nothing is under way.
func (h *InFlight) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = time.Now()
}

// Count is how many are under way.
func (h *InFlight) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}
