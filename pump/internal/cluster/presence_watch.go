package cluster

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// manyMembers is how many members look at the cluster in each beat, all of them. A look costs the
	// table as many rows as there are members, so all looks together cost the square of their number.
	// With more members two look in each beat for all, and the others read what those wrote down; see
	// muster.
	manyMembers = 32
	// fewMembers look as often as they are asked to.
	fewMembers     = 16
	watchersOfMany = 2
	// everyLookOfMany: with every how-many-th beat the others look, at most.
	everyLookOfMany = 3
	// pendingLook times the number of members is how long waiting members wait at least between two
	// looks at the muster: together, in any number, they look 25 times a second.
	pendingLook = 40 * time.Millisecond
	// looksInBeat is how many other members look in one beat without musters.
	looksInBeat = 16
	// longestStagger bounds, in quarters of a beat, how long members of higher rank let members of
	// lower rank go first.
	longestStagger = 16
)

// LookBeats is within how many beats every member of a cluster of this size has looked again: 1,
// but more in a large cluster, where most look less often.
func (v *View) LookBeats() int {
	switch n := len(v.Members); {
	case n <= manyMembers:
		return 1
	case len(v.present) < n ||
		slices.ContainsFunc(v.present, func(m row.Version[memberRow]) bool { return !m.Value.musters }):
		return crowdBeats(n)
	default:
		quickest := slices.MinFunc(v.present, func(a, b row.Version[memberRow]) int {
			return cmp.Compare(a.Value.Times.Beat, b.Value.Times.Beat)
		})
		return everyLook(n, quickest.Value.Times) + musterAge
	}
}

// LongestBeat is the longest time between two beats of a member.
func (v *View) LongestBeat() (longest time.Duration) {
	for i := range v.present {
		longest = max(longest, v.present[i].Value.Times.Beat)
	}
	return longest
}

// Behind names the members that are not silent, and in which other settings of the workload are in
// force than its row says.
func (v *View) Behind() (names []string) {
	id, stamp := v.Workload.Settings.ID(), v.Stamp()
	for i := range v.Members {
		if m := &v.Members[i]; m.Err == nil && !m.Silent(stamp) && m.Settings != id {
			names = append(names, m.Instance)
		}
	}
	return names
}

// hintGap is how long after a look the next hinted look is at least. If all n members look once in
// 2 x n squared milliseconds, they read 500 rows a second; in a large cluster only two members do.
func (o *observer) hintGap(n int) time.Duration {
	switch {
	case n <= fewMembers:
		return 0
	case n <= o.many:
		return time.Duration(2*n*n) * time.Millisecond
	}
	return time.Duration(n) * time.Second / entitiesForHints
}

// crowdBeats is within how many beats all members look that read all rows.
func crowdBeats(n int) int { return (n + looksInBeat - 1) / looksInBeat }

// everyLook is with every how-many-th beat one of n members looks that reads the muster.
func everyLook(n int, t row.Times) int {
	return max(everyLookOfMany,
		int(math.Ceil(float64(n*rowsOfLook)/entitiesForLooks/t.Beat.Seconds())))
}

// observer is what a member remembers of its looks, to judge what takes time: which members are
// dead, which rows stale, which segments without an owner. Time counts only while reads succeed,
// each within two beats of the last (P5.3, P5.6). The observer belongs to the loop.
type observer struct {
	self  string
	times row.Times
	many  int // manyMembers

	last    time.Time // when the last successful read was sent
	longest row.Times // of all whose times are known, as of that read
	members map[string]*sighting
	entries []entrySighting // by segment
	wait    time.Duration   // stagger, as of the last view
}

// sighting is what is remembered of a member.
type sighting struct {
	watch row.Watch
	times row.Times
	alive bool // it may be

	// changed is when another version was seen last, with or without gaps since: good enough to choose
	// which member goes first, not to judge.
	etag    storage.ETag
	changed time.Time
}

// entrySighting is what is remembered of a segment's entry.
type entrySighting struct {
	owner Owner
	// unlisted: since when the entry has been seen to name a live member that does not list the
	// segment; vacant: since when no live member has been seen to own it. Zero: it is not so, or a gap
	// in the reads restarted the time.
	unlisted, vacant time.Time
	// unowned is vacant regardless of gaps, for people.
	unowned time.Time
}

func newObserver(self string, t row.Times, segments int) *observer {
	return &observer{
		self: self, times: t, many: manyMembers, members: map[string]*sighting{},
		entries: make([]entrySighting, segments),
	}
}

// see notes a successful read.
func (o *observer) see(v *View) {
	gap := v.received.Sub(o.last) > 2*o.times.Beat
	if !v.muster {
		o.last = v.Read
	}
	o.longest = o.times
	for i := range v.present {
		o.longest = row.Longer(o.longest, v.present[i].Value.Times)
	}
	seen := make(map[string]*sighting, len(v.Members))
	for i, m := range v.Members {
		s := o.members[m.Instance]
		if s == nil {
			s = &sighting{}
		}
		seen[m.Instance] = s
		s.see(v, i, o)
	}
	o.members = seen
	o.wait = o.stagger(v)
	for s := range v.Owners {
		// A look by another member counts no time that this member may act on.
		o.entries[s].see(v, uint32(s), gap || v.muster)
	}
}

func (s *sighting) see(v *View, i int, o *observer) {
	now := v.present[i]
	if now.Value.Times == (row.Times{}) { // unreadable: silence is judged by the ETag alone
		s.times = row.Longer(o.longest, s.times)
	} else {
		s.times = row.Longer(o.times, now.Value.Times)
	}
	if !v.muster {
		s.alive = s.watch.Look(now.ETag, v.Read, v.received, s.times)
	}
	if now.ETag != s.etag {
		s.etag, s.changed = now.ETag, v.received
	}
}

func (e *entrySighting) see(v *View, segment uint32, gap bool) {
	owner := v.Owners[segment]
	if gap || owner != e.owner {
		e.unlisted = time.Time{}
	}
	if gap {
		e.vacant = time.Time{}
	}
	e.owner = owner
	i := v.alive(owner)
	begin := func(since *time.Time, is bool) {
		switch {
		case !is:
			*since = time.Time{}
		case since.IsZero():
			*since = v.received
		}
	}
	begin(&e.vacant, i < 0)
	begin(&e.unowned, i < 0)
	begin(&e.unlisted, i >= 0 && v.Members[i].Err == nil && !v.Members[i].Holds.Has(segment))
}

// claimed notes that this member owns a segment now.
func (o *observer) claimed(segment uint32, owner Owner) {
	o.entries[segment] = entrySighting{owner: owner}
}

// quiet reports whether a member has shown no sign for a lease, by this member's looks, or by the
// service's stamps of its last beat and of the newest beat. The stamps tell it at one look to a
// member that looks seldom. They are enough to choose which member goes first, not to judge.
func (o *observer) quiet(v *View, m *Member, newest time.Time) bool {
	s := o.members[m.Instance]
	return m.Instance != o.self && s != nil &&
		(v.received.Sub(s.changed) >= s.times.Lease || newest.Sub(m.Beat) >= s.times.Lease)
}

// order is the order in which members do what any of them could do: those that take segments before
// the others, without quiet members. It goes by a hash of the names, because members with similar
// names are often on one host, and the end of that host must not take away all watchers.
func (o *observer) order(v *View) []string {
	type member struct {
		name string
		last bool // it takes no segments
		hash uint64
	}
	newest := v.Stamp()
	var list []member
	for i := range v.Members {
		if m := &v.Members[i]; m.Err == nil && !o.quiet(v, m, newest) {
			list = append(list, member{m.Instance, !m.takesSegments(), xxhash.Sum64String(m.Instance)})
		}
	}
	slices.SortFunc(list, func(a, b member) int {
		if a.last != b.last {
			if b.last {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.name, b.name))
	})
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.name
	}
	return names
}

// stagger is how long this member lets others go first, so that not all
// do the same at once.
func (o *observer) stagger(v *View) time.Duration {
	rank := max(0, slices.Index(o.order(v), o.self))
	return time.Duration(min(rank, longestStagger)) * o.times.Beat / 4
}

// large reports whether two look for all, and the others read what those write down.
func (o *observer) large(v *View) bool { return len(v.Members) > o.many }

// watches reports whether this member is a watcher: it looks for all.
func (o *observer) watches(v *View) bool {
	return !o.large(v) || slices.Contains(o.watchers(v), o.self)
}

// watchers are the members that look for all in a large cluster.
func (o *observer) watchers(v *View) []string {
	list := o.mustering(v)
	return list[:min(watchersOfMany, len(list))]
}

// mustering are, in order, the members that can write a muster: they have read the cluster.
func (o *observer) mustering(v *View) []string {
	return slices.DeleteFunc(o.order(v), func(name string) bool {
		return !v.present[v.Index(name)].Value.musters
	})
}

// turn is after how long without news from a muster this member reads all rows, and writes the
// muster: one member after the other by rank, so that the first helps the next, and within a bound,
// because each view must be renewed in the end.
func (o *observer) turn(v *View) time.Duration {
	n := len(v.Members)
	rank := max(0, slices.Index(o.mustering(v), o.self))
	after := min(time.Duration(rank)*o.times.Beat/2, time.Duration(crowdBeats(n))*o.times.Beat)
	return musterAge*o.times.Beat + after
}

// dead lists the members, as indices, that this member may evict now, and says when it may evict
// the next one if that shows no sign until then.
func (o *observer) dead(v *View) (now []int, next time.Time) {
	for i, m := range v.Members {
		s := o.members[m.Instance]
		if m.Instance == o.self {
			continue
		}
		at := s.watch.Since.Add(s.times.Dead() + o.wait)
		switch {
		case !s.alive && !v.Read.Before(at):
			now = append(now, i)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return now, next
}

// forAnyone reports whether an entry has gone without its owner for so long that any member may
// claim it against the plan (P5.4). A live member that does not list a segment whose entry names it
// must have lost trust in it before: a claim of its own, acknowledged while trusted, is listed in
// each later beat.
func (o *observer) forAnyone(v *View, segment uint32) bool {
	e, wait := o.entries[segment], o.wait
	if v.muster {
		return false
	}
	if !e.vacant.IsZero() {
		return v.Read.Sub(e.vacant) >= o.times.Lease+wait
	}
	if e.unlisted.IsZero() {
		return false
	}
	t := o.times
	if s := o.members[e.owner.Instance]; s != nil {
		t = s.times
	}
	return v.Read.Sub(e.unlisted) >= t.Dead()+wait
}

// unowned counts the segments without a live owner, and says since when the
// longest of them has been seen so.
func (o *observer) unowned() (n int, since time.Time) {
	for _, e := range o.entries {
		if e.unowned.IsZero() {
			continue
		}
		if n++; since.IsZero() || e.unowned.Before(since) {
			since = e.unowned
		}
	}
	return n, since
}
