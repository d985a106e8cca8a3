package processor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// started is a processor at work.
type started = testworld.Started[*processor.Processor, processor.Summary]

// endAll stops processors together, none of which ends with an error.
func endAll(all []*started) {
	testworld.StopAll(all)
	endEach(all)
}

// endEach ends one processor after the other.
func endEach(all []*started) {
	for _, p := range all {
		p.End()
	}
}

// These are figures of the code under test, which no caller can name.
const (
	passMost           = 15 * time.Second
	leaveWithin        = 5 * time.Second
	pollIdleLeast      = 5 * time.Second
	pollIdleRate       = 10
	namesKept          = 15 * time.Minute
	putOffMost         = 5 * time.Minute
	livelyFor          = 15 * time.Second
	livelyMore         = 10
	defaultConcurrency = 256
	statePatience      = time.Hour
)

// idleBound is how long an idle queue is left alone at most, where so many pairs of a processor
// and a queue are.
func idleBound(pairs int) time.Duration {
	return max(pollIdleLeast, time.Duration(pairs)*time.Second/pollIdleRate)
}

// switchboard carries nudges between the processors of a test, unless it is blocked. That takes as
// long as between machines of one region.
type switchboard struct {
	blocked atomic.Bool
	carried atomic.Int64

	mu sync.Mutex
	by map[string]*processor.Processor // by instance
}

const nudgeTakes = 5 * time.Millisecond

func (s *switchboard) carry(ctx context.Context, n pump.Nudge) error {
	if err := testworld.Pause(ctx, nudgeTakes); err != nil {
		return err
	}
	s.mu.Lock()
	to := s.by[n.Instance]
	s.mu.Unlock()
	if s.blocked.Load() || to == nil || n.Address != n.Instance+":1" {
		return testworld.ErrFlop
	}
	s.carried.Add(1)
	to.Nudged(n)
	return nil
}

// join makes a processor with a configuration that can be nudged.
func (s *switchboard) join(w *testworld.World, cfg pump.Config, h pump.Handler, o processor.Options) *processor.Processor {
	cfg.Admin, cfg.Nudge = cfg.Instance+":1", s.carry
	p, err := processor.New(cfg, h, o)
	proof.Must(w.T, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*processor.Processor{}
	}
	s.by[cfg.Instance] = p
	return p
}
