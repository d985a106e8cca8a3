package quota

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// sharedView is a view as budgets see it: who is there, and who has what to do where.
type sharedView struct {
	view     *cluster.View
	Parties  []*party // by the view's members; then this process, if the view lacks it
	Me       int
	accounts []sharedAccount // those that this process has
	tasks    sharedAccount   // the limit of tasks, as far as it is like an account's
}

// clusterOf reads a view for the process of that instance, with its accounts.
func clusterOf(v *cluster.View, instance string, accounts []string) *sharedView {
	c := &sharedView{view: v, Me: -1, tasks: sharedAccount{name: TasksShare}}
	for i, m := range v.Members {
		c.Parties = append(c.Parties, &party{name: m.Instance, Demand: m.Demand})
		if m.Instance == instance {
			c.Me = i
		}
	}
	if c.Me < 0 { // evicted after a pause, and about to come back
		c.Me = len(c.Parties)
		c.Parties = append(c.Parties, &party{name: instance})
	}
	index := map[string]int{}
	for i, name := range accounts {
		index[name] = i
		c.accounts = append(c.accounts, sharedAccount{name: name})
	}
	var putters []int
	for i := range c.Parties {
		c.admit(i, index)
		if i == c.Me || v.Members[i].Role == cluster.RoleProcessor || v.Members[i].Err != nil {
			c.tasks.members = append(c.tasks.members, i)
		}
		if i < len(v.Members) && v.Members[i].Role == cluster.RoleDistributor {
			putters = append(putters, i)
		}
	}
	c.stakes(index, putters)
	return c
}

// admit makes a member one of those who share the accounts that it has.
func (c *sharedView) admit(member int, index map[string]int) {
	add := func(account int) {
		a := &c.accounts[account]
		if n := len(a.members); n == 0 || a.members[n-1] != member { // a row may name an account twice
			a.members = append(a.members, member)
		}
	}
	if member == c.Me || c.view.Members[member].Err != nil {
		// Of a member whose row cannot be read nothing is known but that it is there.
		for account := range c.accounts {
			add(account)
		}
		return
	}
	for _, name := range c.view.Members[member].Accounts {
		if account, ok := index[name]; ok {
			add(account)
		}
	}
}

// stakes says who has to do with which queue.
func (c *sharedView) stakes(index map[string]int, putters []int) {
	m := c.view.Workload.Map
	readers, loads := c.readers(), m.Loads()
	owned := make([][]float64, len(c.accounts)) // segments, by account and member
	homes := make([]float64, len(c.accounts))
	for i := range owned {
		owned[i] = make([]float64, len(c.Parties))
	}
	for i, s := range m.Shards {
		account, ok := index[s.Account]
		if !ok {
			continue
		}
		homes[account] += float64(loads[i])
		for _, r := range readers[i] {
			owned[account][r.member] += r.segments
		}
	}
	for i, s := range m.Shards {
		account, ok := index[s.Account]
		if !ok {
			continue
		}
		q := sharedQueue{name: s.Queue}
		for _, r := range readers[i] {
			r.part = r.segments / owned[account][r.member]
			q.stakes = append(q.stakes, r)
		}
		for _, at := range putters {
			if loads[i] > 0 {
				q.stakes = append(q.stakes, stake{member: at, puts: true, part: float64(loads[i]) / homes[account]})
			}
		}
		slices.SortFunc(q.stakes, func(a, b stake) int { return cmp.Compare(a.member, b.member) })
		// Who says that it has no credentials for the account cannot use the queue.
		members := c.accounts[account].members
		q.stakes = slices.DeleteFunc(q.stakes, func(s stake) bool {
			_, ok := slices.BinarySearch(members, s.member)
			return !ok
		})
		c.accounts[account].queues = append(c.accounts[account].queues, q)
	}
}

// readers says for each shard of the map how many of its segments each member
// owns: those at home there, and those that spill into it. They are in no order.
func (c *sharedView) readers() [][]stake {
	v, m := c.view, c.view.Workload.Map
	out := make([][]stake, len(m.Shards))
	if v.Owners == nil { // shared: everybody reads everything
		var all []stake
		for _, name := range v.Processors() {
			all = append(all, stake{member: c.find(name), segments: 1})
		}
		for i := range out {
			out[i] = all
		}
		return out
	}
	add := func(shard, member int, segments float64) {
		for i := range out[shard] {
			if out[shard][i].member == member {
				out[shard][i].segments += segments
				return
			}
		}
		out[shard] = append(out[shard], stake{member: member, segments: segments})
	}
	alive := map[cluster.Owner]int{} // by instance and incarnation; -1 for those who are not
	for s, owner := range v.Owners {
		owner.Epoch = 0
		at, known := alive[owner]
		if !known {
			at = -1
			if _, ok := v.OwnerOf(uint32(s)); ok {
				at = c.find(owner.Instance)
			}
			alive[owner] = at
		}
		if at < 0 {
			continue
		}
		add(m.Home(uint32(s)), at, 1)
		if len(v.Spills) > 0 && v.Spills[s] != 0 {
			for choice, shard := range m.Choices(uint32(s)) {
				if choice > 0 && v.Spills[s]&(1<<choice) != 0 {
					add(shard, at, 1)
				}
			}
		}
	}
	for i := range out {
		keeper := v.Sweeper(i)
		if keeper == "" {
			continue
		}
		at := c.find(keeper)
		if !slices.ContainsFunc(out[i], func(s stake) bool { return s.member == at }) {
			add(i, at, 1)
		}
	}
	return out
}

// find is the index of a member of the view.
func (c *sharedView) find(instance string) int {
	i, _ := slices.BinarySearchFunc(c.view.Members, instance, func(m cluster.Member, name string) int { return strings.Compare(m.Instance, name) })
	return i
}

// as gives the parties with the demands of another view; those that it lacks are nil.
func (c *sharedView) as(v *cluster.View) []*party {
	out := make([]*party, len(c.Parties))
	for i, p := range c.Parties {
		j, ok := slices.BinarySearchFunc(v.Members, p.name, func(m cluster.Member, name string) int { return strings.Compare(m.Instance, name) })
		if ok {
			out[i] = &party{name: p.name, Demand: v.Members[j].Demand}
		}
	}
	return out
}

// Sharing keeps what the shares of this process follow from: the newest view, and
// an older one that all others have surely seen. It is for one goroutine at a time.
type Sharing struct {
	Instance string
	Accounts []string
	Limits   Limits
	Tasks    float64 // the limit of tasks; 0: none
	Beat     time.Duration

	views  []*cluster.View // by age; the first is the newest that everybody has seen, if there is one
	known  bool            // it is, and not the first that this process read
	Latest *sharedView
}

// See takes a view.
func (s *Sharing) See(v *cluster.View) {
	n := len(s.views)
	if n > 0 && v.Read.Before(s.views[n-1].Read) {
		return
	}
	s.Latest = clusterOf(v, s.Instance, s.Accounts)
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

// Settle forgets views older than one that everybody has seen, and reports whether
// that is another than before, and when the next one will be; 0: when there is another view.
func (s *Sharing) Settle(now time.Time) (changed bool, next time.Duration) {
	settled := -1
	for i, v := range s.views {
		left := time.Duration(v.LookBeats())*s.Beat - now.Sub(v.Read)
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

// Targets are this process's shares.
func (s *Sharing) Targets() *Targets {
	c := s.Latest
	before := c.as(s.views[0])
	if !s.known {
		before[c.Me] = nil // who looked before this process joined
	}
	t := &Targets{Accounts: map[string]float64{}, queues: map[string]float64{}, other: s.Limits.Queue / float64(len(c.Parties))}
	for i := range c.accounts {
		a := &c.accounts[i]
		x, y := a.portions(c.Parties, s.Limits), a.portions(before, s.Limits)
		t.Accounts[a.name] = allowed(c.Me, s.Limits.Account, &x.account, &y.account)
		for j, q := range a.queues {
			t.queues[a.name+"/"+q.name] = allowed(c.Me, s.Limits.Queue, &x.queues[j], &y.queues[j])
		}
	}
	if s.Tasks > 0 {
		l := Limits{Account: s.Tasks}
		x, y := c.tasks.portions(c.Parties, l), c.tasks.portions(before, l)
		// Here nobody refuses what is too much. So each may use all of its share at
		// any moment, whatever it has said that it needs.
		for i := range x.account.list {
			x.account.list[i].want = s.Tasks
		}
		t.Tasks = allowed(c.Me, s.Tasks, &x.account, &y.account)
	}
	return t
}

// Unjoined are the targets of a process that does not know yet who else is there:
// the floor of one that is alone, as others leave no less to one who joins (P8.1).
func Unjoined(l Limits, tasks float64, accounts []string) *Targets {
	t := &Targets{Accounts: map[string]float64{}, other: l.Queue * FloorPart, Tasks: tasks * FloorPart}
	for _, name := range accounts {
		t.Accounts[name] = l.Account * FloorPart
	}
	return t
}
