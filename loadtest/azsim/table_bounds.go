package azsim

import (
	"cmp"
	"strings"
)

// bound is one end of a range of keys; the zero value means no end.
type bound struct {
	key  string
	set  bool
	open bool // the key itself is outside
}

// keySpan is a range of one of the two keys.
type keySpan struct{ low, high bound }

// keyBounds is a range of partition keys, and of row keys within each of them. A query looks at
// nothing outside, so the cost of a point or range query depends on what it returns, not on the
// size of the table.
type keyBounds struct{ partition, row keySpan }

// point returns the only partition key within the bounds, if there is one.
func (k keyBounds) point() (string, bool) {
	low, high := k.partition.low, k.partition.high
	return low.key, low.set && high.set && low.key == high.key && !low.open && !high.open
}

// Of a lower end up is 1, as a greater key is tighter there, and -1 of an upper one.
const (
	lower = 1
	upper = -1
)

func tighter(a, b bound, up int) bound {
	if !a.set || b.set && (cmp.Compare(b.key, a.key) == up || b.key == a.key && b.open) {
		return b
	}
	return a
}

func looser(a, b bound, up int) bound {
	if !a.set || !b.set {
		return bound{}
	}
	if cmp.Compare(b.key, a.key) == up || a.key == b.key && b.open {
		return a
	}
	return b
}

func (a keySpan) and(b keySpan) keySpan {
	return keySpan{tighter(a.low, b.low, lower), tighter(a.high, b.high, upper)}
}

// or covers both spans and all that lies between them.
func (a keySpan) or(b keySpan) keySpan {
	return keySpan{looser(a.low, b.low, lower), looser(a.high, b.high, upper)}
}

func (f filterAnd) bounds() keyBounds {
	a, b := f.a.bounds(), f.b.bounds()
	return keyBounds{a.partition.and(b.partition), a.row.and(b.row)}
}

func (f filterOr) bounds() keyBounds {
	a, b := f.a.bounds(), f.b.bounds()
	return keyBounds{a.partition.or(b.partition), a.row.or(b.row)}
}

func (f filterNot) bounds() keyBounds { return keyBounds{} }
func (f boolean) bounds() keyBounds   { return keyBounds{} }

func (f comparison) bounds() keyBounds {
	if f.value.kind != edmString {
		return keyBounds{}
	}
	var s keySpan
	end := bound{key: f.value.text, set: true, open: f.operator == "gt" || f.operator == "lt"}
	switch f.operator {
	case "eq":
		s = keySpan{end, end}
	case "gt", "ge":
		s.low = end
	case "lt", "le":
		s.high = end
	}
	switch f.name {
	case "PartitionKey":
		return keyBounds{partition: s}
	case "RowKey":
		return keyBounds{row: s}
	}
	return keyBounds{}
}

// above tells whether key lies after the span.
func (a keySpan) above(key string) bool {
	c := strings.Compare(key, a.high.key)
	return a.high.set && (c > 0 || c == 0 && a.high.open)
}
