package queues

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/storage"
)

// known is what this process knows of the messages of one account that are not visible. It is kept
// only if the process samples the queues, and may be used from many goroutines.
type known struct {
	mu    sync.Mutex // guards what follows
	held  int        // in hand
	later map[int64]int
}

// hide notes a message that is put, or put back, for later. The time is rounded up: to a second,
// and for delays of more than a minute to less than a sixteenth of the delay, so that some sixty
// counters for each power of two of a delay hold any number of messages.
func (k *known) hide(now time.Time, delay time.Duration) {
	if k == nil || delay <= 0 {
		return
	}
	grain := int64(1)
	if s := int64(delay / time.Second); s > 64 {
		grain = int64(1) << (bits.Len64(uint64(s)) - 6)
	}
	until := now.Add(delay).Unix()/grain*grain + grain
	k.mu.Lock()
	defer k.mu.Unlock()
	k.later[until]++
}

func (k *known) counts(now time.Time) (held, later int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for until, n := range k.later {
		if until <= now.Unix() {
			delete(k.later, until)
			continue
		}
		later += n
	}
	return k.held, later
}

// Hold notes that the process has taken n messages more in hand, or settled some.
func (a *Account) Hold(n int) {
	if a.known == nil {
		return
	}
	a.known.mu.Lock()
	defer a.known.mu.Unlock()
	a.known.held += n
}

// Known is how many messages this process holds and has put back for later, by account, and how
// many deletes it has sent.
func (f *Set) Known(now time.Time) (held, later map[string]float64, deletes uint64) {
	held, later = map[string]float64{}, map[string]float64{}
	for _, name := range f.Names() {
		a := f.Account(name)
		deletes += uint64(a.counts.made[OpDelete].Load())
		if a.known != nil {
			h, l := a.known.counts(now)
			held[name], later[name] = float64(h), float64(l)
		}
	}
	return held, later, deletes
}

// Count is the service's approximate count of the queue, paid for as a put. If counts were paid for
// as gets, a sampler would get no turn at an account at its limit, when its numbers are wanted
// most. A sampler asks seldom. Count waits for the budget as long as ctx lasts, and then as long
// for the answer.
func (s *Queue) Count(ctx context.Context, within time.Duration) (n int64, err error) {
	err = s.look(ctx, within, cluster.OpCount, func(ctx context.Context) error {
		n, err = s.Queue.Count(ctx)
		return err
	})
	return n, err
}

// Peek looks at visible messages, paid for as a put that costs as many as it shows. It waits as
// Count does.
func (s *Queue) Peek(
	ctx context.Context, within time.Duration, limit int,
) (found []storage.Message, err error) {
	err = s.look(ctx, within, cluster.OpPeek, func(ctx context.Context) error {
		found, err = s.Queue.Peek(ctx, limit)
		return err
	})
	if more := len(found) - 1; more > 0 && s.perMsg {
		s.Budget.Charge(more)
		s.Account.Budget.Charge(more)
	}
	return found, err
}

func (s *Queue) look(
	ctx context.Context, within time.Duration, op operation, call func(context.Context) error,
) error {
	if err := s.Pay(ctx, ClassPut, 1, op, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.Send(ctx, op, "", call)
}

// hidden notes a message that a request has put, or put back, for later.
func (s *Queue) hidden(err error, delay time.Duration) error {
	if err == nil {
		s.Account.known.hide(time.Now(), delay)
	}
	return err
}
