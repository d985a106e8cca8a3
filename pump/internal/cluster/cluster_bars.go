package cluster

import "slices"

// A processor that alone cannot read an account must own no segment that has messages there: they
// would stand until it can. So each names such accounts in its beat ([Report].Cannot), and the plan
// goes by that.

// maxCannot bounds how many accounts a beat names as ones that cannot be read. A process that
// cannot read more is as one that can read none (cannotAny).
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

// unreadable says by candidate and shard which queues that processor says it cannot read; nil: each
// says that it can read all.
func (v *View) unreadable() [][]bool {
	var cannot [][]bool
	shards := v.Workload.Map.Shards
	for i, name := range v.candidates {
		names := v.Members[v.index(name)].Cannot
		if len(names) == 0 {
			continue
		}
		if cannot == nil {
			cannot = make([][]bool, len(v.candidates))
			for j := range cannot {
				cannot[j] = make([]bool, len(shards))
			}
		}
		for at, sh := range shards {
			cannot[i][at] = names[0] == cannotAny || slices.Contains(names, sh.Account)
		}
	}
	return cannot
}

// barred says which candidates cannot read the home, or a marked choice, of which segments; nil:
// none is barred from anything.
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
