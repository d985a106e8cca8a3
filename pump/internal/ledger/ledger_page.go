package ledger

import (
	"maps"
	"slices"
	"sort"
)

// The bounds of what is stored of a segment. All of it must fit into one transaction that replaces
// everything: at most 2 x maxPages + 1 of 100 rows, and 2 MiB of records, which are 2.8 MiB as they
// travel, of 4.
const (
	// maxRecord is the most that a record may have, so that two fit into a page.
	maxRecord = 29 << 10
	// pageMost is the most that a page's records take (P3.1: at most 60 KiB).
	pageMost = 60 << 10
	maxPages = 48
	// hotMost is the most bytes of records in the head itself, which is written with every commit.
	// Beyond it records move into pages until hotLeast or less is left.
	hotMost  = 32 << 10
	hotLeast = 16 << 10
)

// ledgerPage is records of a range of keys. A page's row never changes: other pages with new
// numbers replace it, so a reader of a head can tell whether pages belong to the head.
type ledgerPage struct {
	id    uint64
	first string // the key that its range begins with; "": the very beginning
	block block
}

// layout is where the records of a segment stand.
type layout struct {
	next  uint64 // number of the next new page
	hot   block  // what is in the head, which wins over the pages
	pages []*ledgerPage
}

// get gives a record, or nil.
func (l *layout) get(key string) []byte {
	if value, ok := l.hot[key]; ok {
		return value
	}
	if len(l.pages) == 0 {
		return nil
	}
	return l.pages[l.pageOf(key)].block[key]
}

// all gives the records.
func (l *layout) all() block {
	merged := block{}
	for _, p := range l.pages {
		maps.Copy(merged, p.block)
	}
	for key, value := range l.hot {
		if value == nil {
			delete(merged, key)
		} else {
			merged[key] = value
		}
	}
	return merged
}

// pageOf is the index of the page whose range holds the key.
func (l *layout) pageOf(key string) int {
	return sort.Search(len(l.pages), func(i int) bool { return l.pages[i].first > key }) - 1
}

// with is the layout after changes (nil: the record is gone), and which pages are new and which are
// replaced. It is false if that takes too many pages.
func (l *layout) with(changes block) (next *layout, added, removed []*ledgerPage, ok bool) {
	next = &layout{next: l.next, hot: make(block, len(l.hot)+len(changes)), pages: l.pages}
	maps.Copy(next.hot, l.hot)
	for key, value := range changes {
		if value == nil && !l.paged(key) {
			delete(next.hot, key)
		} else {
			next.hot[key] = value
		}
	}
	next.dropEmpty()
	if next.hot.size() > hotMost {
		for next.hot.size() > hotLeast {
			next.flush()
		}
	}
	if len(next.pages) > maxPages {
		// Everything is packed into as few pages as it takes.
		next.pages, next.hot = next.cut("", next.all(), pageMost), block{}
	}
	before := map[*ledgerPage]bool{}
	for _, p := range l.pages {
		before[p] = true
	}
	for _, p := range next.pages {
		if !before[p] {
			added = append(added, p)
		}
		delete(before, p)
	}
	for _, p := range l.pages {
		if before[p] {
			removed = append(removed, p)
		}
	}
	return next, added, removed, len(next.pages) <= maxPages
}

// paged reports whether a page has the record.
func (l *layout) paged(key string) bool {
	if len(l.pages) == 0 {
		return false
	}
	_, is := l.pages[l.pageOf(key)].block[key]
	return is
}

// byPage gives, for each page (or for a first page that is yet to be made), the keys of the head in
// its range.
func (l *layout) byPage() [][]string {
	keys := make([][]string, max(1, len(l.pages)))
	for _, key := range sortedKeys(l.hot) {
		i := max(0, l.pageOf(key))
		keys[i] = append(keys[i], key)
	}
	return keys
}

// flush moves the head's records in the range of one page into that page: the page with the most
// such records.
func (l *layout) flush() {
	byPage := l.byPage()
	largest, most := 0, -1
	for i, keys := range byPage {
		size := 0
		for _, key := range keys {
			size += blockRecordMost + len(l.hot[key])
		}
		if size > most {
			largest, most = i, size
		}
	}
	l.merge(largest, byPage[largest])
}

// dropEmpty takes out pages without records.
func (l *layout) dropEmpty() {
	if len(l.pages) == 0 {
		return
	}
	byPage := l.byPage()
	for i, keys := range slices.Backward(byPage) {
		gone := 0
		for _, key := range keys {
			if _, is := l.pages[i].block[key]; is && l.hot[key] == nil {
				gone++
			}
		}
		if gone == len(l.pages[i].block) {
			l.merge(i, keys)
		}
	}
}

// merge replaces a page by one or several that include these records of the head, or removes it if
// nothing is left.
func (l *layout) merge(at int, keys []string) {
	merged := block{}
	first := ""
	if len(l.pages) > 0 {
		first = l.pages[at].first
		maps.Copy(merged, l.pages[at].block)
	}
	for _, key := range keys {
		if value := l.hot[key]; value != nil {
			merged[key] = value
		} else {
			delete(merged, key)
		}
		delete(l.hot, key)
	}
	pages := l.cut(first, merged, splitTo(merged.size()))
	if len(l.pages) == 0 {
		l.pages = pages
		return
	}
	all := append([]*ledgerPage{}, l.pages[:at]...)
	all = append(all, pages...)
	all = append(all, l.pages[at+1:]...)
	if len(all) > 0 && all[0].first != "" { // the first range was left without a page
		head := *all[0]
		head.id, head.first = l.number(), ""
		all[0] = &head
	}
	l.pages = all
}

// splitTo is how full pages become when records of this size are cut into pages: one page if they
// fit, otherwise pages with some room left.
func splitTo(size int) int {
	if size <= pageMost {
		return pageMost
	}
	n := (size + pageMost*3/4 - 1) / (pageMost * 3 / 4)
	return (size + n - 1) / n
}

// cut makes pages of records, none over pageMost, each as full as wanted.
func (l *layout) cut(first string, records block, full int) (pages []*ledgerPage) {
	size := 0
	for _, key := range sortedKeys(records) {
		more := blockRecordMost + len(records[key])
		if len(pages) == 0 || size+more > pageMost || size >= full {
			if len(pages) > 0 {
				first = key
			}
			pages = append(pages, &ledgerPage{id: l.number(), first: first, block: block{}})
			size = 0
		}
		pages[len(pages)-1].block[key] = records[key]
		size += more
	}
	return pages
}

// number gives the number of a new page.
func (l *layout) number() uint64 {
	l.next++
	return l.next - 1
}
