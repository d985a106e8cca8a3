package simserver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// Simulator is an azsim.Sim that is steered by words and from outside. Close ends its schedules.
type Simulator struct {
	*azsim.Sim
	seed     uint64
	public   bool
	schedule schedule

	mu      sync.Mutex
	limits  azsim.Limits  // guarded by mu
	latency azsim.Latency // guarded by mu
	server  *azsim.Server // the latest that listens; guarded by mu
}

// New makes a simulator and sets its faults. Like azsim.New it panics on a configuration that can
// never work.
func New(c azsim.Config, faults ...Fault) (*Simulator, error) {
	s := &Simulator{Sim: azsim.New(c), seed: c.Seed, public: c.Public, limits: c.Limits}
	s.latency = azsim.Latency{Queue: c.Latency, Table: c.Latency}
	s.schedule.sim = s.Sim
	return s, s.SetFaults(faults...)
}

// Close ends all faults and schedules. What the accounts hold stays.
func (s *Simulator) Close() { s.schedule.set(nil) }

// maxFaults bounds how many faults are in force: each request is held against each.
const maxFaults = 100

// SetFaults replaces all faults; their times count from now. On an error those in force stay.
func (s *Simulator) SetFaults(faults ...Fault) error {
	if len(faults) > maxFaults {
		return fmt.Errorf("%d faults are too many; the most are %d", len(faults), maxFaults)
	}
	for _, f := range faults {
		if err := f.check(s.Accounts()); err != nil {
			return fmt.Errorf("fault %q: %w", clipped(f.String()), err)
		}
	}
	s.schedule.set(faults)
	return nil
}

// CurrentFaults are the faults that were set last.
func (s *Simulator) CurrentFaults() []Fault { return s.schedule.faults() }

// SetLimits changes the limits of all accounts.
func (s *Simulator) SetLimits(l azsim.Limits) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Sim.SetLimits(l); err != nil {
		return err
	}
	s.limits = l
	return nil
}

// CurrentLimits are the limits in force.
func (s *Simulator) CurrentLimits() azsim.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// SetLatency changes how long requests take.
func (s *Simulator) SetLatency(l azsim.Latency) error {
	for _, d := range []time.Duration{l.Queue, l.Table, l.Spread} {
		if d < 0 || d > longDelay {
			return fmt.Errorf("latency: %v is not from 0s to %v", d, longDelay)
		}
	}
	if l.Spread > 0 && l.Queue == 0 && l.Table == 0 {
		return errors.New("latency: a spread needs a latency that it is added to")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Sim.SetLatency(l)
	s.latency = l
	return nil
}

// CurrentLatency is how long requests take.
func (s *Simulator) CurrentLatency() azsim.Latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latency
}

// Listen is azsim.Sim.Listen; the admin endpoint then tells connection strings.
func (s *Simulator) Listen(addrs ...string) (*azsim.Server, error) {
	srv, err := s.Sim.Listen(addrs...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = srv
	return srv, nil
}
