package handlers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
)

// The pauses between attempts to reach the endpoint.
const (
	breakerBase = 100 * time.Millisecond
	breakerMax  = 10 * time.Second
)

// breaker holds tasks while an endpoint cannot be reached, because they did not cause that. After
// each pause one of them tries, until one gets through.
type breaker struct {
	log      *slog.Logger
	stopping <-chan struct{} // then tasks are given back rather than held

	mu    sync.Mutex
	back  chan struct{} // nil unless there is an outage; closed at its end
	tries int
	next  time.Time // when a task may try
	said  logs.Limited
	told  bool // the log told of this outage, so it tells of the end too
	times int  // outages since the last line
}

// pass returns when the caller may try, or with the error for its task.
func (o *breaker) pass(ctx context.Context) error {
	for {
		o.mu.Lock()
		back, wait := o.back, time.Until(o.next)
		if back != nil && wait <= 0 { // the caller tries; the others wait for its result
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

func (o *breaker) pause() time.Duration {
	return min(breakerBase<<min(o.tries, 10), breakerMax)
}

// begin notes that the endpoint could not be reached.
func (o *breaker) begin(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back == nil {
		o.back, o.tries = make(chan struct{}), 0
		o.next = time.Now().Add(o.pause())
		o.times++
	}
	if o.said.Due() {
		o.log.Error("the endpoint cannot be reached; tasks wait until it can, and lose no attempt",
			"error", why, "times", o.times)
		o.told, o.times = true, 0
	}
}

// end notes that it was reached.
func (o *breaker) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back == nil {
		return
	}
	close(o.back)
	o.back = nil
	if o.told {
		o.told = false
		o.log.Info("the endpoint can be reached again")
	}
}
