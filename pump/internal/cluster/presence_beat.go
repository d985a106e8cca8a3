package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// compose makes what the next beat says.
func (p *Presence) compose(beats uint64) memberRow {
	var r Report
	if p.options.Report != nil {
		r = p.options.Report()
	}
	holds := p.listed()
	p.mu.RLock()
	defer p.mu.RUnlock()
	r.Draining = r.Draining || p.leaving
	return memberRow{
		Member: Member{
			Instance: p.options.Instance, Incarnation: p.incarnation, Host: p.options.Host,
			Version: p.options.Version, Role: p.options.Role, Started: p.started, Holds: holds, Report: r,
		},
		Times: p.times, beats: beats,
		// A member that waits for its first view cannot be a watcher: it may wait for the watchers'
		// muster.
		musters: p.View() != nil,
	}
}

// beat writes the member row and acts on the answer. It is false if the row was not written. An
// unanswered beat is tried until it is answered: its outcome must be known before the next beat,
// and no other request would be answered either.
func (p *Presence) beat() bool {
	l := &p.loop
	p.mu.Lock()
	p.speak = false
	p.mu.Unlock()
	p.takeTimes()
	l.beatTried = time.Now()
	v, err := p.row.TryWrite(p.ctx, l.self, p.compose(l.self.Value.beats+1))
	switch {
	case err == nil:
		p.acknowledged(v)
		return true
	case p.ctx.Err() != nil:
		return false
	case errors.Is(err, row.ErrLost): // 404 or 412, and not by a write of its own
		return p.rejoin(errEvicted)
	}
	l.mute.GoesOn(p.options.Log.Warn, "a beat failed", "error", err)
	l.beatFailed = true
	l.beatDue = time.Now().Add(p.draw.Jitter("pause", p.row.Object(), p.row.LongestPause()))
	return false
}

// acknowledged notes an acknowledged beat. The next beat is counted from when this beat was sent,
// as trust is: after a slow beat it is due at once.
func (p *Presence) acknowledged(v row.Version[memberRow]) {
	l := &p.loop
	l.self, l.beatFailed = v, false
	l.signs.note(v)
	if v.Value.Draining {
		l.every, l.lookGap = 1, p.shortest()
	}
	// A narrow jitter: fifteen sixteenths of a beat at the least, because every
	// member pays for each beat with two requests, day and night.
	l.beatDue = v.Sent.Add(p.times.Beat - p.draw.Spread("beat", p.row.Object(), p.times.Beat/16))
	l.mute.IsOver(p.options.Log.Info, "beats are answered again")
	// The answer of the next beat, too, comes after trust has ended: it is the same event.
	late := p.renew(v) && v.Value.beats > 1
	if late && !l.late {
		p.options.Log.Warn("a beat was answered too late: everything held is to be claimed again")
	}
	l.late = late
}

// rejoin voids everything and makes this process a member again, in a new incarnation: the old one
// was evicted, and others may own its segments now. A leaving member does not join again: it holds
// nothing any more, and the name may be another process's by now, whose end it would wait for.
func (p *Presence) rejoin(cause error) bool {
	p.voidAll(cause)
	p.options.Log.Warn("evicted from the cluster")
	for {
		if p.leaves() {
			p.endAll(cause)
			return false
		}
		// The row may have gone with all others of the workload: this member must not become one of a
		// workload that was made in its place.
		_, err := p.View().Workload.Refresh(p.ctx)
		if workload.Lost(err) {
			p.lost(err)
			p.pause(p.ctx, p.times.Beat)
			continue
		}
		err = p.enter(p.ctx)
		if p.ctx.Err() != nil {
			return false
		}
		if err == nil {
			p.loop.announce = true
			p.loop.unseen = p.loop.every // look at once
			return true
		}
		if errors.Is(err, errLeaving) {
			continue
		}
		p.options.Log.Error("not a member of the cluster: the member row cannot be written", "error", err)
		p.pause(p.ctx, p.times.Beat)
	}
}

// enter inserts the member row in a new incarnation. An existing row of that name is another
// process's. It may be an earlier process's: it is removed when it is dead by the rule for all
// members, because that process may still trust, or that process stops and will have left soon. If
// it is a living twin's, the error is ErrNameTaken. Only for an own row, of a beat or an insert
// whose outcome it never learned, the process need not wait: it no longer trusts anything by that
// row.
func (p *Presence) enter(ctx context.Context) error {
	p.mu.Lock()
	former := p.incarnation
	p.incarnation = p.newIncarnation()
	p.mu.Unlock()
	own := func(m *memberRow) bool {
		return former != "" && (m.Incarnation == former || m.Incarnation == p.loop.self.Value.Incarnation)
	}
	var there row.Version[memberRow]
	var w row.Watch
	beats := 0 // seen of the process that has the name
	for {
		if there.Absent() {
			p.loop.beatTried = time.Now()
			v, err := p.row.TryWrite(ctx, row.Version[memberRow]{}, p.compose(1))
			if err == nil {
				p.acknowledged(v)
				return nil
			}
			if !errors.Is(err, row.ErrLost) {
				return err
			}
		}
		now, err := p.row.Read(ctx)
		if errors.Is(err, row.ErrCorrupt) && !now.Absent() {
			err = nil // damaged, or of a newer program: dead when it is silent, like any other
		}
		if err == nil && !there.Absent() && now.ETag != there.ETag {
			beats++ // the first may have been under way when its process died
		}
		switch {
		case err != nil && !row.MayRetry(err):
			return err
		case err != nil || now.Absent():
		case beats > 1 && !now.Value.Draining: // a stopping member will be gone soon
			return fmt.Errorf("%w: %q on host %q, incarnation %s",
				ErrNameTaken, p.options.Instance, now.Value.Host, now.Value.Incarnation)
		case own(&now.Value) || !w.Look(now.ETag, now.Sent, now.Received,
			row.Longer(p.times, now.Value.Times)):
			if err := p.row.TryRemove(ctx, now); err != nil && !errors.Is(err, row.ErrLost) {
				return err
			}
			there = row.Version[memberRow]{}
			continue
		case there.Absent():
			p.options.Log.Info("waiting for an earlier process of the same name to be dead",
				"incarnation", now.Value.Incarnation)
		}
		if err == nil {
			there = now
		}
		if !there.Absent() || err != nil {
			p.pause(ctx, p.times.Beat)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p.leaves() {
			return errLeaving
		}
	}
}

var errLeaving = errors.New("this member leaves")

func (p *Presence) leaves() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.leaving
}

// pause ends early with the context and with Leave.
func (p *Presence) pause(ctx context.Context, most time.Duration) {
	p.rounds.Add()
	waits.Sleep(ctx, p.draw.Jitter("pause", p.row.Object(), most), p.leave)
}

// remove removes a member's row, on the condition that it is still as observed.
func (p *Presence) remove(ctx context.Context, v *View, i int) error {
	r := memberRowOf(p.table, p.workload, v.Members[i].Instance, p.times.Timeout())
	return r.TryRemove(ctx, v.present[i])
}

// beforeBeat bounds what must not hold up the next beat: beats go before every other request to the
// table (P5.6). Work that is not done by then is judged again.
func (p *Presence) beforeBeat() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, max(time.Until(p.loop.beatDue), p.times.Beat/2))
}

// noteUnowned raises the alarm for segments that had no owner for two
// leases although there are members to own them.
func (p *Presence) noteUnowned(v *View) {
	n, since := p.loop.observer.unowned()
	p.mu.Lock()
	p.unowned, p.unownedFrom = n, since
	p.mu.Unlock()
	if n == 0 || len(v.Processors()) == 0 || time.Since(since) < 2*p.times.Lease {
		return
	}
	p.loop.alone.Say(p.options.Log.Error, "segments have no owner", "segments", n,
		"longest", time.Since(since).Round(time.Second))
}

// alarmDamaged names the rows that cannot be read.
func (p *Presence) alarmDamaged(v *View) {
	if len(v.Damaged) > 0 {
		p.loop.damaged.Say(p.options.Log.Error,
			"rows of the cluster cannot be read: what they say is left as it is",
			"error", errors.Join(v.Damaged...))
	}
}
