package queues

import (
	"cmp"
	"slices"
)

// How one limit of the service is shared by all processes that live under it
// (P8.1). Everything here is pure: the same cluster gives the same shares, in
// every process and in any order, so no process has to agree with another.
const (
	// FloorPart of a limit is kept for floors: each of n members has 1/(4n) of an account, with any
	// demand, until its next beat says what it needs.
	FloorPart = 1. / 4
	// strangerPart of a queue's limit is kept for members that do not use the queue, to finish what
	// they have of it: 1/(16n) each. They are most of a large cluster, so the floor of an account
	// would cost each queue a quarter of its speed.
	strangerPart = 1. / 16
	// headroom is how much more than its demand is fair to a process: a share that
	// was exactly the demand would hold back the next small growth.
	quotaHeadroom = 1.25
	// ownersWeight is what the owners of a queue's segments weigh together, against 1 of the members
	// that put into it: each message is put once, got once and deleted once.
	ownersWeight = 2.
)

// claim is what one process has to do with one limit.
type claim struct {
	floor  float64 // what it has in any case
	demand float64 // what it would use
	weight float64 // how it counts against the others; positive
}

// divide shares out a limit. Each claim gets its floor and then, while something is left, in
// proportion to the weights up to what it asks for: a claim that wants less than its share leaves
// the rest to the others (max-min fairness). The part that no claim asks for is given out too, in
// proportion to the shares, so that a process that begins to need more has it at once. The shares
// add up to the limit; if the floors alone exceed it, the shares are in proportion to the floors.
func divide(limit float64, claims []claim) []float64 {
	shares := make([]float64, len(claims))
	var sum, weights float64
	var hungry []int // the claims above their floor
	for i, c := range claims {
		shares[i] = c.floor
		sum += c.floor
		if c.demand > c.floor {
			hungry = append(hungry, i)
			weights += c.weight
		}
	}
	// The claim that needs the least for its weight is satisfied first; from the first unsatisfied
	// claim on, all get the same for their weight.
	need := func(i int) float64 { return claims[i].demand - claims[i].floor }
	slices.SortStableFunc(hungry, func(i, j int) int {
		return cmp.Compare(need(i)/claims[i].weight, need(j)/claims[j].weight)
	})
	left := max(limit-sum, 0)
	for _, i := range hungry {
		part := min(need(i), left*claims[i].weight/weights)
		shares[i] += part
		left -= part
		weights -= claims[i].weight
	}
	sum = 0
	for _, s := range shares {
		sum += s
	}
	if sum > 0 {
		for i := range shares {
			shares[i] = shares[i] / sum * limit // so that a lone claim has exactly the limit
		}
	}
	return shares
}

// party is a member of the cluster, as far as budgets are concerned.
type party struct {
	name   string
	demand map[string]float64 // requests a second, by account
}

// stake is what a member has to do with one queue.
type stake struct {
	member int // index of the party
	// puts: it puts into the queue, when it has work at all. Otherwise it reads it.
	puts bool
	// segments are how many of the queue's a reader owns: those at home in it
	// and those that spill into it. Its keeper has one at least.
	segments float64
	// part of the member's demand in the account that is for this queue.
	part float64
}

// sharedQueue is one queue of the shard map with the members that use it, in the order of the
// parties.
type sharedQueue struct {
	name   string
	stakes []stake
}

// sharedAccount is one account with the members that have credentials for it, in order.
type sharedAccount struct {
	name    string
	members []int
	queues  []sharedQueue
}

// Limits are the service's for each account and each queue.
type Limits struct{ Account, Queue float64 }

// portion is what one member has of a limit: its share, the floor under it, and
// what it would use at most, if it might, until its next beat.
type portion struct {
	member             int
	share, floor, want float64
}

// portions are those of all members that use what the limit is of, in order. Each of the other
// members has stranger.
type portions struct {
	list     []portion
	stranger portion
	members  int // in all
}

func (p *portions) of(member int) portion {
	i, ok := slices.BinarySearchFunc(p.list, member, func(p portion, m int) int {
		return cmp.Compare(p.member, m)
	})
	if ok {
		return p.list[i]
	}
	return p.stranger
}

// portionsOf divides a limit among the members who.
func portionsOf(limit float64, who []int, claims []claim) []portion {
	list := make([]portion, len(who))
	for i, s := range divide(limit, claims) {
		c := claims[i]
		// A demand may double before the next one is said.
		list[i] = portion{
			member: who[i], share: s, floor: min(c.floor, s), want: max(c.floor, 2*c.demand),
		}
	}
	return list
}

// accountPortions are all portions under one account.
type accountPortions struct {
	account portions
	queues  []portions // in the account's order
}

// portions gives every member its part of an account and its queues. A party that
// is nil does not exist.
func (a *sharedAccount) portions(parties []*party, l Limits) accountPortions {
	var present []int
	for _, m := range a.members {
		if parties[m] != nil {
			present = append(present, m)
		}
	}
	out := accountPortions{queues: make([]portions, len(a.queues))}
	// what each one's shares of the queues let through, beside everywhere
	through := make([]float64, len(parties))
	everywhere := 0.
	for i := range a.queues {
		q := a.queues[i].portions(a.name, parties, len(present), l.Queue)
		everywhere += q.stranger.share
		for _, p := range q.list {
			through[p.member] += p.share - q.stranger.share
		}
		out.queues[i] = q
	}
	claims := make([]claim, len(present))
	for i, m := range present {
		claims[i] = claim{
			floor:  FloorPart * l.Account / float64(len(present)),
			weight: 1,
			demand: parties[m].demand[a.name] * quotaHeadroom,
		}
		if len(a.queues) > 0 {
			// A process that its queues hold back asks for more than it can use here.
			claims[i].demand = min(claims[i].demand, everywhere+through[m])
		}
	}
	out.account = portions{list: portionsOf(l.Account, present, claims), members: len(present)}
	return out
}

// portions gives each of n members its part of the queue.
func (q *sharedQueue) portions(account string, parties []*party, n int, limit float64) portions {
	var busy []stake
	var segments, putters, weights float64
	for _, s := range q.stakes {
		switch m := parties[s.member]; {
		case m == nil || s.puts && m.demand[account] == 0: // with nothing to put: a stranger until it has
			continue
		case s.puts:
			putters++
		default:
			segments += s.segments
		}
		busy = append(busy, s)
	}
	if n == 0 {
		return portions{}
	}
	least := strangerPart * limit / float64(n)
	p := portions{stranger: portion{member: -1, share: least, floor: least, want: least}, members: n}
	if len(busy) == 0 {
		p.stranger.share = limit / float64(n)
		return p
	}
	limit -= least * float64(n-len(busy))
	claims, who := make([]claim, len(busy)), make([]int, len(busy))
	for i, s := range busy {
		weight := ownersWeight * s.segments / segments
		if s.puts {
			weight = 1 / putters
		}
		weights += weight
		who[i] = s.member
		claims[i] = claim{
			weight: weight, demand: parties[s.member].demand[account] * s.part * quotaHeadroom,
		}
	}
	for i := range claims {
		claims[i].floor = FloorPart * limit * claims[i].weight / weights
	}
	p.list = portionsOf(limit, who, claims)
	return p
}

// allowed is what a member may spend of a limit now: its share, as far as no other member may be
// using it. The others act on what they read up to a beat ago, which is before. Until they have
// looked again, a share grows only into what they do not use by either reading. Two processes that
// both spend one share for a beat would throttle each other down to a few per cent of it, and need
// most of a minute to come back.
func allowed(me int, limit float64, now, before *portions) float64 {
	mine := now.of(me)
	free := limit
	others := now.members - 1 // not yet counted
	for i, j := 0, 0; i < len(now.list) || j < len(before.list); {
		var m int
		switch {
		case j == len(before.list) || i < len(now.list) && now.list[i].member < before.list[j].member:
			m, i = now.list[i].member, i+1
		case i == len(now.list) || before.list[j].member < now.list[i].member:
			m, j = before.list[j].member, j+1
		default:
			m, i, j = now.list[i].member, i+1, j+1
		}
		if m != me {
			free -= inUse(now.of(m), before.of(m))
			others--
		}
	}
	free -= inUse(now.stranger, before.stranger) * float64(max(others, 0))
	// What this member had by the older reading too, no other member may take.
	return min(mine.share, max(mine.floor, before.of(me).share, free))
}

// inUse is what a member may be using of a limit, by either reading.
func inUse(now, before portion) float64 { return min(max(now.share, before.share), now.want) }

// Even shares out a limit by demands, as budgets are shared. Each share has a small floor. A share
// exceeds its demand only if all demands are met. The rest is given out too.
func Even(limit float64, demands []float64) []float64 {
	claims := make([]claim, len(demands))
	for i, d := range demands {
		claims[i] = claim{floor: limit * FloorPart / float64(len(demands)), demand: d, weight: 1}
	}
	return divide(limit, claims)
}
