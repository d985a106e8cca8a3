package azsim

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// rows holds the entities of a table in the order of partition key and row
// key, in chunks of bounded size: a write moves at most one chunk's pointers,
// a range is found by two binary searches. No chunk is empty.
type rows struct {
	chunks [][]*entity
	n      int
}

// chunkSize keeps the pointers of a chunk within a page of memory.
const chunkSize = 512

// rowKey addresses one row.
type rowKey struct{ pk, rk string }

func (e *entity) compare(k rowKey) int {
	return cmp.Or(strings.Compare(e.pk, k.pk), strings.Compare(e.rk, k.rk))
}

// find returns where k is or belongs: chunk, place in it, and whether it is
// there. Only when there are no chunks is the chunk not a valid index.
func (s *rows) find(k rowKey) (chunk, at int, found bool) {
	chunk = sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i][0].compare(k) > 0 })
	chunk = max(chunk-1, 0)
	if len(s.chunks) == 0 {
		return 0, 0, false
	}
	at, found = slices.BinarySearchFunc(s.chunks[chunk], k, (*entity).compare)
	return chunk, at, found
}

// get returns the row's entity, nil if it does not exist.
func (s *rows) get(k rowKey) *entity {
	chunk, at, found := s.find(k)
	if !found {
		return nil
	}
	return s.chunks[chunk][at]
}

// put stores e in the place of the row's entity, or as a new row.
func (s *rows) put(e *entity) {
	chunk, at, found := s.find(rowKey{e.pk, e.rk})
	if found {
		s.chunks[chunk][at] = e
		return
	}
	s.n++
	if len(s.chunks) == 0 {
		s.chunks = [][]*entity{{e}}
		return
	}
	c := slices.Insert(s.chunks[chunk], at, e)
	s.chunks[chunk] = c
	if len(c) <= chunkSize {
		return
	}
	// Appending in key order is common; leaving full chunks behind then costs
	// half the memory of an even split.
	half := len(c) / 2
	if at == len(c)-1 {
		half = at
	}
	s.chunks = slices.Insert(s.chunks, chunk+1, slices.Clone(c[half:]))
	clear(c[half:])
	s.chunks[chunk] = c[:half]
}

// remove takes the row out.
func (s *rows) remove(k rowKey) {
	chunk, at, found := s.find(k)
	if !found {
		return
	}
	s.n--
	if c := slices.Delete(s.chunks[chunk], at, at+1); len(c) > 0 {
		s.chunks[chunk] = c
		return
	}
	s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
}

// window copies the rows from the key `from` on for which in is true, up to limit of them, and
// returns the first key not looked at, if in was true of it. in must be true for one run of keys in
// order that begins at or before from.
func (s *rows) window(
	from rowKey, in func(*entity) bool, limit int,
) (window []*entity, next *entity) {
	chunk, at, _ := s.find(from)
	for ; chunk < len(s.chunks); chunk, at = chunk+1, 0 {
		for _, e := range s.chunks[chunk][at:] {
			if !in(e) {
				return window, nil
			}
			if len(window) == limit {
				return window, e
			}
			window = append(window, e)
		}
	}
	return window, nil
}
