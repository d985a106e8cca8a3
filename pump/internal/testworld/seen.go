package testworld

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// Seen is a handler that notes what it is given.
type Seen struct {
	Mu    sync.Mutex
	Times map[string]int // deliveries by identity
	most  int            // at once
	now   int
	Order []pump.Task
	First time.Time // when the first was handled
	Work  func(ctx context.Context, t *pump.Task) error
}

// Handle notes a task and does the work, if there is some.
func (s *Seen) Handle(ctx context.Context, t *pump.Task) error {
	s.Mu.Lock()
	if s.Times == nil {
		s.Times = map[string]int{}
		s.First = time.Now()
	}
	s.Times[Identity(t)]++
	copied := *t
	copied.Key, copied.Body = slices.Clone(t.Key), slices.Clone(t.Body)
	s.Order = append(s.Order, copied)
	s.now++
	s.most = max(s.most, s.now)
	s.Mu.Unlock()
	defer func() {
		s.Mu.Lock()
		s.now--
		s.Mu.Unlock()
	}()
	if s.Work == nil {
		return nil
	}
	return s.Work(ctx, t)
}

// Identity is what tells a task from all others.
func Identity(t *pump.Task) string {
	if t.Foreign != "" {
		return t.Foreign
	}
	return fmt.Sprintf("%v/%d/%d", t.Run, t.Segment, t.N)
}

// Tasks is how many different tasks were seen, deliveries how often in all.
func (s *Seen) Tasks() int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return len(s.Times)
}

// Deliveries is how often tasks were handed over in all.
func (s *Seen) Deliveries() (n int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for n2 := range maps.Values(s.Times) {
		n += n2
	}
	return n
}

// AtOnce is how many tasks were handled at the same time, at most.
func (s *Seen) AtOnce() int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.most
}

// Expect checks that each of n tasks was delivered, and in all so many times.
func (s *Seen) Expect(t *testing.T, tasks, deliveries int) {
	t.Helper()
	proof.Same(t, s.Tasks(), tasks, "tasks were handled")
	proof.Same(t, s.Deliveries(), deliveries, "deliveries")
}

// Pause sleeps in virtual time as a handler does: until its context ends.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ErrFlop is the error of what fails in tests.
var ErrFlop = errors.New("flop")

// Started is when the first task was handled.
func (s *Seen) Started() time.Time {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.First
}
