package azsim

import (
	"context"
	"time"
)

// enter lets a request begin. The request's place among those of the same instant decides its
// number, for its delays, faults and limits. Requests of one instant arrive in no fixed order, so
// their ids come from their contents.
func (s *Sim) enter(ctx context.Context, c *call, r *request) bool {
	if !s.config.Ordered {
		return true
	}
	words := r.words(c)
	r.id = drawGUID(s.config.Seed, requestWord, words, uint64(time.Now().UnixNano())).String()
	return s.order.Pass(ctx, 0, words)
}

// pass lets a request go on after d, apart from all others if that is asked for.
func (s *Sim) pass(ctx context.Context, d time.Duration, key uint64) bool {
	if !s.config.Ordered {
		return orderSleep(ctx, d)
	}
	return s.order.Pass(ctx, d, key)
}
