package azsim

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// tableResource is what kind of thing a path addresses.
type tableResource uint8

const (
	allTables tableResource = iota // /Tables
	oneTable                       // /Tables('t')
	entitySet                      // /t or /t()
	oneEntity                      // /t(PartitionKey='p',RowKey='r')
	batchPath                      // /$batch
)

// tableTarget is a parsed path.
type tableTarget struct {
	resource tableResource
	table    string
	key      rowKey
}

// parseTarget reads the path of a request.
func parseTarget(escaped string) (tableTarget, *tableError) {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return tableTarget{}, errInvalidInput
	}
	name, predicate, parenthesis := strings.Cut(strings.TrimPrefix(path, "/"), "(")
	if parenthesis {
		var closed bool
		if predicate, closed = strings.CutSuffix(predicate, ")"); !closed {
			return tableTarget{}, errInvalidInput
		}
	}
	switch {
	case name == "" || strings.Contains(name, "/"):
		return tableTarget{}, errResourceNotFound
	case name == "$batch" && !parenthesis:
		return tableTarget{resource: batchPath}, nil
	case name == "Tables" && predicate == "":
		return tableTarget{resource: allTables}, nil
	case name == "Tables":
		t, rest, ok := quotedKey(predicate)
		if !ok || rest != "" {
			return tableTarget{}, errInvalidInput
		}
		return tableTarget{resource: oneTable, table: t}, nil
	case predicate == "":
		return tableTarget{resource: entitySet, table: name}, nil
	}
	key, ok := parsePredicate(predicate)
	if !ok {
		return tableTarget{}, errInvalidInput
	}
	return tableTarget{resource: oneEntity, table: name, key: key}, nil
}

// parsePredicate reads PartitionKey='p',RowKey='r', in either order.
func parsePredicate(s string) (k rowKey, ok bool) {
	var seen [2]bool
	for i := range 2 {
		if i == 1 {
			if s, ok = strings.CutPrefix(s, ","); !ok {
				return k, false
			}
		}
		name, rest, found := strings.Cut(s, "=")
		key, rest, ok := quotedKey(rest)
		if !found || !ok {
			return k, false
		}
		switch strings.TrimSpace(name) {
		case "PartitionKey":
			k.pk, seen[0] = key, true
		case "RowKey":
			k.rk, seen[1] = key, true
		default:
			return k, false
		}
		s = rest
	}
	return k, s == "" && seen[0] && seen[1]
}

// quotedKey reads a quoted key at the start of s; two quotes in it are one.
func quotedKey(s string) (key, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, "'")
	if !ok {
		return "", "", false
	}
	for {
		before, after, found := strings.Cut(s, "'")
		if !found {
			return "", "", false
		}
		key += before
		if !strings.HasPrefix(after, "'") {
			return key, after, true
		}
		key += "'"
		s = after[1:]
	}
}

// effectiveMethod is the verb of a request, which a POST may name in
// X-HTTP-Method. MERGE is the service's older name of PATCH.
func effectiveMethod(r *request) (string, *tableError) {
	method := r.method
	if tunnel := r.header.Values("X-Http-Method"); len(tunnel) > 0 {
		switch {
		case r.method != http.MethodPost:
			return "", errMethodNotUsingPost
		case len(tunnel) > 1 || strings.Contains(tunnel[0], ","):
			return "", errMethodCount
		}
		switch method = strings.ToUpper(tunnel[0]); method {
		case http.MethodPut, http.MethodDelete, http.MethodPatch, "MERGE":
		default:
			return "", errMethodValue
		}
	}
	if method == "MERGE" {
		method = http.MethodPatch
	}
	return method, nil
}

// route implements backend. An operation that is recognised but wrong in its details answers with
// the error, and is authorised, counted and throttled like any other.
func (s *tableStore) route(r *request) (*operation, reply) {
	t, e := parseTarget(r.path)
	if e != nil {
		return nil, e.answer(r)
	}
	method, e := effectiveMethod(r)
	if e != nil {
		return nil, e.answer(r)
	}
	if r.query.Get("comp") == "acl" && t.resource == entitySet {
		return s.routeACL(r, t, method)
	}
	switch t.resource {
	case allTables, oneTable:
		return s.routeTables(r, t, method)
	case batchPath:
		if method == http.MethodPost {
			return s.routeBatch(r), reply{}
		}
	case entitySet, oneEntity:
		if method == http.MethodGet {
			return s.routeQuery(r, t), reply{}
		}
		if changes(t.resource, method) {
			return s.routeChange(r, t, method), reply{}
		}
	}
	return nil, errMethodNotAllowed.answer(r)
}

// changes tells whether a verb changes an entity there.
func changes(on tableResource, method string) bool {
	switch method {
	case http.MethodPost:
		return on == entitySet
	case http.MethodPut, http.MethodPatch, http.MethodDelete:
		return on == oneEntity
	}
	return false
}

func (s *tableStore) routeTables(r *request, t tableTarget, method string) (*operation, reply) {
	op := &operation{object: t.table, cost: 1, resource: 'c'}
	switch {
	case t.resource == allTables && method == http.MethodGet:
		return op.is("QueryTables", "", "l", func() reply { return s.queryTables(r) })
	case t.resource == allTables && method == http.MethodPost:
		name, e := tableToCreate(r)
		op.name, op.accountPermission, op.object = "CreateTable", "c,w", name
		op.run = func() reply {
			if e != nil {
				return e.answer(r)
			}
			return s.createTable(r, name)
		}
	case t.resource == oneTable && method == http.MethodGet:
		return op.is("QueryTables", "", "l", func() reply { return s.getTable(r, t.table) })
	case t.resource == oneTable && method == http.MethodDelete:
		return op.is("DeleteTable", "", "d", func() reply { return s.deleteTable(r, t.table) })
	default:
		return nil, errMethodNotAllowed.answer(r)
	}
	return op, reply{}
}

// tableToCreate reads the body of Create Table.
func tableToCreate(r *request) (string, *tableError) {
	if e := jsonBody(r); e != nil {
		return "", e
	}
	d := json.NewDecoder(strings.NewReader(string(r.body)))
	var body struct{ TableName *string }
	if err := d.Decode(&body); err != nil {
		return "", errInvalidInput
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errInvalidInput
	}
	if body.TableName == nil {
		return "", errPropertiesNeed
	}
	return *body.TableName, nil
}

// jsonBody checks that the body says it is JSON.
func jsonBody(r *request) *tableError {
	media, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	switch {
	case err == nil && media == "application/json":
		if !r.sinceVersion(firstJSON) {
			return errJSONFormat
		}
		return nil
	case err == nil && media == "application/atom+xml":
		return errAtomFormat
	}
	return errMediaType
}

func (s *tableStore) routeChange(r *request, t tableTarget, method string) *operation {
	c, e := parseChange(r, t, method)
	op := &operation{name: verbs[c.verb].name, object: t.table, cost: 1, resource: 'o'}
	op.permission = verbs[c.verb].permission
	op.accountPermission = op.permission
	op.partition = partitionName(t.table, c.key.pk)
	op.keys = [][2]string{{c.key.pk, c.key.rk}}
	op.run = func() reply {
		if e != nil {
			return e.answer(r)
		}
		return s.changeEntity(r, c)
	}
	return op
}

// partitionName is what the limit of one partition is counted on.
func partitionName(table, pk string) string { return strings.ToLower(table) + "\x00" + pk }

func (s *tableStore) routeQuery(r *request, t tableTarget) *operation {
	op := &operation{name: "QueryEntities", object: t.table, cost: 1, permission: "r", resource: 'o'}
	op.accountPermission = op.permission
	if t.resource == oneEntity {
		op.name = "GetEntity"
		op.partition = partitionName(t.table, t.key.pk)
		op.keys = [][2]string{{t.key.pk, t.key.rk}}
		op.run = func() reply { return s.getEntity(r, t, spaced) }
		return op
	}
	q, e := parseQuery(r)
	if e == nil && q.filter != nil {
		if pk, ok := q.filter.bounds().point(); ok {
			op.partition = partitionName(t.table, pk)
		}
	}
	op.run = func() reply {
		if e != nil {
			return e.answer(r)
		}
		return s.queryEntities(r, t.table, q, spaced)
	}
	return op
}

// routeACL is for Get and Set Table ACL, which no SAS allows.
func (s *tableStore) routeACL(r *request, t tableTarget, method string) (*operation, reply) {
	op := &operation{object: t.table, cost: 1, resource: 'c'}
	switch method {
	case http.MethodGet, http.MethodHead:
		return op.is("GetTableACL", "", "", func() reply { return s.getACL(r, t.table) })
	case http.MethodPut:
		return op.is("SetTableACL", "", "", func() reply { return s.setACL(r, t.table) })
	}
	return nil, errMethodNotAllowed.answer(r)
}

func (s *tableStore) getACL(r *request, name string) reply {
	acl, ok := s.policies(name)
	if !ok {
		return errTableNotFound.answer(r)
	}
	return reply{status: http.StatusOK, header: xmlHeader(), body: renderACL(acl)}
}

func (s *tableStore) setACL(r *request, name string) reply {
	acl, err := parseACL(r.body, "raud")
	if err != nil { // one answer for every fault in it, as recorded
		return errInvalidXML.answer(r)
	}
	if e := s.setPolicies(name, acl); e != nil {
		return e.answer(r)
	}
	return reply{status: http.StatusNoContent}
}
