package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/operations"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/storage"
)

// createPatience is how long a queue may take to come into being: the name of a
// deleted one stays taken for at least 30 s, and an account's hiccup is over by then.
const createPatience = 90 * time.Second

// Back-off between attempts to make a queue.
const (
	createBase  = 500 * time.Millisecond
	createLimit = 5 * time.Second
)

// CreatePause waits between two attempts to make a queue.
func CreatePause(ctx context.Context, j backoff.Jitter, queue string, attempt uint64) {
	backoff.Wait(ctx, j.Full(createBase, createLimit, "create", queue, attempt))
}

// Create makes a queue, waiting while an older one of its name is still
// being deleted or the account does not answer.
func Create(ctx context.Context, s *Queue, j backoff.Jitter, log *slog.Logger) error {
	patience, cancel := context.WithTimeout(ctx, createPatience)
	defer cancel()
	var c Creation
	var last error
	for attempt := uint64(0); ; attempt++ {
		err := s.Create(patience, log)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case patience.Err() != nil:
			if last == nil {
				last = err
			}
			return fmt.Errorf("queue %s is not ready after %v: %w", s, createPatience, last)
		}
		if err := c.Failed(s.String(), err, time.Now()); err != nil {
			return err
		}
		last = err
		if attempt == 0 {
			log.Warn("waiting for a queue to be created", "queue", s.String(), "error", err)
		}
		CreatePause(patience, j, s.String(), attempt)
	}
}

// Create asks once for the queue to be made.
func (s *Queue) Create(ctx context.Context, log *slog.Logger) error {
	err := s.Do(ctx, quota.ClassPut, 1, operations.Create, "", s.Queue.Create)
	if mayNotCreate(err) {
		// A SAS that may only add messages is a fine thing to give to a
		// client. If the queue is not there, its first put will say so.
		log.Warn("the credential does not allow to create queues; assuming that it exists",
			"queue", s.String())
		return nil
	}
	return err
}

// Creation is a queue that is being made, attempt by attempt. It may be used from many goroutines
// at once.
type Creation struct {
	mu       sync.Mutex
	deleting time.Time // since when an older queue of its name is in the way
}

// Failed judges an attempt that failed: nil if another may do better.
func (c *Creation) Failed(queue string, err error, now time.Time) error {
	switch storage.CodeOf(err) {
	case storage.Missing:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.deleting.IsZero() {
			c.deleting = now
		}
		if now.Sub(c.deleting) >= createPatience {
			return fmt.Errorf("queue %s is not ready after %v: %w", queue, createPatience, err)
		}
		return nil
	case storage.MaybeDone, storage.Throttled, storage.Canceled:
		return nil
	}
	return fmt.Errorf("queue %s cannot be created: %w", queue, err)
}

// mayNotCreate tells a credential that is good for other things from a wrong one.
func mayNotCreate(err error) bool {
	e, ok := errors.AsType[*storage.Error](err)
	if !ok || e.Code != storage.Auth {
		return false
	}
	switch e.Service {
	case "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch":
		return true
	}
	return false
}

// Made is how many requests to queues this process has made.
func (f *Set) Made() (n int64) {
	for _, name := range f.Names() {
		for _, op := range [...]operation{OpGet, OpPut, OpDelete, operations.Renew, OpReplace} {
			n += f.Account(name).counts.made[op].Load()
		}
	}
	return n
}
