package ledger

import (
	"slices"
	"sort"

	"github.com/queuepump/queuepump/codec"
)

// nspan is the n of from <= n < to.
type nspan struct{ from, to uint64 }

// nspans is a set of n as spans: sorted, none empty, no two touching. A thousand
// consecutive tasks are one span, and no operation looks at single n.
type nspans []nspan

// add gives the set with from <= n < to in it. It reuses the slice.
func (s nspans) add(from, to uint64) nspans {
	if last := len(s) - 1; last < 0 || s[last].to < from {
		return append(s, nspan{from, to})
	}
	i := sort.Search(len(s), func(i int) bool { return s[i].to >= from })
	j := i
	for ; j < len(s) && s[j].from <= to; j++ {
		from, to = min(from, s[j].from), max(to, s[j].to)
	}
	return slices.Replace(s, i, j, nspan{from, to})
}

// remove gives the set without from <= n < to. It reuses the slice.
func (s nspans) remove(from, to uint64) nspans {
	i := sort.Search(len(s), func(i int) bool { return s[i].to > from })
	j := i
	var kept [2]nspan
	n := 0
	for ; j < len(s) && s[j].from < to; j++ {
		if s[j].from < from {
			kept[n], n = nspan{s[j].from, from}, n+1
		}
		if s[j].to > to {
			kept[n], n = nspan{to, s[j].to}, n+1
		}
	}
	return slices.Replace(s, i, j, kept[:n]...)
}

// contains reports whether n is in the set.
func (s nspans) contains(n uint64) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].to > n })
	return i < len(s) && s[i].from <= n
}

// divide tells which of from <= n < to are in the set.
func (s nspans) divide(from, to uint64, in, out *nspans) {
	i := sort.Search(len(s), func(i int) bool { return s[i].to > from })
	for ; i < len(s) && s[i].from < to; i++ {
		if s[i].from > from {
			*out = out.add(from, s[i].from)
			from = s[i].from
		}
		*in = in.add(from, min(s[i].to, to))
		if from = s[i].to; from >= to {
			return
		}
	}
	*out = out.add(from, to)
}

// fewSpans is up to how many spans a set is made span by span. Each span copies those before it, so
// for a set of many short spans it is cheaper to list its n.
const fewSpans = 64

// set is the same as a codec.NSet.
func (s nspans) set() codec.NSet {
	if len(s) > fewSpans {
		var ns []uint64
		for _, sp := range s {
			for n := sp.from; n < sp.to; n++ {
				ns = append(ns, n)
			}
		}
		return codec.MakeNSet(ns...)
	}
	var set codec.NSet
	for _, sp := range s {
		set.AddRange(sp.from, sp.to)
	}
	return set
}
