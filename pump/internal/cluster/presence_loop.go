package cluster

import (
	"errors"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// loopState is what only the loop knows.
type loopState struct {
	first    *View // read by Join, and not attended to yet
	self     row.Version[memberRow]
	observer *observer

	beatTried  time.Time // when the last beat was begun
	beatDue    time.Time // when the next one is due, jittered
	beatFailed bool      // the last one did: nothing but beatDue brings the next

	lookTried time.Time     // when the last look at the cluster was begun
	lookDue   time.Time     // when the next one is due, beside those that go with beats
	lookGap   time.Duration // between two that were asked for, at least
	every     int           // with every how-many-th beat there is a look
	unseen    int           // beats since the last look, of those that bring one
	news      time.Time     // when the last newer view was here
	signs     signs         // own beats; they prove that a muster is fresh
	watched   bool          // this member was a watcher by the last view
	standsIn  bool          // this member reads all rows for silent watchers
	muster    storage.ETag  // of the last muster that was read or written
	hinted    time.Time     // when the last look was begun that was asked for
	// this member made members come or go; the next look shows which members that concerns
	announce bool

	pending time.Time // since when there has been something to wait for; zero: there is not

	damaged logs.Limited // rows cannot be read
	alone   logs.Limited // segments have no owner
	mute    logs.Limited // beats are not acknowledged
	blind   logs.Limited // looks at the cluster fail
	crowded logs.Limited // the cluster is too large for a muster
	stays   logs.Limited // a dead member does
	stuck   logs.Limited // owners are not changed
	lost    bool         // the workload is gone, and that was told
	late    bool         // the last beat was answered too late, and that was told
}

// run is the presence's one goroutine. It alone writes the member row and the owner rows, one
// request after the other, so that each step knows how the last one ended. A wake-up changes
// nothing by itself: the clock and flags decide the next step (P9).
func (p *Presence) run() {
	defer close(p.done)
	defer p.cancel()
	defer p.alarm.Stop()
	defer p.endAll(errHandedOver)
	defer p.rounds.Begin()()
	p.seeFirst()
	for p.ctx.Err() == nil {
		p.rounds.Add()
		w := p.wanted()
		switch now := time.Now(); {
		case w.gone:
			p.goAway()
			return
		case !now.Before(p.nextBeat(w)):
			// A beat out of turn does not bring a look if looks are dear: a member that gets hints all the
			// time would read all rows with each. nextLook says when hints bring a look.
			brings := !now.Before(p.loop.beatDue) || p.loop.lookGap <= p.shortest()
			if p.beat() && (brings || p.loop.self.Value.Draining) {
				p.loop.unseen++
			}
		case !now.Before(p.nextLook(w)) || p.loop.unseen >= p.loop.every:
			p.lookAround()
		default:
			p.await(w)
		}
	}
}

// await sleeps until something is due or wakes the loop.
func (p *Presence) await(w wishes) {
	until := p.nextBeat(w)
	for _, at := range []time.Time{p.nextLook(w), w.drainBy} {
		if !at.IsZero() && at.Before(until) {
			until = at
		}
	}
	waits.Sleep(p.ctx, time.Until(until), p.wake)
}

// wishes are what others want of the loop.
type wishes struct {
	speak   bool      // a beat is wanted now
	look    bool      // a look at the cluster is
	drainBy time.Time // when leaving, else zero
	gone    bool      // when leaving: no segment is held any more, or the time to drain is over
	unsaid  bool      // the member row does not say what it should
}

func (p *Presence) wanted() wishes {
	listed := p.listed()
	p.mu.RLock()
	defer p.mu.RUnlock()
	w := wishes{speak: p.speak, look: p.look, drainBy: p.drainBy, gone: p.leaving}
	if time.Now().Before(p.drainBy) {
		for _, h := range p.holds {
			w.gone = w.gone && h == nil
		}
	}
	said := p.loop.self.Value
	w.unsaid = string(listed) != string(said.Holds) || p.leaving && !said.Draining
	return w
}

// nextBeat is when the member row is to be written next: in time for trust, and soon if it does not
// say what it should or a beat is asked for.
func (p *Presence) nextBeat(w wishes) time.Time {
	l := &p.loop
	gap := p.shortest()
	if l.observer.large(p.View()) && !w.speak && w.drainBy.IsZero() {
		gap = p.times.Beat / 4 // one beat says what several changes of holds have come to
	}
	if soon := l.beatTried.Add(gap); (w.speak || w.unsaid) && !l.beatFailed && soon.Before(l.beatDue) {
		return soon
	}
	return l.beatDue
}

// nextLook is when the cluster is to be looked at, beside the looks that go with beats.
func (p *Presence) nextLook(w wishes) time.Time {
	l := &p.loop
	if !w.look {
		return l.lookDue
	}
	soon := l.lookTried.Add(p.shortest())
	if at := l.hinted.Add(l.lookGap); at.After(soon) {
		soon = at
	}
	if soon.Before(l.lookDue) {
		return soon
	}
	return l.lookDue
}

// shortest is the time between two beats, or two looks, that are wanted soon.
func (p *Presence) shortest() time.Duration { return p.times.Beat / 20 }

// seeFirst attends to the view that Join has read.
func (p *Presence) seeFirst() {
	v := p.loop.first
	p.loop.first = nil
	p.loop.lookTried = v.Read
	p.consider(v)
}

// lookAround reads the cluster once and attends to what it saw.
func (p *Presence) lookAround() {
	p.mu.Lock()
	p.look = false
	p.mu.Unlock()
	l := &p.loop
	l.lookTried = time.Now()
	if l.unseen < l.every && l.lookTried.Before(l.lookDue) {
		l.hinted = l.lookTried
	}
	l.unseen = 0
	v, err := p.lookAt()
	if workload.Lost(err) {
		p.lost(err)
		l.lookDue = time.Now().Add(p.times.Lease) // until then Leave has been called
		return
	}
	l.blind.Tell(p.ctx, p.options.Log, err, "the cluster could not be looked at",
		"the cluster could be looked at again")
	if err != nil {
		// A member that cannot see does not claim, give up or evict (P5.6).
		l.lookDue = time.Now().Add(p.draw.Jitter("look", p.row.Object(), p.times.Beat/2))
		return
	}
	if v == nil {
		p.noNews()
		return
	}
	p.consider(v)
}

// noNews attends to the present view: this member's holdings may have changed since, as when a
// segment is settled. A judgement of an entry stays true while the entry is the same.
func (p *Presence) noNews() {
	v := p.View()
	pending := p.attend(v)
	p.schedule(p.View(), false, pending, time.Time{})
}

// lost notes that the workload is gone. The held segments have no owner, or other owners by the
// rows of another workload. The half is told once.
func (p *Presence) lost(err error) {
	if p.loop.lost {
		return
	}
	p.loop.lost = true
	p.voidAll(err)
	p.endAll(err) // what voidAll leaves to at-least-once delivery too
	p.options.Log.Error("this process ends: its workload is gone", "error", err)
	if p.options.Lost != nil {
		p.options.Lost(err)
	}
}

// consider attends to a view and decides when the next look is due.
func (p *Presence) consider(v *View) {
	l := &p.loop
	if !p.shown(v) {
		// Evicted since the last beat. From here on it would judge without being a member.
		p.rejoin(errEvicted)
		l.lookDue = time.Now()
		return
	}
	l.news = time.Now()
	l.observer.see(v)
	// A watcher goes on until its successor has written a muster: that one may not know yet.
	watches := l.observer.watches(v)
	large := l.observer.large(v)
	l.standsIn = large && !v.muster && !watches && (l.standsIn || l.watched)
	l.watched = large && watches
	if l.announce || large && watches {
		l.announce = false
		p.nudgeAll(v)
	}
	p.publish(v)
	p.noteUnowned(v)
	p.alarmDamaged(v)
	var evicted bool
	var next time.Time
	if !v.muster { // what another saw is enough to plan, not to judge which members are dead
		evicted, next = p.evict(v)
	}
	pending := evicted || p.attend(v)
	p.schedule(v, evicted, pending, next)
}

// schedule says when to look again.
func (p *Presence) schedule(v *View, evicted, pending bool, nextEviction time.Time) {
	l, now := &p.loop, time.Now()
	jittered := func(d time.Duration) time.Duration { return p.draw.Jitter("look", p.row.Object(), d) }
	n := len(v.Members)
	l.every, l.lookGap = 1, p.shortest()
	// A stopping member looks in each beat, and soon after something was settled: it gives up its
	// holdings only at a look, others wait for that, and it is soon gone.
	stops := l.self.Value.Draining
	watching := l.standsIn || l.observer.watches(v)
	if !stops {
		l.lookGap = max(l.lookGap, jittered(l.observer.hintGap(n)))
	}
	if !watching && !stops {
		// Distributors too: their map, which must not get old (P6.5), they read by itself.
		l.every = everyLook(n, p.times)
	}
	if !pending {
		l.pending = time.Time{}
	} else if l.pending.IsZero() {
		l.pending = now
	}
	l.lookDue = l.beatDue.Add(time.Duration(l.every) * p.times.Beat) // a beat's look comes before
	earlier := func(at time.Time) {
		if at.Before(l.lookDue) {
			l.lookDue = at
		}
	}
	switch {
	case evicted:
		earlier(now)
	case pending && now.Sub(l.pending) < 2*p.times.Lease:
		gap := max(jittered(p.times.Beat/4*time.Duration(l.every)), l.lookGap)
		if !watching && !stops {
			gap = max(gap, time.Duration(n)*pendingLook) // all at once may wait for something
		}
		earlier(l.lookTried.Add(gap))
	}
	if watching && l.observer.large(v) {
		// even if beats out of turn put off the due beat again and again
		earlier(l.lookTried.Add(p.times.Beat))
	}
	if watching && !nextEviction.IsZero() {
		earlier(nextEviction)
	}
	if !watching {
		earlier(l.news.Add(l.observer.turn(v)))
	}
	p.sees(l.lookTried, l.every)
}

// sees notes a successful look; the next comes in so many beats. See Dark.
func (p *Presence) sees(at time.Time, beats int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.blind = at, at.Add(time.Duration(beats+1)*p.times.Beat)
}

// shown reports whether a view shows this member as it is.
func (p *Presence) shown(v *View) bool {
	i := v.Index(p.options.Instance)
	return i >= 0 && v.Members[i].Err == nil &&
		v.Members[i].Incarnation == p.loop.self.Value.Incarnation
}

func (p *Presence) publish(v *View) {
	p.view.Store(v)
	if p.options.Changed != nil {
		p.options.Changed(v)
	}
}

// evict removes the rows of dead members (P5.3) and says when the next member may be dead. The
// row's ETag decides between this and a late beat: the first write makes the other fail. Together
// all evictions hold up the next beat no longer than one may; the rest wait for the next look.
func (p *Presence) evict(v *View) (evicted bool, next time.Time) {
	dead, next := p.loop.observer.dead(v)
	ctx, cancel := p.beforeBeat()
	defer cancel()
	for _, i := range dead {
		if ctx.Err() != nil {
			break
		}
		m := v.Members[i]
		switch err := p.remove(ctx, v, i); {
		case err == nil:
			evicted = true
			p.loop.stays.Over()
			p.options.Log.Warn("a member is dead: evicted",
				"member", m.Instance, "incarnation", m.Incarnation, "held", m.Holds.Len())
		case errors.Is(err, row.ErrLost):
			p.options.Log.Info("a member that seemed dead beats again", "member", m.Instance)
		default:
			p.loop.stays.GoesOn(p.options.Log.Warn, "a dead member could not be evicted",
				"member", m.Instance, "error", err)
		}
	}
	p.loop.announce = p.loop.announce || evicted
	return evicted, next
}

// goAway ends the membership; its entries name no live member from then on.
func (p *Presence) goAway() {
	p.endAll(errHandedOver)
	err := p.row.TryRemove(p.ctx, p.loop.self)
	if err != nil && !errors.Is(err, row.ErrLost) {
		p.options.Log.Warn("the member row could not be removed: others will see this member as dead",
			"error", err)
		return
	}
	p.options.Log.Info("left the cluster")
	p.nudgeAll(p.View())
}
