package pump

import (
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/control"
)

// cluster is a view as budgets see it: who is there, and who has what to do where.
type cluster struct {
	view     *control.View
	parties  []*party // by the view's members; then this process, if the view lacks it
	me       int
	accounts []sharedAccount // those that this process has
}

// clusterOf reads a view for the process of that instance, with its accounts.
func clusterOf(v *control.View, instance string, accounts []string) *cluster {
	c := &cluster{view: v, me: -1}
	for i, m := range v.Members {
		c.parties = append(c.parties, &party{name: m.Instance, demand: m.Demand})
		if m.Instance == instance {
			c.me = i
		}
	}
	if c.me < 0 { // evicted after a pause, and about to come back
		c.me = len(c.parties)
		c.parties = append(c.parties, &party{name: instance})
	}
	readers := c.readers()
	loads := v.Workload.Map.Loads()
	for _, name := range accounts {
		a := sharedAccount{name: name}
		for i := range c.parties {
			// Of a member whose row cannot be read nothing is known but that it is there.
			if i == c.me || i < len(v.Members) && (v.Members[i].Err != nil || slices.Contains(v.Members[i].Accounts, name)) {
				a.members = append(a.members, i)
			}
		}
		var homes float64
		owned := make([]float64, len(c.parties)) // segments of each member in this account
		var shards []int
		for i, s := range v.Workload.Map.Shards {
			if s.Account != name {
				continue
			}
			shards = append(shards, i)
			homes += float64(loads[i])
			for m, n := range readers[i] {
				owned[m] += n
			}
		}
		for _, i := range shards {
			q := sharedQueue{name: v.Workload.Map.Shards[i].Queue}
			for _, m := range a.members {
				switch n := readers[i][m]; {
				case n > 0:
					q.stakes = append(q.stakes, stake{member: m, segments: n, part: n / owned[m]})
				case m < len(v.Members) && v.Members[m].Role == control.RoleDistributor && loads[i] > 0:
					q.stakes = append(q.stakes, stake{member: m, puts: true, part: float64(loads[i]) / homes})
				}
			}
			a.queues = append(a.queues, q)
		}
		c.accounts = append(c.accounts, a)
	}
	return c
}

// readers says for each shard of the map how many of its segments each member
// owns: those at home there, and those that spill into it.
func (c *cluster) readers() []map[int]float64 {
	m := c.view.Workload.Map
	out := make([]map[int]float64, len(m.Shards))
	for i := range out {
		out[i] = map[int]float64{}
	}
	if c.view.Owners == nil { // shared: everybody reads everything
		for _, name := range c.view.Processors() {
			at := c.find(name)
			for i := range out {
				out[i][at] = 1
			}
		}
		return out
	}
	for s := range uint32(len(c.view.Owners)) {
		owner, ok := c.view.OwnerOf(s)
		if !ok {
			continue
		}
		at := c.find(owner.Instance)
		out[m.Home(s)][at]++
		if len(c.view.Spills) > 0 && c.view.Spills[s] != 0 {
			for choice, shard := range m.Choices(s) {
				if choice > 0 && c.view.Spills[s]&(1<<choice) != 0 {
					out[shard][at]++
				}
			}
		}
	}
	for i := range out {
		if keeper := c.view.Keeper(i); keeper != "" {
			at := c.find(keeper)
			out[i][at] = max(out[i][at], 1)
		}
	}
	return out
}

// find is the index of a member of the view.
func (c *cluster) find(instance string) int {
	i, _ := slices.BinarySearchFunc(c.view.Members, instance, func(m control.Member, name string) int { return strings.Compare(m.Instance, name) })
	return i
}

// as gives the parties with the demands of another view; those that it lacks are nil.
func (c *cluster) as(v *control.View) []*party {
	out := make([]*party, len(c.parties))
	for i, p := range c.parties {
		j, ok := slices.BinarySearchFunc(v.Members, p.name, func(m control.Member, name string) int { return strings.Compare(m.Instance, name) })
		if ok {
			out[i] = &party{name: p.name, demand: v.Members[j].Demand}
		}
	}
	return out
}

// sharing keeps what the shares of this process follow from: the newest view, and
// an older one that all others have surely seen. It is for one goroutine at a time.
type sharing struct {
	instance string
	accounts []string
	limits   limits
	beat     time.Duration

	views  []*control.View // by age; the first is the newest that everybody has seen, if there is one
	known  bool            // it is, and not the first that this process read
	latest *cluster
}

// see takes a view.
func (s *sharing) see(v *control.View) {
	n := len(s.views)
	if n > 0 && v.Read.Before(s.views[n-1].Read) {
		return
	}
	s.latest = clusterOf(v, s.instance, s.accounts)
	if n > 0 && s.views[n-1].Read.Equal(v.Read) {
		s.views[n-1] = v // the same look; what it says of owners has changed since
		return
	}
	s.views = append(s.views, v)
	if len(s.views) > mostViews {
		s.views = slices.Delete(s.views, 1, 2)
	}
}

// mostViews bounds the views that are kept: looks come up to four times a beat,
// and all have looked once after a beat, or after some beats in a large cluster.
const mostViews = 64

// settle forgets views older than one that everybody has seen, and reports whether
// that is another than before, and when the next one will be; 0: when there is another view.
func (s *sharing) settle(now time.Time) (changed bool, next time.Duration) {
	settled := -1
	for i, v := range s.views {
		left := lookEvery(s.beat, len(v.Members)) - now.Sub(v.Read)
		if left > 0 {
			next = left
			break
		}
		settled = i
	}
	if settled < 0 || settled == 0 && s.known {
		return false, next
	}
	s.views, s.known = slices.Delete(s.views, 0, settled), true
	return true, next
}

// targets are this process's shares.
func (s *sharing) targets() *targets {
	c := s.latest
	before := c.as(s.views[0])
	if !s.known {
		before[c.me] = nil // who looked before this process joined
	}
	t := &targets{accounts: map[string]float64{}, queues: map[string]float64{}, other: s.limits.queue / float64(len(c.parties))}
	for i := range c.accounts {
		a := &c.accounts[i]
		x, y := a.portions(c.parties, s.limits), a.portions(before, s.limits)
		t.accounts[a.name] = allowed(c.me, s.limits.account, &x.account, &y.account)
		for j, q := range a.queues {
			t.queues[a.name+"/"+q.name] = allowed(c.me, s.limits.queue, &x.queues[j], &y.queues[j])
		}
	}
	return t
}

// lookEvery is after what time each member has looked at a cluster of so many
// members again: a beat, or in a large cluster some (package control, where
// more than 32 take turns so that 16 look in each beat).
func lookEvery(beat time.Duration, members int) time.Duration {
	if members <= 32 {
		return beat
	}
	return beat * time.Duration((members+15)/16)
}

// unjoined are the targets of a process that does not know yet who else is there:
// the floor of one that is alone, as others leave no less to one who joins (P8.1).
func unjoined(l limits, accounts []string) *targets {
	t := &targets{accounts: map[string]float64{}, other: l.queue * floorPart}
	for _, name := range accounts {
		t.accounts[name] = l.account * floorPart
	}
	return t
}
