package queues

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/storage"
)

// operation is a kind of storage request, as it is counted.
type operation = cluster.Op

// The kinds that others than this package pay for.
const (
	OpPut     = cluster.OpPut
	OpGet     = cluster.OpGet
	OpReplace = cluster.OpReplace
	OpDelete  = cluster.OpDelete
)

// requestCounts counts the requests to one account. It may be used from many
// goroutines at once.
type requestCounts struct {
	made      [cluster.OpKinds]atomic.Int64
	throttled atomic.Int64
	// silent is when the first unanswered request since the last answer was made, Unix ns, or 0.
	silent    atomic.Int64
	refused   atomic.Bool           // the last answer was that the credential is not good
	failure   atomic.Pointer[error] // of the last request, if the account did nothing of it
	allowance *Allowance            // nil: their cost does not matter
}

func (c *requestCounts) add(op operation, err error) {
	switch {
	case c.count(op, err):
		c.heard(err)
	case errors.Is(err, context.DeadlineExceeded): // no token came, or no slot of its host was free
		c.failure.Store(&err)
		c.silent.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// count counts a request, and reports whether it was sent: else it cost the account nothing.
func (c *requestCounts) count(op operation, err error) (sent bool) {
	if err != nil && storage.Is(err, storage.Canceled) {
		return false
	}
	c.made[op].Add(1)
	c.allowance.Spend(op.String())
	if err != nil && storage.Is(err, storage.Throttled) {
		c.throttled.Add(1)
	}
	return true
}

// heard notes whether the account answered, for trouble.
func (c *requestCounts) heard(err error) {
	switch e, _ := AsError(err); {
	case storage.Ambiguous(err), storage.Is(err, storage.Auth), e != nil && e.NoAccount():
		c.failure.Store(&err)
	case c.failure.Load() != nil: // every request comes here, so what does not change is not written
		c.failure.Store(nil)
	}
	if err != nil && storage.CodeOf(err) == storage.MaybeDone {
		c.silent.CompareAndSwap(0, time.Now().UnixNano())
		return
	}
	if c.silent.Load() != 0 {
		c.silent.Store(0)
	}
	if refused := storage.Is(err, storage.Auth); c.refused.Load() != refused {
		c.refused.Store(refused)
	}
}

// silence is for how long the account has not answered, and whether its last
// answer was that the credential is not good.
func (c *requestCounts) silence(now time.Time) (seconds float64, refused bool) {
	if from := c.silent.Load(); from != 0 {
		seconds = max(now.Sub(time.Unix(0, from)).Seconds(), 0)
	}
	return seconds, c.refused.Load()
}

// trouble is why the account does not do what it is asked, nil if it does.
func (c *requestCounts) trouble() error {
	if last := c.failure.Load(); last != nil {
		return *last
	}
	return nil
}

// snapshot gives the counts by the operation's name, without those at zero.
func (c *requestCounts) snapshot() map[string]int64 {
	out := map[string]int64{}
	for op := range cluster.OpKinds {
		if n := c.made[op].Load(); n > 0 {
			out[op.String()] = n
		}
	}
	return out
}

// counts gives the counts by kind.
func (c *requestCounts) counts() (n cluster.OpCounts) {
	for op := range cluster.OpKinds {
		n[op] = uint64(c.made[op].Load())
	}
	return n
}

// Since is what was asked of r after the counts in before.
func Since(r, before pump.Requests) pump.Requests {
	out := pump.Requests{}
	for account, ops := range r {
		out[account] = map[string]int64{}
		for op, n := range ops {
			if n -= before[account][op]; n > 0 {
				out[account][op] = n
			}
		}
	}
	return out
}
