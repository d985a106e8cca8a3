// This file decides which of the requests of one instant goes on first.

package azsim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// order lets requests that would go on in one instant go on one after another
// (azsim.Config.Ordered). In virtual time many things happen in the same nanosecond,
// and which goroutine of several comes first in it is not decided.
//
// Time is cut into steps. Who is to go on in a step has said so before it
// begins, so that at its beginning all of them are known, and each takes the
// nanosecond that its key's rank gives. Virtual time only moves on when every goroutine
// waits, so whatever one of them brings about is over before the next goes on.
type order struct {
	mu    sync.Mutex
	steps map[int64]*step // by their beginning, Unix nanoseconds; guarded by mu
}

const every = int64(time.Microsecond)

// step is who goes on in one step.
type step struct {
	waiting []*wait // sorted once the step has begun
	begun   bool
	left    int // those who have not gone on
}

// wait is one who waits. Of those who say the same who came first goes first; who
// came in one nanosecond as well cannot be told apart.
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
