package queues

import (
	"context"

	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/storage"
)

// Peek looks at up to limit visible messages and takes none. It comes after all that does work, and
// costs what a get of as many messages does.
func (s *Queue) Peek(ctx context.Context, limit int) (msgs []storage.Message, err error) {
	if err := s.Pay(ctx, quota.ClassGet, 1, opPeek, ""); err != nil {
		return nil, err
	}
	err = s.Send(ctx, opPeek, "", func(ctx context.Context) error {
		msgs, err = s.Queue.Peek(ctx, limit)
		return err
	})
	if more := len(msgs) - 1; s.perMsg && more > 0 {
		s.Budget.Charge(more)
		s.Account.Budget.Charge(more)
	}
	return msgs, err
}

// Count is the service's approximate number of messages, paid for as one.
func (s *Queue) Count(ctx context.Context) (n int64, err error) {
	err = s.Do(ctx, quota.ClassGet, 1, opCount, "", func(ctx context.Context) error {
		n, err = s.Queue.Count(ctx)
		return err
	})
	return n, err
}
