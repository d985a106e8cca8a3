package azsim

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// The Table service, in the order of a request's way: table_route.go finds what is asked for,
// table_entity.go and table_value.go read the entity, table_filter.go the filter, table_batch.go a
// batch; table_write.go and table_query.go carry it out on the tables here, and table_rows.go keeps
// their rows; table_json.go and table_error.go answer.

// TableOptions are behaviours of the Table service that a client must cope
// with but rarely meets. The zero value is the service on an ordinary day.
type TableOptions struct {
	// EmptyPages begins every query that is not confined to one partition with an empty page that
	// carries a continuation token, which the service may do at any time (AZURE.md A2, Query).
	EmptyPages bool

	// PartitionPages ends a page before each row of another partition, with a token without a row key.
	PartitionPages bool

	// ScanLimit is how many rows a query looks at before it ends its page,
	// full or not, in place of the service's five seconds. 0: 10,000.
	ScanLimit int
}

// defaultScanLimit is ten full pages.
const defaultScanLimit = 10_000

// tableStore is the Table service of one account.
type tableStore struct {
	account string
	window  time.Duration // how long a deleted table's name stays taken
	options TableOptions

	mu      sync.RWMutex
	tables  map[string]*table    // by name in lower case: names are case-insensitive; guarded by mu
	deleted map[string]time.Time // names still taken, until when; guarded by mu
}

// newTableStore makes the Table service of an account.
func newTableStore(account string, window time.Duration, o TableOptions) *tableStore {
	if o.ScanLimit <= 0 {
		o.ScanLimit = defaultScanLimit
	}
	return &tableStore{
		account: account,
		window:  window,
		options: o,
		tables:  make(map[string]*table),
		deleted: make(map[string]time.Time),
	}
}

// table is one table. Its entities are immutable, so that readers copy
// pointers under mu and do everything else without it.
type table struct {
	name string // as it was created

	mu   sync.RWMutex
	rows rows // guarded by mu
	// deleted: operations that found the table before see it here; guarded by mu
	gone bool
	acl  []signedIdentifier // guarded by mu
	// timestamps of deleted rows that the clock may not have passed yet; guarded by mu
	graves  map[rowKey]int64
	crowded int // how many graves there are when forget looks next; guarded by mu
}

// checkTableName judges the name of a table to be created.
func checkTableName(name string) *tableError {
	if len(name) < 3 || len(name) > 63 {
		return errNameLength
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return errNameCharacters
		}
	}
	if strings.EqualFold(name, "tables") { // reserved
		return errNameCharacters
	}
	return nil
}

func (s *tableStore) find(name string) *table {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tables[strings.ToLower(name)]
}

func (s *tableStore) create(name string, now time.Time) *tableError {
	key := strings.ToLower(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[key] != nil {
		return errTableExists
	}
	if now.Before(s.deleted[key]) {
		return errTableBeingDeleted
	}
	delete(s.deleted, key)
	s.tables[key] = &table{name: name, graves: make(map[rowKey]int64)}
	return nil
}

func (s *tableStore) drop(name string, now time.Time) *tableError {
	key := strings.ToLower(name)
	s.mu.Lock()
	t := s.tables[key]
	if t != nil {
		delete(s.tables, key)
		if s.window > 0 {
			maps.DeleteFunc(s.deleted, func(_ string, until time.Time) bool { return !now.Before(until) })
			s.deleted[key] = now.Add(s.window)
		}
	}
	s.mu.Unlock()
	if t == nil {
		return errResourceNotFound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone, t.rows, t.acl, t.graves = true, rows{}, nil, nil
	return nil
}

// list returns the tables' names from one on, in order, as they were created.
func (s *tableStore) list(from string) []string {
	s.mu.RLock()
	keys := make([]string, 0, len(s.tables))
	for key := range s.tables {
		if key >= from {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		keys[i] = s.tables[key].name
	}
	s.mu.RUnlock()
	return keys
}

// policies implements backend.
func (s *tableStore) policies(object string) ([]signedIdentifier, bool) {
	t := s.find(object)
	if t == nil {
		return nil, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.acl, !t.gone
}

func (s *tableStore) setPolicies(name string, acl []signedIdentifier) *tableError {
	t := s.find(name)
	if t == nil {
		return errTableNotFound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return errTableNotFound
	}
	t.acl = acl
	return nil
}

// createTable answers Create Table.
func (s *tableStore) createTable(r *request, name string) reply {
	level, e := requestLevel(r)
	if e == nil {
		e = checkTableName(name)
	}
	if e == nil {
		e = s.create(name, r.now)
	}
	if e != nil {
		return e.answer(r)
	}
	address := r.baseURL + "/Tables('" + url.PathEscape(name) + "')"
	if noContent(r) {
		a := reply{status: http.StatusNoContent, header: tableHeader(r)}
		a.header.Set("Location", address)
		a.header.Set("DataServiceId", address)
		return a
	}
	a := s.oneTable(r, level, http.StatusCreated, name)
	a.header.Set("Location", address)
	return a
}

// getTable answers a query for one table by name.
func (s *tableStore) getTable(r *request, name string) reply {
	level, e := requestLevel(r)
	t := s.find(name)
	if e == nil && t == nil {
		e = errResourceNotFound
	}
	if e != nil {
		return e.answer(r)
	}
	return s.oneTable(r, level, http.StatusOK, t.name)
}

func (s *tableStore) oneTable(r *request, level metadata, status int, name string) reply {
	h := tableHeader(r)
	h.Set("Content-Type", contentType(level, spaced))
	b := beginObject(level, r.baseURL+"/$metadata#Tables/@Element")
	b = s.appendTable(b, r, level, name)
	return reply{status: status, header: h, body: append(b, '}')}
}

// deleteTable answers Delete Table.
func (s *tableStore) deleteTable(r *request, name string) reply {
	if e := s.drop(name, r.now); e != nil {
		return e.answer(r)
	}
	return reply{status: http.StatusNoContent, header: tableHeader(r)}
}

// queryTables answers Query Tables.
func (s *tableStore) queryTables(r *request) reply {
	level, e := requestLevel(r)
	if e != nil {
		return e.answer(r)
	}
	q, e := parseQuery(r)
	if e != nil {
		return e.answer(r)
	}
	from, e := readToken(r.query.Get("NextTableName"))
	if e != nil {
		return e.answer(r)
	}
	h := tableHeader(r)
	h.Set("Content-Type", contentType(level, spaced))
	b := beginObject(level, r.baseURL+"/$metadata#Tables")
	b = append(b, `"value":[`...)
	n := 0
	for _, name := range s.list(strings.ToLower(from)) {
		if q.filter != nil && !q.filter.match(tableProperties(name)) {
			continue
		}
		if n == q.top {
			h.Set("X-Ms-Continuation-Nexttablename", pageToken(name))
			break
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = s.appendTable(b, r, level, name)
		b = append(b, '}')
	}
	return reply{status: http.StatusOK, header: h, body: append(b, "]}"...)}
}

// tableProperties is what a filter sees of a table.
func tableProperties(name string) func(string) (value, bool) {
	return func(property string) (value, bool) {
		return value{kind: edmString, text: name}, property == "TableName"
	}
}

func (s *tableStore) appendTable(b []byte, r *request, level metadata, name string) []byte {
	if level == fullMetadata {
		link := "Tables('" + name + "')"
		b = appendMember(b, "odata.type", s.account+".Tables")
		b = appendMember(append(b, ','), "odata.id", r.baseURL+"/"+link)
		b = appendMember(append(b, ','), "odata.editLink", link)
		b = append(b, ',')
	}
	return appendMember(b, "TableName", name)
}
