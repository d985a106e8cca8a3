package handlers

import (
	"iter"
	"slices"
	"strings"
)

// countRuns adds up the counts of many segments. A key may be in every one of them and there may be
// many millions of keys, so neither all states nor a map of all keys are kept: what was read is a
// stack of sorted and encoded runs, each more than twice as large as the next one. Two neighbours
// that are not are merged. So all runs together take less than twice the size of the result, and
// each key is merged a logarithmic number of times.
type countRuns [][]byte

// add takes the counts of one more segment, which it sorts.
func (m *countRuns) add(c counts) {
	slices.SortFunc(c.keys, func(a, b keySums) int { return strings.Compare(a.key, b.key) })
	var run []byte
	for i := range c.keys {
		run = c.keys[i].append(run)
	}
	for last := len(*m) - 1; last >= 0 && len((*m)[last]) <= 2*len(run); last-- {
		run = mergeCounts((*m)[last], run)
		*m = (*m)[:last]
	}
	*m = append(*m, run)
}

// all gives every key once, sorted, and forgets it.
func (m *countRuns) all() iter.Seq[keySums] {
	var run []byte
	for _, larger := range slices.Backward(*m) {
		run = mergeCounts(larger, run)
	}
	*m = nil
	return func(yield func(keySums) bool) {
		for k, ok := cutKnown(&run); ok && yield(k); k, ok = cutKnown(&run) {
		}
	}
}

// mergeCounts merges two sorted runs into one.
func mergeCounts(a, b []byte) []byte {
	out := make([]byte, 0, len(a)+len(b))
	x, moreA := cutKnown(&a)
	y, moreB := cutKnown(&b)
	for moreA && moreB {
		switch order := strings.Compare(x.key, y.key); {
		case order < 0:
			out = x.append(out)
			x, moreA = cutKnown(&a)
		case order > 0:
			out = y.append(out)
			y, moreB = cutKnown(&b)
		default:
			x.count += y.count
			x.sum = x.sum.add(y.sum)
			y, moreB = cutKnown(&b)
		}
	}
	if moreA {
		out = append(x.append(out), a...)
	}
	if moreB {
		out = append(y.append(out), b...)
	}
	// The room that common keys have saved is given back: the stack's bound counts lengths.
	return slices.Clone(out)
}

// cutKnown takes the first key off a run that this process made.
func cutKnown(run *[]byte) (k keySums, ok bool) {
	if len(*run) == 0 {
		return k, false
	}
	k, rest, err := cutKeyCount(*run)
	if err != nil {
		panic(err) // append and cutKeyCount disagree
	}
	*run = rest
	return k, true
}
