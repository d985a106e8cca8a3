package shardmap

import (
	"cmp"
	"slices"
)

// Unowned marks a segment without an owner, in the arguments and results of Plan, and a shard
// without a sweeper.
const Unowned = -1

// Plan says which of n instances should own each segment, as indices into instances; without
// instances all segments are Unowned. instances are the names of the candidates in ascending order,
// and current[s] is the index of the owner of segment s now, or Unowned if it has none or the owner
// is not a candidate (any more). A current that is nil, or shorter than the number of segments, is
// Unowned beyond its end.
//
// While there are at least as many homed queues as instances, whole queues are shared out,
// otherwise single segments; the numbers of two instances differ by at most one. A homed queue is
// the home of a segment; a draining queue is not one. Instances that share a queue get neighbouring
// segments if possible, so that few instances meet at one queue.
//
// barred says which instances cannot work on which segments, because they cannot read a queue of
// the segment; nil: all can work on all. An instance gets no unit with a segment that it is barred
// from, unless all instances are barred from that unit. Units with bars are shared out first, so
// that instances stay as even as the bars allow.
//
// It moves the fewest units (queues or segments): an instance that joins n balanced ones takes at
// most its share rounded up, and nothing else moves; when an instance leaves, only its units move.
// The exception is the change from single segments to whole queues: each queue goes to an instance
// that already holds much of it.
//
// It is pure: the same on every member, and a plan that is carried out partly (some segments given
// up, some claimed) leads to the same plan, so members that read at different moments want the
// same. An over-full instance sheds the same segments each time.
//
// It takes about a millisecond for 4,096 segments, 1,000 queues, 200 instances.
func (m *Map) Plan(
	instances []string, current []int, barred func(instance, segment int) bool,
) []int {
	plan := slices.Repeat([]int{Unowned}, m.Segments)
	n := len(instances)
	if n == 0 {
		return plan
	}
	unit, units := m.units(n)
	owner := shareOut(units, n, holdings(unit, current, n), barsOf(unit, units, n, barred))
	for s := range plan {
		plan[s] = owner[unit[s]]
	}
	return plan
}

// units says by segment which unit it is part of: its home if there are as many homed queues as
// instances, else itself. Units are numbered by their queue's name and then by segment, so that the
// order of shards in the map does not matter and neighbours in number are neighbours in a queue.
func (m *Map) units(instances int) (unit []int, units int) {
	loads := m.Loads()
	rank := make([]int, len(m.Shards)) // of a homed queue
	first := 0                         // number of its first segment
	firsts := make([]int, len(m.Shards))
	for _, shard := range m.byName() {
		if loads[shard] > 0 {
			rank[shard], firsts[shard] = units, first
			units++
			first += loads[shard]
		}
	}
	unit = make([]int, m.Segments)
	if units >= instances {
		for s, home := range m.homes {
			unit[s] = rank[home]
		}
		return unit, units
	}
	for s, home := range m.homes {
		unit[s] = firsts[home]
		firsts[home]++
	}
	return unit, m.Segments
}

// byName gives the shards' indices in the order of their names.
func (m *Map) byName() []int {
	order := make([]int, len(m.Shards))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareNames(m.Shards[a], m.Shards[b]) })
	return order
}

// holding is how much of a unit an instance owns.
type holding struct{ segments, unit, instance int }

// holdings lists them, most segments first, then by unit and instance.
func holdings(unit, current []int, instances int) []holding {
	var all []holding
	for s, instance := range current[:min(len(current), len(unit))] {
		if instance >= 0 && instance < instances {
			all = append(all, holding{1, unit[s], instance})
		}
	}
	slices.SortFunc(all, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.instance, b.instance))
	})
	kinds := all[:0]
	for _, h := range all {
		if last := len(kinds) - 1; last >= 0 && kinds[last].unit == h.unit &&
			kinds[last].instance == h.instance {
			kinds[last].segments++
		} else {
			kinds = append(kinds, h)
		}
	}
	slices.SortFunc(kinds, func(a, b holding) int {
		return cmp.Or(
			-cmp.Compare(a.segments, b.segments),
			cmp.Compare(a.unit, b.unit),
			cmp.Compare(a.instance, b.instance))
	})
	return kinds
}

// shareOut gives each unit to an instance: pairs of unit and instance are taken in order of how
// much of the unit the instance holds, and refused if the unit has its instance or the instance its
// share. Pairs whose instance holds nothing of the unit come last, in the order of units and
// instances.
//
// So a plan that is carried out partly stays the same plan: on the way to it the holdings of taken
// pairs only grow and those of all others only shrink, so the pair that made another one refused
// still comes before it and refuses it again.
//
// Units that bars keep from some instances are shared out before the others, by the same rule among
// those that may have them. If all of these have their share, the one with the least takes more.
func shareOut(units, instances int, held []holding, bars [][]bool) []int {
	owner := slices.Repeat([]int{Unowned}, units)
	s := shares{has: make([]int, instances), each: units / instances, extras: units % instances}
	for _, restricted := range []bool{true, false} {
		for _, h := range held {
			bar := bars[h.unit]
			if (bar != nil) == restricted && owner[h.unit] == Unowned &&
				(bar == nil || !bar[h.instance]) && s.takes(h.instance) {
				owner[h.unit] = h.instance
			}
		}
		if restricted {
			s.shareRestricted(owner, held, bars)
		}
	}
	next := 0 // the instances before have their share and never take again
	for u := range owner {
		for owner[u] == Unowned {
			if s.takes(next) {
				owner[u] = next
			} else {
				next++ // the shares add up to the units, so it ends in time
			}
		}
	}
	return owner
}

// shareRestricted gives each unit that has a bar and no instance yet to one that may have it: the
// first with room in its share, else one that holds a part of it, else the one with the fewest
// units.
func (s *shares) shareRestricted(owner []int, held []holding, bars [][]bool) {
	for u, bar := range bars {
		if bar == nil || owner[u] != Unowned {
			continue
		}
		least := Unowned
		for i := range bar {
			if bar[i] {
				continue
			}
			if s.takes(i) {
				owner[u] = i
				break
			}
			if least == Unowned || s.has[i] < s.has[least] {
				least = i
			}
		}
		if owner[u] != Unowned {
			continue
		}
		if at := slices.IndexFunc(held, func(h holding) bool {
			return h.unit == u && !bar[h.instance]
		}); at >= 0 {
			least = held[at].instance
		}
		owner[u] = least
		s.has[least]++
	}
}

// barsOf gives by unit which instances are barred from a segment of it; nil: none or all are.
func barsOf(unit []int, units, instances int, barred func(instance, segment int) bool) [][]bool {
	bars := make([][]bool, units)
	if barred == nil {
		return bars
	}
	for s, u := range unit {
		for i := range instances {
			if barred(i, s) {
				if bars[u] == nil {
					bars[u] = make([]bool, instances)
				}
				bars[u][i] = true
			}
		}
	}
	for u, bar := range bars {
		if !slices.Contains(bar, false) {
			bars[u] = nil
		}
	}
	return bars
}

// shares counts units: `each` for every instance and one more for `extras` of them.
type shares struct {
	has          []int
	each, extras int
}

// takes gives the instance one more unit if its share allows.
func (s *shares) takes(instance int) bool {
	switch has := s.has[instance]; {
	case has < s.each:
	case has == s.each && s.extras > 0:
		s.extras--
	default:
		return false
	}
	s.has[instance]++
	return true
}

// Sweepers gives for each shard, draining ones included, the index of its sweeper: the instance
// that forwards what strayed into it. That is the holder of most of the shard's segments, of
// several the first by name. instances and owner have the form that Plan takes. Shards of which no
// instance holds a segment are dealt out by rank. barred says which instances cannot read a shard:
// one of them becomes its sweeper only if no instance can read it; nil: all can. Without
// instances all shards are Unowned.
func (m *Map) Sweepers(
	instances []string, owner []int, barred func(instance, shard int) bool,
) []int {
	sweepers := slices.Repeat([]int{Unowned}, len(m.Shards))
	n := len(instances)
	if n == 0 {
		return sweepers
	}
	home := make([]int, m.Segments)
	for s, h := range m.homes {
		home[s] = int(h)
	}
	may := func(instance, shard int) bool { return barred == nil || !barred(instance, shard) }
	for _, h := range holdings(home, owner, n) { // most first
		if sweepers[h.unit] == Unowned && may(h.instance, h.unit) {
			sweepers[h.unit] = h.instance
		}
	}
	for turn, shard := range m.byName() {
		for i := 0; i < n && sweepers[shard] == Unowned; i++ {
			if may((turn+i)%n, shard) {
				sweepers[shard] = (turn + i) % n
			}
		}
		if sweepers[shard] == Unowned {
			sweepers[shard] = turn % n
		}
	}
	return sweepers
}
