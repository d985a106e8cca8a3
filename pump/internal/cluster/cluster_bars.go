package cluster

import (
	"maps"
	"slices"
)

// A processor that alone cannot read an account must not own a segment with messages there: they
// would wait until it can. So each processor names such accounts in its beat ([Report].Cannot). A
// few others then see whether they can, and vouch for it; otherwise the segments of an account that
// refuses all would wander through the whole cluster. The plan heeds both.

// maxCannot bounds how many unreadable accounts a beat names. A process with more counts as unable
// to read any (cannotAny).
const maxCannot = 32

// cannotAny stands for all accounts.
const cannotAny = "*"

// boundedCannot is what a beat says of such accounts.
func boundedCannot(names []string) []string {
	if len(names) > maxCannot {
		return []string{cannotAny}
	}
	return names
}

// Vouchers is how many processors, the first by rank, see whether they can read what others cannot.
const Vouchers = 3

// Doubted are the accounts that processors other than one say they cannot read, in order.
func (v *View) Doubted(instance string) (accounts []string) {
	var doubters []*Member // mostly none: each process asks once a second
	for i := range v.Members {
		m := &v.Members[i]
		if len(m.Cannot) > 0 && m.Instance != instance && m.takesSegments() {
			doubters = append(doubters, m)
		}
	}
	if len(doubters) == 0 {
		return nil
	}
	for _, a := range slices.Sorted(maps.Keys(v.Workload.Map.Accounts())) {
		if slices.ContainsFunc(doubters, func(m *Member) bool { return names(m.Cannot, a) }) {
			accounts = append(accounts, a)
		}
	}
	return accounts
}

// unreadable says by candidate and shard which queues the candidate says it cannot read while
// another processor vouches that it can; nil without such a queue.
func (v *View) unreadable() [][]bool {
	if len(v.Doubted("")) == 0 {
		return nil
	}
	shards := v.Workload.Map.Shards
	var cannot [][]bool
	for at, sh := range shards {
		var bars []int
		vouched := false
		for i, name := range v.candidates {
			m := &v.Members[v.Index(name)]
			if names(m.Cannot, sh.Account) {
				bars = append(bars, i)
			} else {
				vouched = vouched || slices.Contains(m.Vouches, sh.Account)
			}
		}
		if !vouched || len(bars) == 0 {
			continue
		}
		if cannot == nil {
			cannot = make([][]bool, len(v.candidates))
			for i := range cannot {
				cannot[i] = make([]bool, len(shards))
			}
		}
		for _, i := range bars {
			cannot[i][at] = true
		}
	}
	return cannot
}

// names reports whether a member names an account among those that it cannot read.
func names(list []string, account string) bool {
	return len(list) > 0 && (list[0] == cannotAny || slices.Contains(list, account))
}

// barred says whether a candidate cannot read the home, or a marked choice, of a segment; nil:
// every candidate can.
func (v *View) barred() func(instance, segment int) bool {
	cannot := v.unreadable()
	if cannot == nil {
		return nil
	}
	m := v.Workload.Map
	places := make([][]int, m.Segments)
	for s := range places {
		places[s] = []int{m.Home(uint32(s))}
		if v.Spills == nil || v.Spills[s] == 0 {
			continue
		}
		for choice, shard := range m.Choices(uint32(s)) {
			if choice > 0 && v.Spills[s]&(1<<choice) != 0 {
				places[s] = append(places[s], shard)
			}
		}
	}
	return func(instance, segment int) bool {
		return slices.ContainsFunc(places[segment], func(shard int) bool {
			return cannot[instance][shard]
		})
	}
}
