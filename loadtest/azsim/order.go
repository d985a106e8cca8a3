package azsim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// order lets requests that would go on in one instant go on one after another
// (Config.Ordered). In virtual time many things happen in the same nanosecond,
// and which goroutine of several comes first in it is not decided.
//
// Time is cut into steps. Who is to go on in a step has said so before it
// begins, so that at its beginning all of them are known, and each takes the
// nanosecond that its key's rank gives. Virtual time only moves on when every goroutine
// waits, so whatever one of them brings about is over before the next goes on.
type order struct {
	mu    sync.Mutex
	steps map[int64]*orderStep // by their beginning, Unix nanoseconds; guarded by mu
}

const orderEvery = int64(time.Microsecond)

// orderStep is who goes on in one step.
type orderStep struct {
	waiting []*orderWait // sorted once the step has begun
	begun   bool
	left    int // those who have not gone on
}

// orderWait is one who waits. Of those who say the same who came first goes first; who
// came in one nanosecond as well cannot be told apart.
type orderWait struct {
	key  uint64
	came int64
}

// pass waits for d and then until it is the turn of key; false if the context ended first.
func (o *order) pass(ctx context.Context, d time.Duration, key uint64) bool {
	now := time.Now().UnixNano()
	at := (now+max(int64(d), 0))/orderEvery*orderEvery + orderEvery
	o.mu.Lock()
	if o.steps == nil {
		o.steps = make(map[int64]*orderStep)
	}
	s := o.steps[at]
	if s == nil {
		s = &orderStep{}
		o.steps[at] = s
	}
	w := &orderWait{key, now}
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
	return sleep(ctx, time.Duration(at-now)) && sleep(ctx, time.Duration(1+o.rank(s, w)))
}

// rank gives the place of w among those of a step that has begun.
func (o *order) rank(s *orderStep, w *orderWait) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !s.begun {
		s.begun = true
		slices.SortFunc(s.waiting, func(a, b *orderWait) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.came, b.came))
		})
	}
	return slices.Index(s.waiting, w)
}

// enter lets a request begin. Its place among those of the instant decides the how
// many-th it is, for its delays, faults and limits. Requests that came in one instant
// were numbered in no order, so their ids are of what they say.
func (s *Sim) enter(ctx context.Context, c *call, r *request) bool {
	if !s.config.Ordered {
		return true
	}
	words := r.words(c)
	r.id = guid(s.config.Seed, requestWord, words, uint64(time.Now().UnixNano())).String()
	return s.order.pass(ctx, 0, words)
}

// pass lets a request go on after d, apart from all others if that is asked for.
func (s *Sim) pass(ctx context.Context, d time.Duration, key uint64) bool {
	if !s.config.Ordered {
		return sleep(ctx, d)
	}
	return s.order.pass(ctx, d, key)
}
