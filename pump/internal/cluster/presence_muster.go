package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// In a large cluster two watchers read all rows in each beat and write what they read into one row,
// the muster. The others read that row, so that what all members read together grows with their
// number and not with its square. Its reader can prove a muster fresh only by the version of the
// reader's own row in it. That version tells after which of the reader's beats the watcher has
// read, by the reader's own clock.

const (
	// musterAge is how many beats old a muster may be: the watchers' beat, the reader's own, and one
	// for delays.
	musterAge = 3
	// signsKept is how many own beats' versions are kept; older ones do not prove a muster fresh.
	signsKept = 4 * musterAge
	// entitiesForLooks is how many rows a second the looks of all but the watchers may cost, and
	// entitiesForHints how many those of a watcher that is asked to look all the time: there are two
	// watchers, and a cluster of any size should stay below 1,000 in all, half of what a partition
	// gives (https://learn.microsoft.com/azure/storage/tables/scalability-targets).
	entitiesForLooks = 150
	entitiesForHints = 200
	// firstMusterBeats is for how many beats a new member waits for a muster that shows it.
	firstMusterBeats = 6
	// firstReadAll: among up to so many members a new one reads all rows, and starts at once.
	firstReadAll = 2 * manyMembers
	// musterAttempts is how often a muster is written that was refused.
	musterAttempts = 5
	// rowsOfLook is what a look by the muster reads at least: muster, workload, an owner row.
	rowsOfLook = 3
)

var errMusterTooLarge = fmt.Errorf("more than %d KiB, compressed", musterPart*musterParts>>10)

// sign is an own beat: the version that it gave the row, and when it was sent.
type sign struct {
	etag storage.ETag
	sent time.Time
}

type signs struct{ kept []sign }

func (s *signs) note(beat row.Version[memberRow]) {
	if s.kept = append(s.kept, sign{beat.ETag, beat.Sent}); len(s.kept) > signsKept {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
}

// shownBy is when the newest own beat in a muster was sent: the muster's watcher read later than
// that. It is zero if the muster does not show a remembered beat.
func (s *signs) shownBy(m *muster, instance string) time.Time {
	i := slices.IndexFunc(m.Members, func(m musterMember) bool { return m.Instance == instance })
	if i < 0 {
		return time.Time{}
	}
	k := slices.IndexFunc(s.kept, func(s sign) bool { return s.etag == m.Members[i].ETag })
	if k < 0 {
		return time.Time{}
	}
	return s.kept[k].sent
}

// lookAt reads the cluster: all rows, or the muster of a large cluster. A nil view without an error
// means no news, and that it is not this member's turn to read all rows.
func (p *Presence) lookAt() (*View, error) {
	before, l := p.View(), &p.loop
	large := l.observer.large(before)
	if large && !l.observer.watches(before) {
		v, err := p.byMuster(p.ctx, before)
		if v != nil || err != nil {
			return v, err
		}
		if !l.standsIn && time.Since(l.news) < l.observer.turn(before) {
			return nil, nil
		}
		// Until another writes a muster: whether the watchers are dead takes time to see.
		l.standsIn = true
		p.options.Log.Debug("the muster brings no news: reading all rows", "since", time.Since(l.news))
	}
	v, rows, err := p.reader.readRows(p.ctx, before)
	// The muster that shows a cluster no longer large is the last.
	if err == nil && (large || l.observer.large(v) && l.observer.watches(v)) {
		p.writeMuster(v, rows)
	}
	return v, err
}

// byMuster gives the view from the muster; nil if the muster is not newer than the view before or
// cannot be read. The view shows members as they were before the owner rows were read, so an owner
// that it does not know may have joined since; see confirm.
func (p *Presence) byMuster(ctx context.Context, before *View) (*View, error) {
	r := musterRowOf(p.table, p.workload, p.times.Timeout())
	now, err := r.Read(ctx)
	l := &p.loop
	switch {
	case err != nil && now.Absent():
		return nil, err
	case err != nil:
		// Damaged, or of a newer program: the next write mends it.
		p.options.Log.Debug("the muster cannot be read", "error", err)
		l.muster = now.ETag
		return nil, nil
	case now.Absent() || now.ETag == l.muster:
		return nil, nil
	}
	l.muster = now.ETag
	m := now.Value
	at := l.signs.shownBy(m, p.options.Instance)
	if at.IsZero() || time.Since(at) > musterAge*p.times.Beat ||
		before.Workload != nil && m.Incarnation != before.Workload.Incarnation {
		return nil, nil
	}
	l.standsIn = false // another keeps it up
	if !at.After(before.Read) {
		return nil, nil
	}
	rows, err := p.rowsOf(ctx, m, before, at.Add(-m.Took))
	if err != nil {
		l.muster = "" // the next look tries this one again
		return nil, err
	}
	v := &View{Read: at, received: time.Now(), muster: true}
	return v, p.reader.fill(v, before, rows)
}

// rowsOf gives the rows that a muster stands for, in key order; none of its copies is older than
// since. An owner row that this member has read or written later than since is read by itself: with
// an older copy this member would give up what it has just claimed.
func (p *Presence) rowsOf(
	ctx context.Context, m *muster, before *View, since time.Time,
) ([]storage.Entity, error) {
	var rows []storage.Entity
	add := func(key string, is, was storage.ETag, modified time.Time) error {
		if is == was && was != "" {
			rows = append(rows, storage.Entity{
				Partition: p.workload, Row: key, ETag: is, Modified: modified,
			})
			return nil
		}
		if is == was {
			return nil // neither then nor before
		}
		e, err := p.readRow(ctx, key)
		if err == nil && e.Row != "" {
			rows = append(rows, e)
		}
		return err
	}
	for i := range m.Owners {
		now, key := &m.Owners[i], ownerKey(ownerRowFirst(i))
		var was row.Version[[]Owner]
		if i < len(before.owners) && !before.bad[i] {
			was = before.owners[i]
		}
		if now.ETag != "" && now.ETag != was.ETag && since.After(was.Received) {
			rows = append(rows, now.entity(p.workload, key))
			continue
		}
		if err := add(key, now.ETag, was.ETag, was.Modified); err != nil {
			return nil, err
		}
	}
	for i := range m.Members {
		rows = append(rows, m.Members[i].entity(p.workload, memberPrefix+m.Members[i].Instance))
	}
	if err := add(spillKey, m.Spill, before.spill.ETag, before.spill.Modified); err != nil {
		return nil, err
	}
	// Whether the workload is still there each member asks for itself.
	return rows, add(WorkloadKey, "unknown", "", time.Time{})
}

// readRow reads a row as it is, in the time of one request; the zero entity without a row.
func (p *Presence) readRow(ctx context.Context, key string) (storage.Entity, error) {
	ctx, cancel := context.WithTimeout(ctx, p.times.Timeout())
	defer cancel()
	e, err := p.table.Read(ctx, p.workload, key)
	if storage.Is(err, storage.Gone) {
		return storage.Entity{}, nil
	}
	return e, err
}

// writeMuster writes down for the others what this member has read. If two write at once, either
// will do. It tries again after a refusal, because a partition may refuse a write right after so
// large a query; the next look makes the next muster at the latest.
func (p *Presence) writeMuster(v *View, rows []storage.Entity) {
	props := encodeMuster(musterOf(v, rows))
	if props == nil {
		p.loop.crowded.GoesOn(p.options.Log.Warn,
			"the cluster is too large for one row: each member reads all rows, seldom",
			"error", errMusterTooLarge)
		return
	}
	p.loop.crowded.IsOver(p.options.Log.Info, "the cluster fits one row again")
	ctx, cancel := p.beforeBeat()
	defer cancel()
	w := storage.Write{
		Mode:   storage.Replace,
		Entity: storage.Entity{Partition: p.workload, Row: musterKey, Properties: props},
	}
	for attempt := 1; ; attempt++ {
		etag, err := p.table.Write(ctx, w)
		if err == nil {
			p.loop.muster = etag
			return
		}
		switch {
		case storage.Is(err, storage.Gone):
			w.Mode = storage.Insert
		case attempt == musterAttempts || !row.MayRetry(err):
			p.options.Log.Debug("the muster could not be written", "error", err)
			return
		}
		p.draw.Pause(ctx, musterKey, attempt, p.times.Beat/4, err)
	}
}

// firstView reads the cluster for a member that has just come. New members of a large cluster wait
// for the next muster, which shows them: if each read all rows, the reads would grow with the
// square of their number. If no member keeps a muster up to date, all rows are read.
func (p *Presence) firstView(ctx context.Context) (*View, error) {
	mustered := true
	for end := time.Now().Add(firstMusterBeats * p.times.Beat); mustered && time.Now().Before(end); {
		if is, err := p.mustered(ctx); err == nil && !is {
			mustered = false
			break
		}
		p.pause(ctx, p.times.Beat/2)
		if p.leaves() || ctx.Err() != nil {
			break
		}
		if err := p.beatWaiting(ctx); err != nil {
			return nil, err
		}
		if v, err := p.byMuster(ctx, &View{}); v != nil || workload.Lost(err) {
			return v, err
		}
	}
	v, rows, err := p.reader.mustRead(ctx)
	if err == nil && !mustered && p.loop.observer.large(v) {
		p.writeMuster(v, rows) // for the next new members: the watchers may not know their role yet
	}
	return v, err
}

// beatWaiting is a beat of a member that waits for its first view. A failed beat has no
// consequence: the next may succeed.
func (p *Presence) beatWaiting(ctx context.Context) error {
	l := &p.loop
	if time.Now().Before(l.beatDue) {
		return nil
	}
	v, err := p.row.TryWrite(ctx, l.self, p.compose(l.self.Value.beats+1))
	switch {
	case err == nil:
		p.acknowledged(v)
	case errors.Is(err, row.ErrLost):
		return ErrEvicted
	}
	return nil
}

// mustered reports whether there is a muster worth waiting for: it has many members, and is kept up
// to date (by the stamps of the service it is hardly older than this member's own row).
func (p *Presence) mustered(ctx context.Context) (bool, error) {
	there, err := musterRowOf(p.table, p.workload, p.times.Timeout()).Read(ctx)
	switch {
	case err != nil && there.Absent():
		return false, err
	case err != nil || there.Absent() || len(there.Value.Members) <= firstReadAll &&
		p.options.many == manyMembers:
		return false, nil
	}
	self, err := p.readRow(ctx, p.row.Key)
	return self.Row != "" && self.Modified.Sub(there.Modified) <= musterAge*p.times.Beat, err
}

// confirm drops the claims of segments that may belong to a member too new for the muster. In a
// view of one query the members were read after the owners, so a missing owner is gone (P5.4); here
// the owner's row is asked for now.
func (p *Presence) confirm(ctx context.Context, v *View, changes []change) []change {
	if !v.muster {
		return changes
	}
	there := map[string]bool{}
	return slices.DeleteFunc(changes, func(c change) bool {
		if !c.claims() || c.from.Instance == "" || v.alive(c.from) >= 0 {
			return false
		}
		is, known := there[c.from.Instance+"/"+c.from.Incarnation]
		if !known {
			is = p.isThere(ctx, c.from)
			there[c.from.Instance+"/"+c.from.Incarnation] = is
		}
		return is
	})
}

// isThere reports whether an owner is a member, or may be.
func (p *Presence) isThere(ctx context.Context, owner Owner) bool {
	now, err := memberRowOf(p.table, p.workload, owner.Instance, p.times.Timeout()).Read(ctx)
	return err != nil || !now.Absent() && now.Value.Incarnation == owner.Incarnation
}
