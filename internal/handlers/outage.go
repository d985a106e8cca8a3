package handlers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/sparing"
)

// The pauses between attempts to reach what cannot be reached.
const (
	outageBase = 100 * time.Millisecond
	outageMax  = 10 * time.Second
)

// outage holds tasks while an endpoint cannot be reached, which is no fault of
// theirs. One of them tries after each pause, until it gets through.
type outage struct {
	log      *slog.Logger
	stopping <-chan struct{} // then tasks are given back rather than held

	mu    sync.Mutex
	back  chan struct{} // nil unless there is an outage; closed at its end
	tries int
	next  time.Time // when somebody may try
	said  time.Time // when the log last said so
}

// pass returns when the caller may try, or with the error for its task.
func (o *outage) pass(ctx context.Context) error {
	for {
		o.mu.Lock()
		back, wait := o.back, time.Until(o.next)
		if back != nil && wait <= 0 { // the caller tries; the others wait for what comes of it
			o.tries++
			o.next = time.Now().Add(o.pause())
		}
		o.mu.Unlock()
		if back == nil || wait <= 0 {
			return nil
		}
		select {
		case <-back:
		case <-time.After(wait):
		case <-o.stopping:
			return giveBack(ctx, errUnreachable)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *outage) pause() time.Duration {
	return min(outageBase<<min(o.tries, 10), outageMax)
}

// begin notes that the endpoint could not be reached.
func (o *outage) begin(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.back == nil {
		o.back, o.tries = make(chan struct{}), 0
		o.next = now.Add(o.pause())
	}
	if o.said.IsZero() || now.Sub(o.said) >= sparing.Every {
		o.said = now
		o.log.Error("the endpoint cannot be reached; tasks wait until it can, and lose no attempt", "error", why)
	}
}

// end notes that it was reached.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back == nil {
		return
	}
	close(o.back)
	o.back = nil
	o.log.Info("the endpoint can be reached again")
}
