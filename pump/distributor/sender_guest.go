package distributor

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// A sender is a guest of the cluster as long as it sends seldom: it has no member row, and the row
// of its run beats for it. It looks at the cluster now and then, to know which processors to nudge
// and what envelopes they read. It joins when it needs what only members have: a share of the
// budgets, or marks for what its queues do not take.
const (
	// guestPart of a queue's limit is what a guest may put into an account, second after second: a
	// thousand guests put less than two dozen queues take.
	guestPart = 1. / 100
	// guestBursts is for how long a guest may put more, within the floor of a process that is alone.
	guestBursts = member.DefaultBeat
	// guestAgain is for how long a member must have needed nothing to be a guest again.
	guestAgain = 2 * time.Minute
	// guestLook is how often a guest looks at most, and guestRow how much less often for each row that
	// a look costs: a thousand guests read 500 rows a second, in a cluster of any size.
	guestLook = 30 * time.Second
	guestRow  = 2 * time.Second
	guestAnew = 5 * time.Second // after a look that failed
	// guestTick is how often a guest considers whether it still is one.
	guestTick = time.Second
)

// visit is the part in the cluster of a sender, until it ends.
func (s *membership) visit() {
	for s.beGuest() {
		s.enter()
		if !s.whileNeeded() {
			return // end leaves
		}
		s.leave(s.ctx)
		s.d.router.Alone()
	}
}

// beGuest returns when this process needs to be a member; false: it ends.
func (s *membership) beGuest() bool {
	d, j := s.d, waits.Jitter(s.d.cfg.Instance)
	d.fleet.Retarget(queues.Unjoined(d.fleet.Limits(), 0, d.fleet.Names()))
	var due, busy time.Time
	for n := uint64(0); s.ctx.Err() == nil; n++ {
		now := time.Now()
		if !now.Before(due) && (s.seen.Load() == nil || s.put.Load()) {
			due = now.Add(j.Around(s.glance(), "glance", d.cfg.Workload, n))
			s.arrived()
		}
		switch held, needs := s.needs(); {
		case held:
			return true
		case !needs:
			busy = time.Time{}
		case busy.IsZero():
			busy = now
		case now.Sub(busy) >= guestBursts:
			return true
		}
		waits.Wait(s.ctx, j.Around(guestTick, "guest", d.cfg.Workload, n))
	}
	return false
}

// whileNeeded returns when the membership has not been needed for a while; false: it ends.
func (s *membership) whileNeeded() bool {
	j := waits.Jitter(s.d.cfg.Instance)
	last := time.Now()
	for n := uint64(0); waits.Wait(s.ctx, j.Around(guestTick, "stays", s.d.cfg.Workload, n)); n++ {
		held, needs := s.needs()
		switch now := time.Now(); {
		case held || needs:
			last = now
		case now.Sub(last) >= guestAgain:
			return true
		}
	}
	return false
}

// needs says whether this process puts more than a guest should, and whether something that a
// member could change holds it back.
func (s *membership) needs() (held, more bool) {
	f := s.d.fleet
	if t := s.d.router.Current(); t != nil {
		held = t.Strained()
	}
	targets := f.Targets.Load()
	for name, demand := range f.Demand() {
		more = more || demand > f.Limits().Queue*guestPart
		held = held || f.Account(name) != nil && f.Short(name, demand, targets)
	}
	return held, more
}

// glance looks at the cluster without being seen there, and says after how long to look again.
func (s *membership) glance() time.Duration {
	d := s.d
	ctx, cancel := context.WithTimeout(s.ctx, waits.RequestTimeout)
	defer cancel()
	s.put.Store(false)
	v, err := cluster.LoadView(ctx, d.fleet.Control, d.cfg.Workload)
	if err != nil {
		s.put.Store(true)
		return guestAnew
	}
	s.seen.Store(v)
	d.router.Glance(v)
	s.notifyOwners(v)
	return max(guestLook, guestRow*time.Duration(v.Rows()))
}
