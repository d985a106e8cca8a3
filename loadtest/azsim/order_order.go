// This file decides which of the requests of one instant goes on first.

package azsim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// order lets requests that would go on in one instant go on one after another ([Config.Ordered]).
// In virtual time many things happen in the same nanosecond, and the order of goroutines in it is
// not fixed.
//
// Time is cut into steps. A request that is to go on in a step says so before the step begins. So
// at its beginning all requests of the step are known, and each takes the nanosecond that its key's
// rank gives. Virtual time only moves on when every goroutine waits, so the effects of one request
// are over before the next goes on.
type order struct {
	mu    sync.Mutex
	steps map[int64]*step // by their beginning, Unix nanoseconds; guarded by mu
}

const every = int64(time.Microsecond)

// step is the requests that go on in one step.
type step struct {
	waiting []*wait // sorted once the step has begun
	begun   bool
	left    int // the ones that have not gone on
}

// wait is a request that waits. Of requests that say the same, the first to come goes first; if
// they also came in one nanosecond they cannot be told apart.
type wait struct {
	key  uint64
	came int64
}

// Pass waits for d and then until it is the turn of key; false if the context ended first.
func (o *order) Pass(ctx context.Context, d time.Duration, key uint64) bool {
	now := time.Now().UnixNano()
	at := (now+max(int64(d), 0))/every*every + every
	o.mu.Lock()
	if o.steps == nil {
		o.steps = make(map[int64]*step)
	}
	s := o.steps[at]
	if s == nil {
		s = &step{}
		o.steps[at] = s
	}
	w := &wait{key, now}
	s.waiting = append(s.waiting, w)
	s.left++
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if s.left--; s.left == 0 {
			delete(o.steps, at)
		}
	}()
	return orderSleep(ctx, time.Duration(at-now)) && orderSleep(ctx, time.Duration(1+o.rank(s, w)))
}

// rank gives the place of w among those of a step that has begun.
func (o *order) rank(s *step, w *wait) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !s.begun {
		s.begun = true
		slices.SortFunc(s.waiting, func(a, b *wait) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.came, b.came))
		})
	}
	return slices.Index(s.waiting, w)
}

// orderSleep waits for d in package time; false if the context ended first.
func orderSleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
