package queues

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/storage"
)

// Peek looks at up to limit visible messages and takes none. It comes after all that does work, and
// costs what a get of as many messages does. It waits for the budget as long as ctx lasts, and then
// for the answer so long.
func (s *Queue) Peek(
	ctx context.Context,
	within time.Duration,
	limit int,
) (msgs []storage.Message, err error) {
	err = s.look(ctx, within, opPeek, func(ctx context.Context) error {
		msgs, err = s.Queue.Peek(ctx, limit)
		return err
	})
	if more := len(msgs) - 1; s.perMsg && more > 0 {
		s.Budget.Charge(more)
		s.Account.Budget.Charge(more)
	}
	return msgs, err
}

// Count is the service's approximate number of messages. It waits as Peek does.
func (s *Queue) Count(ctx context.Context, within time.Duration) (n int64, err error) {
	err = s.look(ctx, within, opCount, func(ctx context.Context) error {
		n, err = s.Queue.Count(ctx)
		return err
	})
	return n, err
}

func (s *Queue) look(
	ctx context.Context,
	within time.Duration,
	op operation,
	call func(context.Context) error,
) error {
	if err := s.Pay(ctx, quota.ClassGet, 1, op, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.Send(ctx, op, "", call)
}
