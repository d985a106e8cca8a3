package queues

import (
	"cmp"
	"slices"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/shardmap"
)

// sharedView is a view as budgets see it: the members, and which accounts and queues each uses.
type sharedView struct {
	view     *cluster.View
	parties  []*party // by the view's members; then this process, if the view lacks it
	me       int
	accounts []sharedAccount // those that this process has
	tasks    sharedAccount   // the limit of tasks, as far as it is like an account's
}

// newSharedView reads a view for the process of that instance, with its accounts.
func newSharedView(v *cluster.View, instance string, accounts []string) *sharedView {
	c := &sharedView{view: v, me: -1, tasks: sharedAccount{name: TasksShare}}
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
	index := map[string]int{}
	for i, name := range accounts {
		index[name] = i
		c.accounts = append(c.accounts, sharedAccount{name: name})
	}
	var putters []int
	for i := range c.parties {
		c.addMember(i, index)
		if i == c.me || v.Members[i].Role == cluster.RoleProcessor || v.Members[i].Err != nil {
			c.tasks.members = append(c.tasks.members, i)
		}
		if i < len(v.Members) && v.Members[i].Role == cluster.RoleDistributor {
			putters = append(putters, i)
		}
	}
	c.addStakes(index, append(putters, c.bringers()...))
	return c
}

// addMember makes a member share the accounts that it has.
func (c *sharedView) addMember(member int, index map[string]int) {
	add := func(account int) {
		a := &c.accounts[account]
		if n := len(a.members); n == 0 || a.members[n-1] != member { // a row may name an account twice
			a.members = append(a.members, member)
		}
	}
	if member == c.me || c.view.Members[member].Err != nil {
		// A member with an unreadable row is only known to be there.
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

// addStakes says which members use which queue.
func (c *sharedView) addStakes(index map[string]int, putters []int) {
	m := c.view.Workload.Map
	readers, loads := c.readers(), m.Loads()
	owned := make([][]float64, len(c.accounts)) // segments, by account and member
	homes := make([]float64, len(c.accounts))
	for i := range owned {
		owned[i] = make([]float64, len(c.parties))
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
			reads := slices.ContainsFunc(q.stakes, func(s stake) bool { return s.member == at })
			if loads[i] > 0 && !reads {
				q.stakes = append(q.stakes,
					stake{member: at, puts: true, part: float64(loads[i]) / homes[account]})
			}
		}
		slices.SortFunc(q.stakes, func(a, b stake) int { return cmp.Compare(a.member, b.member) })
		// A member that says it has no credentials for the account cannot use the queue.
		members := c.accounts[account].members
		q.stakes = slices.DeleteFunc(q.stakes, func(s stake) bool {
			_, ok := slices.BinarySearch(members, s.member)
			return !ok
		})
		c.accounts[account].queues = append(c.accounts[account].queues, q)
	}
}

// bringers are the members that read foreign queues: they put what they find there into all other
// queues.
func (c *sharedView) bringers() (members []int) {
	if c.view.Owners == nil {
		return nil // the getter of a message keeps it
	}
	for i, s := range c.view.Workload.Map.Shards {
		reader := c.view.Sweeper(i)
		if s.State != shardmap.Foreign || reader == "" {
			continue
		}
		if at := c.view.Index(reader); !slices.Contains(members, at) {
			members = append(members, at)
		}
	}
	return members
}

// readers says for each shard of the map how many of its segments each member
// owns: those at home there, and those that spill into it. They are in no order.
func (c *sharedView) readers() [][]stake {
	v, m := c.view, c.view.Workload.Map
	out := make([][]stake, len(m.Shards))
	if v.Owners == nil { // shared: everybody reads everything
		var all []stake
		for _, name := range v.Processors() {
			all = append(all, stake{member: c.view.Index(name), segments: 1})
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
	alive := map[cluster.Owner]int{} // by instance and incarnation; -1: not alive
	for s, owner := range v.Owners {
		owner.Epoch = 0
		at, known := alive[owner]
		if !known {
			at = -1
			if _, ok := v.OwnerOf(uint32(s)); ok {
				at = c.view.Index(owner.Instance)
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
		at := c.view.Index(keeper)
		if !slices.ContainsFunc(out[i], func(s stake) bool { return s.member == at }) {
			add(i, at, 1)
		}
	}
	return out
}

// partiesIn gives the parties with the demands of another view; those that it lacks are nil.
func (c *sharedView) partiesIn(v *cluster.View) []*party {
	out := make([]*party, len(c.parties))
	for i, p := range c.parties {
		if j := v.Index(p.name); j >= 0 {
			out[i] = &party{name: p.name, demand: v.Members[j].Demand}
		}
	}
	return out
}
