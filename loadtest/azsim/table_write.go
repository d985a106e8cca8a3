package azsim

import (
	"maps"
	"net/http"
	"strings"
	"time"
)

// verb is what a change does to its row.
type verb uint8

const (
	verbInsert verb = iota
	verbReplace
	verbMerge
	verbInsertOrReplace
	verbInsertOrMerge
	verbDelete
)

// verbs names the operations as the REST reference does, with the letters that
// a SAS must grant: an upsert needs both add and update.
var verbs = [...]struct{ name, permission string }{
	verbInsert:          {"InsertEntity", "a"},
	verbReplace:         {"UpdateEntity", "u"},
	verbMerge:           {"MergeEntity", "u"},
	verbInsertOrReplace: {"InsertOrReplaceEntity", "au"},
	verbInsertOrMerge:   {"InsertOrMergeEntity", "au"},
	verbDelete:          {"DeleteEntity", "d"},
}

// change is one write of one row.
type change struct {
	verb    verb
	table   string
	key     rowKey
	payload *payload // nil for a deletion
	any     bool     // If-Match: *
	ticks   int64    // If-Match: the timestamp it names
}

// conditional tells whether the change is only for a row that exists.
func (c *change) conditional() bool {
	return c.verb == verbReplace || c.verb == verbMerge || c.verb == verbDelete
}

// parseChange reads the change that a request to a table or an entity asks for.
func parseChange(r *request, t tableTarget, method string) (*change, *tableError) {
	c := &change{table: t.table, key: t.key}
	match, has := r.header["If-Match"]
	_, none := r.header["If-None-Match"]
	if none {
		if has {
			return c, errBothConditions
		}
		return c, errNoneMatch(method)
	}
	switch method {
	case http.MethodPost:
		c.verb = verbInsert
	case http.MethodDelete:
		if c.verb = verbDelete; !has {
			return c, errMissingHeader
		}
	case http.MethodPut:
		if c.verb = verbInsertOrReplace; has {
			c.verb = verbReplace
		}
	default: // PATCH and MERGE
		if c.verb = verbInsertOrMerge; has {
			c.verb = verbMerge
		}
	}
	if c.conditional() {
		text := strings.Join(match, ",")
		var ok bool
		if c.any = text == "*"; !c.any {
			if c.ticks, ok = parseETag(text); !ok {
				return c, errETag(text)
			}
		}
	}
	if c.verb == verbDelete {
		return c, checkKeys(c.key)
	}
	return c, c.parseBody(r)
}

func checkKeys(k rowKey) *tableError {
	if e := checkKey("PartitionKey", k.pk); e != nil {
		return e
	}
	return checkKey("RowKey", k.rk)
}

// parseBody reads the entity of a change. The keys of an insertion come from the body; those of the
// others from the address, which the body may repeat but not contradict (AZURE.md T54).
func (c *change) parseBody(r *request) *tableError {
	if e := jsonBody(r); e != nil {
		return e
	}
	p, e := parsePayload(r.body)
	if e != nil {
		return e
	}
	c.payload = p
	if c.verb == verbInsert {
		if p.pk == nil || p.rk == nil {
			return errPropertiesNeed
		}
		c.key = rowKey{*p.pk, *p.rk}
		return nil
	}
	if p.pk != nil && *p.pk != c.key.pk || p.rk != nil && *p.rk != c.key.rk {
		return errInvalidInput
	}
	return checkKeys(c.key)
}

// result is what the change makes of the row's current entity, which may be
// nil; after a removal it is nil. It changes nothing by itself.
func (c *change) result(current *entity) (*entity, *tableError) {
	switch {
	case c.verb == verbInsert && current != nil:
		return nil, errEntityExists
	case c.conditional() && current == nil:
		return nil, errResourceNotFound
	case c.conditional() && !c.any && c.ticks != current.ticks:
		return nil, errConditionNotMet
	case c.verb == verbDelete:
		return nil, nil
	}
	e := &entity{pk: c.key.pk, rk: c.key.rk, properties: c.payload.properties}
	if current != nil && (c.verb == verbMerge || c.verb == verbInsertOrMerge) {
		e.properties = merged(current.properties, c.payload.properties)
	}
	return e, e.check()
}

// write applies changes to distinct rows, all of them or none, and returns the
// entities they make, nil for removals. The error says which change failed.
func (t *table) write(changes []*change, now time.Time) ([]*entity, *tableError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil, errTableNotFound
	}
	made := make([]*entity, len(changes))
	ticks := toTicks(now)
	for i, c := range changes {
		current := t.rows.get(c.key)
		e, err := c.result(current)
		if err != nil {
			return nil, err.at(i)
		}
		made[i] = e
		// A row's timestamp only ever grows, also across a removal and if the clock is set back: an ETag
		// seen once never comes back.
		if current != nil {
			ticks = max(ticks, current.ticks+1)
		}
		if last, ok := t.graves[c.key]; ok {
			ticks = max(ticks, last+1)
		}
	}
	t.forget(toTicks(now))
	for i, c := range changes {
		if made[i] == nil {
			t.rows.remove(c.key)
			t.graves[c.key] = ticks
			continue
		}
		made[i].ticks = ticks
		t.rows.put(made[i])
		delete(t.graves, c.key)
	}
	return made, nil
}

// minGraves is how many removed rows are remembered at least before forget looks through them.
const minGraves = 1024

// forget drops the memory of removed rows once no new timestamp can equal theirs. While the clock
// stands still none can be dropped; doubling the number at which it looks again keeps the cost of a
// removal constant.
func (t *table) forget(now int64) {
	if len(t.graves) < max(t.crowded, minGraves) {
		return
	}
	maps.DeleteFunc(t.graves, func(_ rowKey, ticks int64) bool { return ticks < now })
	t.crowded = 2 * len(t.graves)
}

// changeEntity answers the operation of one change.
func (s *tableStore) changeEntity(r *request, c *change) reply {
	level := minimalMetadata
	if c.verb == verbInsert && !noContent(r) {
		var e *tableError
		if level, e = requestLevel(r); e != nil {
			return e.answer(r)
		}
	}
	t := s.find(c.table)
	if t == nil {
		return errTableNotFound.answer(r)
	}
	made, e := t.write([]*change{c}, r.now)
	if e != nil {
		return e.at(noIndex).answer(r)
	}
	return s.changed(r, t, c, made[0], level, spaced)
}

// changed is the answer to a change that was made.
func (s *tableStore) changed(
	r *request, t *table, c *change, e *entity, level metadata, separator string,
) reply {
	a := reply{status: http.StatusNoContent, header: tableHeader(r)}
	if e == nil {
		return a
	}
	if c.verb == verbInsert {
		address := r.baseURL + "/" + entityLink(t.name, c.key)
		a.header.Set("Location", address)
		if noContent(r) {
			a.header.Set("DataServiceId", address)
		} else {
			a.status = http.StatusCreated
			a.header.Set("Content-Type", contentType(level, separator))
			a.body = s.appendEntity(nil, r, level, t, e, r.baseURL+"/$metadata#"+t.name+"/@Element", nil)
		}
	}
	a.header.Set("ETag", formatETag(e.ticks))
	return a
}
