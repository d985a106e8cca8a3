package queues

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// A put goes where a map says, and the map may be wrong by the time when the put acts: the account
// may have been drained, found empty and removed, and no process would read the message (P6.5). So
// every put to a segment's home takes three steps in each try: it is paid for, then the map is
// asked, which must be young, and then the put is sent at once ([shard.putBy]). A process that
// stood still between asking and sending learns that from the answer's time: an account is not
// removed sooner than RemoveAfter after the map that it left.
//
// Copies of a message in hand that go into its own account do not need that. As long as the message
// exists its queue is not empty, and its account stays; and if it is gone, another process had it
// and has settled every task of it.

// Elapsed is how much time has passed, on a machine that may have been suspended meanwhile.
func Elapsed(since time.Time) time.Duration { return waits.Clock{}.Since(since) }

// Young reports whether a map that was read then may be used for a put now.
func Young(read time.Time) bool { return Elapsed(read) < workload.MapMaxAge }

var errLateAnswer = errors.New("it was answered so late " +
	"that the queue's account may have been removed before it was put")

// PutBy sends a paid put to a queue that is right by a map that was read at a time. An answer that
// comes too late for that map is "maybe done".
func (s *Queue) PutBy(
	ctx context.Context, read time.Time, text []byte, delay time.Duration, about string,
) error {
	err := s.sendPut(ctx, text, delay, about)
	if err == nil && Elapsed(read) >= RemoveAfter {
		return &storage.Error{
			Code: storage.MaybeDone, Op: OpPut.String(), Account: s.Account.Name, Object: s.Name, Index: -1,
			Err: errLateAnswer,
		}
	}
	return err
}

// RemoveAfter is how long a queue must have been draining before its emptiness means that it stays
// empty: for so long a writer may use the older map (P6.5), and then its last put may be under way.
const RemoveAfter = workload.MapMaxAge + waits.RequestTimeout
