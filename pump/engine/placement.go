package engine

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/internal/awake"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// A put goes where a map says, and a map may have become wrong by the time when the put
// acts: the account may have been drained, found empty and removed, and what lies in it then is read by
// no process (P6.5). So every put to a segment's home keeps to three steps in each try: it is
// paid for, then the map is asked, which must be young, and then it is sent at once
// ([shard.putBy]). A process that stood still between asking and sending learns of it by the
// answer's time: an account is not removed sooner than removeAfter after the map that it left.
//
// Copies of a message in hand that go into its own account need no such care. As long as the message
// exists its queue is not empty, and its account stays; and if it is gone, another process
// had it and has settled every task of it.

// elapsed is how much time has passed, on a machine that may have been suspended meanwhile.
func elapsed(since time.Time) time.Duration { return awake.Clock{}.Since(since) }

// young reports whether a map that was read then may be used for a put now.
func young(read time.Time) bool { return elapsed(read) < workload.MapMaxAge }

var errLateAnswer = errors.New("it was answered so late that the queue's account may have been removed before it was put")

// putBy sends a put that is paid for, to a queue that is right by a map which was read
// then. An answer that comes too late for that map is "maybe done".
func (s *shard) putBy(ctx context.Context, read time.Time, text []byte, delay time.Duration, about string) error {
	err := s.sendPut(ctx, text, delay, about)
	if err == nil && elapsed(read) >= removeAfter {
		return &storage.Error{Code: storage.MaybeDone, Op: opPut.String(), Account: s.account.name, Object: s.name, Index: -1, Err: errLateAnswer}
	}
	return err
}

// removeAfter is how long a queue must have been draining before its emptiness means
// that it stays empty: for so long may a writer use the map from before (P6.5), and then
// a last put that it has begun may be under way.
const removeAfter = workload.MapMaxAge + backoff.RequestTimeout
