package azsim

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

// maxPage is how many entities or tables one answer holds (AZURE.md A2, Query).
const maxPage = 1000

// entityQuery is what a request asks of a set: $filter, $select and $top.
type entityQuery struct {
	filter filter
	sel    []string // nil: everything
	top    int
}

// maxSelected bounds $select by the number of properties that an entity can have.
const maxSelected = maxProperties + 3

func parseQuery(r *request) (q entityQuery, e *tableError) {
	for name := range r.query {
		switch name {
		case "$orderby", "$skip", "$expand", "$inlinecount", "$skiptoken", "$count":
			return q, errNotImplemented
		}
	}
	if q.filter, e = parseFilter(r.query.Get("$filter")); e != nil {
		return q, e
	}
	q.top = maxPage
	if r.query.Has("$top") {
		n, err := strconv.Atoi(r.query.Get("$top"))
		if err != nil || n < 1 || n > maxPage { // AZURE.md T42, T43
			return q, errInvalidInput
		}
		q.top = n
	}
	q.sel, e = parseSelect(r.query.Get("$select"))
	return q, e
}

func parseSelect(s string) ([]string, *tableError) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var names []string
	seen := make(map[string]bool)
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		if name == "*" {
			return nil, nil
		}
		if checkPropertyName(name) != nil || len(names) == maxSelected {
			return nil, errInvalidInput
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names, nil
}

// context is the odata.metadata of an answer about a table's entities.
func (q entityQuery) context(r *request, t *table, suffix string) string {
	c := r.baseURL + "/$metadata#" + t.name + suffix
	if q.sel != nil {
		c += "&$select=" + strings.Join(q.sel, ",")
	}
	return c
}

// pageToken writes a key as a continuation token: "1!", the length of the base64 that follows, "!",
// and base64 that needs no escaping in an address (AZURE.md A4, Query).
func pageToken(key string) string {
	text := tokenAlphabet.Replace(base64.StdEncoding.EncodeToString([]byte(key)))
	return "1!" + strconv.Itoa(len(text)) + "!" + text
}

var (
	tokenAlphabet  = strings.NewReplacer("=", "-", "/", "_", "+", "*")
	base64Alphabet = strings.NewReplacer("-", "=", "_", "/", "*", "+")
)

// readToken reads a continuation token back; none is the empty key.
func readToken(s string) (string, *tableError) {
	if s == "" {
		return "", nil
	}
	rest, ok := strings.CutPrefix(s, "1!")
	length, text, found := strings.Cut(rest, "!")
	n, err := strconv.Atoi(length)
	if !ok || !found || err != nil || n != len(text) {
		return "", errInvalidInput
	}
	key, err := base64.StdEncoding.DecodeString(base64Alphabet.Replace(text))
	if err != nil {
		return "", errInvalidInput
	}
	return string(key), nil
}

// getEntity answers a query for one entity by its keys.
func (s *tableStore) getEntity(r *request, t tableTarget, separator string) reply {
	level, e := requestLevel(r)
	if e != nil {
		return e.answer(r)
	}
	if e := checkKeys(t.key); e != nil {
		return e.answer(r)
	}
	sel, e := parseSelect(r.query.Get("$select"))
	if e != nil {
		return e.answer(r)
	}
	tab := s.find(t.table)
	if tab == nil {
		return errTableNotFound.answer(r)
	}
	tab.mu.RLock()
	found, gone := tab.rows.get(t.key), tab.gone
	tab.mu.RUnlock()
	switch {
	case gone:
		return errTableNotFound.answer(r)
	case found == nil:
		return errResourceNotFound.answer(r)
	}
	h := tableHeader(r)
	h.Set("Content-Type", contentType(level, separator))
	h.Set("ETag", formatETag(found.ticks))
	body := s.appendEntity(nil, r, level, tab, found,
		entityQuery{sel: sel}.context(r, tab, "/@Element"), sel)
	return reply{status: http.StatusOK, header: h, body: body}
}

// queryEntities answers Query Entities with one page.
func (s *tableStore) queryEntities(r *request, name string, q entityQuery, separator string) reply {
	level, e := requestLevel(r)
	if e != nil {
		return e.answer(r)
	}
	p := pager{query: q, options: s.options, sas: r.keyRange}
	if e := p.begin(r); e != nil {
		return e.answer(r)
	}
	t := s.find(name)
	if t == nil {
		return errTableNotFound.answer(r)
	}
	if e := p.read(t); e != nil {
		return e.answer(r)
	}
	h := tableHeader(r)
	h.Set("Content-Type", contentType(level, separator))
	if p.next != nil {
		h.Set("X-Ms-Continuation-Nextpartitionkey", pageToken(p.next.pk))
		if !p.boundary {
			h.Set("X-Ms-Continuation-Nextrowkey", pageToken(p.next.rk))
		}
	}
	b := beginObject(level, q.context(r, t, ""))
	b = append(b, `"value":[`...)
	for i, e := range p.page {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendEntity(b, r, level, t, e, "", q.sel)
	}
	return reply{status: http.StatusOK, header: h, body: append(b, "]}"...), looked: p.looked}
}

// pager finds one page of a query.
type pager struct {
	query   entityQuery
	options TableOptions
	sas     keyRange

	bounds  keyBounds
	pinned  bool // to one partition
	from    rowKey
	resumed bool // by a token

	page     []*entity
	looked   []looked
	next     *entity // where the next page begins, nil without one
	boundary bool    // next begins another partition and the token says only that
}

// begin finds where the page starts: at the beginning of what can match, or where the token says.
func (p *pager) begin(r *request) *tableError {
	if p.query.filter != nil {
		p.bounds = p.query.filter.bounds()
	}
	_, p.pinned = p.bounds.point()
	p.from.pk = firstKey(p.bounds.partition.low)
	if p.pinned {
		p.from.rk = firstKey(p.bounds.row.low)
	}
	pk, e := readToken(r.query.Get("NextPartitionKey"))
	if e != nil {
		return e
	}
	rk, e := readToken(r.query.Get("NextRowKey"))
	if e != nil {
		return e
	}
	p.resumed = r.query.Get("NextPartitionKey") != ""
	if !p.resumed && r.query.Get("NextRowKey") != "" {
		return errInvalidInput
	}
	p.later(rowKey{pk, rk})
	p.later(rowKey{p.sas.startPK, p.sas.startRK})
	return nil
}

// firstKey is the first key within a lower end. No key holds a NUL, so that the
// key with one appended is the next there can be.
func firstKey(low bound) string {
	if low.open {
		return low.key + "\x00"
	}
	return low.key
}

// later moves the start forward to k.
func (p *pager) later(k rowKey) {
	if k.pk > p.from.pk || k.pk == p.from.pk && k.rk > p.from.rk {
		p.from = k
	}
}

// within tells whether a row at or after the start may still match; once it is
// false it stays so for all later rows.
func (p *pager) within(e *entity) bool {
	switch {
	case p.bounds.partition.above(e.pk), p.sas.endPK != "" && e.pk > p.sas.endPK:
		return false
	case p.pinned && p.bounds.row.above(e.rk):
		return false
	}
	return true
}

// read takes the page. The rows are copied in one moment, so that a page shows
// a batch either whole or not at all (snapshot isolation), and judged after.
func (p *pager) read(t *table) *tableError {
	limit := p.options.ScanLimit
	if p.query.filter == nil && p.sas == (keyRange{}) {
		limit = min(limit, p.query.top)
	}
	t.mu.RLock()
	gone := t.gone
	window, next := t.rows.window(p.from, p.within, limit)
	t.mu.RUnlock()
	if gone {
		return errTableNotFound
	}
	p.next = next
	if p.options.EmptyPages && !p.resumed && !p.pinned && len(window) > 0 {
		p.next = window[0]
		return nil
	}
	for i, e := range window {
		if len(p.page) == p.query.top {
			p.next = e
			return nil
		}
		p.look(e.pk)
		if i > 0 && p.crossed(window[i-1], e) {
			return nil
		}
		if p.sas.holds(e.pk, e.rk) && (p.query.filter == nil || p.query.filter.match(e.find)) {
			p.page = append(p.page, e)
		}
	}
	if n := len(window); n > 0 && next != nil {
		p.crossed(window[n-1], next)
	}
	return nil
}

// look counts a row that the query looks at.
func (p *pager) look(partition string) {
	if n := len(p.looked); n > 0 && p.looked[n-1].partition == partition {
		p.looked[n-1].n++
		return
	}
	p.looked = append(p.looked, looked{partition, 1})
}

// crossed ends the page between two rows of different partitions, if pages end there.
func (p *pager) crossed(last, e *entity) bool {
	if !p.options.PartitionPages || last.pk == e.pk {
		return false
	}
	p.next, p.boundary = e, true
	return true
}
