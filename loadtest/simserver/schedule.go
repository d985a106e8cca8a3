package simserver

import (
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// schedule puts faults in force when their time comes and ends them when it is over.
type schedule struct {
	sim *azsim.Sim

	mu    sync.Mutex
	armed []*armed            // guarded by mu
	told  map[string]darkness // the state that we gave each account; guarded by mu
}

// armed is a fault that was set. schedule.mu guards all of it.
type armed struct {
	fault     Fault
	set       time.Time
	on        bool
	over      bool // replaced: a timer that still fires changes nothing
	injection *azsim.Injection
	hits      int64 // from the earlier times in force
	timer     *time.Timer
}

// darkness is what an account is instead of well; the greater one wins.
type darkness int

const (
	lit darkness = iota
	disabled
	silent
	dark
	gone
)

// set replaces all faults.
func (s *schedule) set(faults []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.armed {
		a.over = true
		a.turn(s.sim, false)
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	s.armed = nil
	now := time.Now()
	for _, f := range faults {
		f.Operations = slices.Clone(f.Operations)
		a := &armed{fault: f, set: now}
		s.armed = append(s.armed, a)
		s.step(a)
	}
	s.darken()
}

// step makes a fault what its schedule says it is now, and comes back when that changes.
func (s *schedule) step(a *armed) {
	elapsed := time.Since(a.set)
	on, next := a.fault.at(elapsed)
	a.turn(s.sim, on)
	if next == 0 {
		return
	}
	a.timer = time.AfterFunc(next-elapsed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !a.over {
			s.step(a)
			s.darken()
		}
	})
}

func (a *armed) turn(sim *azsim.Sim, on bool) {
	if on == a.on {
		return
	}
	a.on = on
	switch k, _ := kindNamed(a.fault.Kind); {
	case k.rule == "" && on:
		a.begin(sim)
	case k.rule == "":
	case on:
		a.injection = sim.Inject(a.fault.inForce())
	default:
		a.injection.Remove()
		a.hits += a.injection.Hits()
		a.injection = nil
	}
}

// begin does what is done to accounts once each time that the fault begins.
func (a *armed) begin(sim *azsim.Sim) {
	for _, name := range sim.Accounts() {
		switch {
		case !a.fault.isOf(name):
		case a.fault.Kind == deleteKind && a.fault.Object != "":
			a.hits += int64(sim.DeleteQueues(name, a.fault.Object))
		case a.fault.Kind == deleteKind:
			a.hits += int64(sim.DeleteQueues(name))
		case a.fault.Back == "empty":
			sim.Reset(name)
		}
	}
}

func (f Fault) isOf(account string) bool { return f.Account == "" || f.Account == account }

// darken puts each account into the state of the faults in force. A state that a program has set by
// itself stays as long as these do not change.
func (s *schedule) darken() {
	want := map[string]darkness{}
	for _, a := range s.armed {
		k, _ := kindNamed(a.fault.Kind)
		for _, name := range s.sim.Accounts() {
			if a.on && a.fault.isOf(name) {
				want[name] = max(want[name], k.dark)
			}
		}
	}
	for _, name := range s.sim.Accounts() {
		if want[name] == s.told[name] {
			continue
		}
		states := map[darkness]azsim.State{disabled: azsim.Disabled, gone: azsim.Gone}
		s.sim.SetState(name, states[want[name]])
		if want[name] == silent {
			s.sim.Hang(name, true)
		} else {
			s.sim.Blackout(name, want[name] == dark)
		}
	}
	s.told = want
}

func (s *schedule) faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Fault, 0, len(s.armed))
	for _, a := range s.armed {
		list = append(list, a.fault)
	}
	return list
}

// faultCount is what a set fault has done so far.
type faultCount struct {
	Fault  string `json:"fault"` // as ParseFault reads it
	Active bool   `json:"active"`
	Hits   int64  `json:"hits"` // requests that it made go wrong, queues that it deleted
}

func (s *schedule) counts() []faultCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]faultCount, 0, len(s.armed))
	for _, a := range s.armed {
		c := faultCount{Fault: a.fault.String(), Active: a.on, Hits: a.hits}
		if a.injection != nil {
			c.Hits += a.injection.Hits()
		}
		list = append(list, c)
	}
	return list
}
