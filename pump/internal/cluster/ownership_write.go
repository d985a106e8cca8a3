package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
)

// giveWayFor is the time, for each member, over which a large cluster spreads its changes: 8 s with
// 1,000 members. With half of that, 500 processors and 500 distributors that came within a minute
// read and wrote up to 1,090 entities a second. Now it is 872, and 876 with 1,000 processors (make
// play WHAT=members).
const giveWayFor = 8 * time.Millisecond

// changeRow brings changes into an owner row by compare-and-swap and gives the
// view as it is then.
func (p *Presence) changeRow(ctx context.Context, v *View, index int, changes []change) *View {
	first := ownerRowFirst(index)
	r := ownerRowOf(p.table, p.workload, first, len(v.Owners), p.times.Timeout())
	base, err := v.owners[index], error(nil)
	if v.muster { // it is seconds old, and a row that many change is another by now
		base, err = r.Read(ctx)
	}
	now, done := base, []change(nil)
	if err == nil {
		now, done, err = p.writeChanges(ctx, r, base, first,
			min(ownersPerRow, len(v.Owners)-first), changes)
	}
	switch {
	case errors.Is(err, row.ErrLost):
		p.options.Log.Debug("others change the owners too", "row", r.Object())
	case err != nil:
		// A claim that still lands names this member, which does not hold it: it is adopted or released
		// when it is seen.
		p.loop.stuck.GoesOn(p.options.Log.Warn, "owners could not be changed",
			"row", r.Object(), "error", err)
	case len(done) > 0 || v.muster && now.ETag != v.owners[index].ETag:
		// If nothing was done, the muster is behind, and the next look at it would try the same again.
		// confirm asks for members that a later owner row has and the muster lacks.
		p.loop.stuck.Over()
		next := v.withOwners(index, now)
		p.conclude(next, done)
		p.publish(next)
		return next
	}
	return v
}

// writeChanges gives the row as this member wrote it, and the changes in it: none if others made
// all pointless.
func (p *Presence) writeChanges(
	ctx context.Context, r row.Row[[]Owner], base row.Version[[]Owner], first, count int,
	changes []change,
) (now row.Version[[]Owner], done []change, err error) {
	for attempt := 1; ; attempt++ {
		next := make([]Owner, count)
		copy(next, base.Value)
		done = nil
		for _, c := range changes {
			if entry := &next[int(c.segment)-first]; *entry == c.from {
				*entry = c.to
				done = append(done, c)
			}
		}
		if len(done) == 0 {
			return base, nil, nil
		}
		now, err = r.TryWrite(ctx, base, next)
		if !errors.Is(err, row.ErrLost) || attempt == claimAttempts {
			return now, done, err
		}
		if !p.giveWay(ctx, r.Object()) {
			p.draw.Pause(ctx, r.Object(), attempt, r.LongestPause(), nil)
		}
		if ctx.Err() != nil {
			return now, nil, row.ErrLost
		}
		if base, err = r.Read(ctx); err != nil {
			return now, nil, err
		}
	}
}

// giveWay waits before a change is tried in a large cluster, where the same news has dozens change
// 16 rows. In a small cluster, and for a watcher, which all others follow, it does not wait and is
// false. Reading and writing a row takes some 50 ms, and another's write in that time makes it
// fail, so members spread over a time that grows with their number.
func (p *Presence) giveWay(ctx context.Context, object string) bool {
	v := p.View()
	if !p.loop.observer.large(v) || p.loop.watched {
		return false
	}
	p.pause(ctx, p.draw.Spread("give way", object, time.Duration(len(v.Members))*giveWayFor))
	return true
}

// conclude draws the conclusions of changes that are stored.
func (p *Presence) conclude(v *View, done []change) {
	claims := slices.DeleteFunc(slices.Clone(done), func(c change) bool { return !c.claims() })
	log := p.options.Log
	if len(claims) > 0 {
		for _, c := range claims {
			p.loop.observer.claimed(c.segment, c.to)
		}
		if p.take(claims) {
			log.Info("segments claimed", "segments", len(claims))
		} else {
			log.Warn("segments were claimed too late to be trusted", "segments", len(claims))
		}
	}
	if given := len(done) - len(claims); given > 0 {
		log.Info("segments handed over", "segments", given)
		p.nudgePlanned(v, done)
	}
}

// nudgePlanned hints to the members that the given-up segments are planned for. In a large cluster
// the watchers do: before the next muster the others would see nothing.
func (p *Presence) nudgePlanned(v *View, done []change) {
	if p.loop.observer.large(v) {
		return
	}
	planned := map[string]bool{}
	for _, c := range done {
		if i := v.Plan()[c.segment]; !c.claims() && i >= 0 {
			planned[v.candidates[i]] = true
		}
	}
	p.nudge(v, func(_ int, m *Member) bool { return planned[m.Instance] })
}
