package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// seen is a handler that notes what it is given.
type seen struct {
	mu    sync.Mutex
	times map[string]int // deliveries by identity
	most  int            // at once
	now   int
	order []pump.Task
	first time.Time // when the first was handled
	work  func(ctx context.Context, t *pump.Task) error
}

func (s *seen) Handle(ctx context.Context, t *pump.Task) error {
	s.mu.Lock()
	if s.times == nil {
		s.times = map[string]int{}
		s.first = time.Now()
	}
	s.times[identity(t)]++
	copied := *t
	copied.Key, copied.Body = slices.Clone(t.Key), slices.Clone(t.Body)
	s.order = append(s.order, copied)
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if s.work == nil {
		return nil
	}
	return s.work(ctx, t)
}

func identity(t *pump.Task) string {
	if t.Foreign != "" {
		return t.Foreign
	}
	return fmt.Sprintf("%v/%d/%d", t.Run, t.Segment, t.N)
}

// tasks is how many different tasks were seen, deliveries how often in all.
func (s *seen) tasks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

func (s *seen) deliveries() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n2 := range maps.Values(s.times) {
		n += n2
	}
	return n
}

// atOnce is how many tasks were handled at the same time, at most.
func (s *seen) atOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// expect checks that each of n tasks was delivered, and in all so many times.
func (s *seen) expect(t *testing.T, tasks, deliveries int) {
	t.Helper()
	if got := s.tasks(); got != tasks {
		t.Errorf("%d tasks were handled, want %d", got, tasks)
	}
	if got := s.deliveries(); got != deliveries {
		t.Errorf("%d deliveries, want %d", got, deliveries)
	}
}

// pause sleeps in virtual time as a handler does: until its context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errFlop = errors.New("flop")

// handledKeys counts by key what a handler was given.
func (s *seen) handledKeys() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, t := range s.order {
		out[string(t.Key)]++
	}
	return out
}

// started is when the first task was handled.
func (s *seen) started() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

func (s *seen) starts(times *[]time.Time) *seen {
	s.work = func(context.Context, *pump.Task) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		*times = append(*times, time.Now())
		return nil
	}
	return s
}
