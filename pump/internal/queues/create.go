package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// createPatience is how long the making of a queue may take: the name of a deleted queue stays
// taken for at least 30 s, and an account's hiccup is over by then.
const createPatience = 90 * time.Second

// Back-off between attempts to make a queue.
const (
	createBase  = 500 * time.Millisecond
	createLimit = 5 * time.Second
)

// CreatePause waits between two attempts to make a queue.
func CreatePause(ctx context.Context, j waits.Jitter, queue string, attempt uint64) {
	waits.Wait(ctx, j.Full(createBase, createLimit, "create", queue, attempt))
}

// Create makes a queue, waiting while an older one of its name is still
// being deleted or the account does not answer.
func Create(ctx context.Context, s *Queue, j waits.Jitter, log *slog.Logger) error {
	patience, cancel := context.WithTimeout(ctx, createPatience)
	defer cancel()
	var last error
	for attempt := uint64(0); ; attempt++ {
		err := s.Create(patience, log)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case patience.Err() != nil:
			last = cmp.Or(last, err)
			return fmt.Errorf("queue %s is not ready after %v: %w", s, createPatience, last)
		}
		// A queue that is asked for by name cannot be gone round, just as the control account.
		if failure.Ends(failure.ControlAccount, err, failure.Command) {
			return fmt.Errorf("queue %s cannot be created: %w", s, err)
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
	err := s.Do(ctx, ClassPut, 1, cluster.OpCreate, "", s.Queue.Create)
	if mayNotCreate(err) {
		// A SAS that may only add messages suits a client. If the queue is missing, the client's first
		// put will say so.
		log.Warn("the credential does not allow to create queues; assuming that it exists",
			"queue", s.String())
		return nil
	}
	return err
}

// mayNotCreate tells a credential that is good for other things from a wrong one.
func mayNotCreate(err error) bool {
	e, ok := errors.AsType[*storage.Error](err)
	return ok && (e.Service == "AuthorizationPermissionMismatch" ||
		e.Service == "AuthorizationResourceTypeMismatch")
}

// Made is how many requests to queues this process has made.
func (f *Set) Made() (n int64) {
	for _, name := range f.Names() {
		for _, op := range [...]operation{OpGet, OpPut, OpDelete, cluster.OpRenew, OpReplace} {
			n += f.Account(name).counts.made[op].Load()
		}
	}
	return n
}
