package azsim

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxChanges is how many changes a batch may have.
const maxChanges = 100

// batch is a parsed entity group transaction, or the one query that a batch may hold instead.
type batch struct {
	changes []*change
	parts   []*request // the requests of the changes
	query   *request
	target  tableTarget // of query
	extra   int         // change sets after the first, which are refused

	malformed *tableError // the batch as a whole cannot be read
	refused   *tableError // a change is wrong in itself; index says which
}

// parseBatch reads the body of a batch. It keeps no more than maxChanges parts, even if the body
// holds more.
func parseBatch(r *request) *batch {
	b := &batch{}
	if len(r.body) > maxTableBody {
		b.malformed = errBodyTooLarge
		return b
	}
	sections, ok := multipartOf(r.header.Get("Content-Type"), r.body)
	if !ok {
		b.malformed = errInvalidInput
		return b
	}
	for {
		p, err := sections.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || !b.section(r, p) {
			b.malformed = errInvalidInput
			return b
		}
	}
	if len(b.changes) == 0 && b.query == nil && b.refused == nil {
		b.malformed = errInvalidInput
	}
	return b
}

// multipartOf opens a multipart/mixed body.
func multipartOf(contentType string, body []byte) (*multipart.Reader, bool) {
	media, params, err := mime.ParseMediaType(contentType)
	// RFC 2046
	if err != nil || media != "multipart/mixed" || params["boundary"] == "" ||
		len(params["boundary"]) > 70 {
		return nil, false
	}
	return multipart.NewReader(bytes.NewReader(body), params["boundary"]), true
}

// section reads one part of a batch: a change set or a query. They do not mix.
func (b *batch) section(r *request, p *multipart.Part) bool {
	body, err := io.ReadAll(p) // at most the request's body
	if err != nil {
		return false
	}
	media, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type"))
	if media == "multipart/mixed" {
		switch {
		case b.query != nil:
			return false
		case b.parts != nil || b.refused != nil:
			b.extra++
			return b.extra < maxChanges
		}
		return b.changeSet(r, p.Header.Get("Content-Type"), body)
	}
	if media != "application/http" || b.query != nil || b.parts != nil || b.refused != nil {
		return false
	}
	sub, ok := partRequest(r, body)
	if !ok || sub.method != http.MethodGet {
		return false
	}
	t, e := parseTarget(sub.path)
	if e != nil || t.resource != entitySet && t.resource != oneEntity {
		return false
	}
	b.query, b.target = sub, t
	return true
}

// changeSet reads the parts of a change set. The first change that is wrong in
// itself is what the batch is refused for; nothing after it is looked at.
func (b *batch) changeSet(r *request, contentType string, body []byte) bool {
	parts, ok := multipartOf(contentType, body)
	if !ok {
		return false
	}
	rows := make(map[rowKey]bool)
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return len(b.parts) > 0
		}
		if err != nil {
			return false
		}
		if len(b.parts) == maxChanges {
			b.refused = errBatchTooLong.at(maxChanges - 1) // as the service counts it
			return true
		}
		text, err := io.ReadAll(p)
		if err != nil {
			return false
		}
		sub, ok := partRequest(r, text)
		if !ok {
			return false
		}
		c, e := batchChange(sub)
		if e == nil {
			e = b.fits(c, rows)
		}
		b.parts = append(b.parts, sub)
		if c != nil {
			b.changes = append(b.changes, c)
		}
		if e != nil {
			b.refused = e.at(len(b.parts) - 1)
			return true
		}
	}
}

// batchChange reads the change of one part.
func batchChange(sub *request) (*change, *tableError) {
	t, e := parseTarget(sub.path)
	if e != nil {
		return nil, e
	}
	method, e := effectiveMethod(sub)
	if e != nil {
		return nil, e
	}
	if !changes(t.resource, method) {
		return nil, errInvalidInput
	}
	return parseChange(sub, t, method)
}

// fits holds a change to the rules of a batch: one table, one partition, each row once.
func (b *batch) fits(c *change, rows map[rowKey]bool) *tableError {
	if len(b.changes) > 0 {
		first := b.changes[0]
		if !strings.EqualFold(first.table, c.table) || first.key.pk != c.key.pk {
			return errBatchPartitions
		}
	}
	if rows[c.key] {
		return errDuplicateRow(c.key.rk)
	}
	rows[c.key] = true
	return nil
}

// partRequest reads the HTTP request that a part of a batch holds.
func partRequest(r *request, text []byte) (*request, bool) {
	in := textproto.NewReader(bufio.NewReader(bytes.NewReader(text)))
	line, err := in.ReadLine()
	if err != nil {
		return nil, false
	}
	method, rest, ok := strings.Cut(line, " ")
	end := strings.LastIndexByte(rest, ' ')
	if !ok || end < 0 || !strings.HasPrefix(rest[end+1:], "HTTP/") {
		return nil, false
	}
	address, err := url.Parse(rest[:end])
	if err != nil {
		return nil, false
	}
	header, err := in.ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) { // the blank line may be missing if the body is
		return nil, false
	}
	body, err := io.ReadAll(in.R)
	if err != nil {
		return nil, false
	}
	if n, err := strconv.Atoi(header.Get("Content-Length")); err == nil && 0 <= n && n < len(body) {
		body = body[:n]
	}
	sub := *r
	sub.method = method
	sub.path = "/" + strings.TrimPrefix(address.EscapedPath(), "/")
	sub.query = address.Query()
	sub.header = http.Header(header)
	sub.body = body
	// The parts repeat the whole address, with the account where it stands in the path.
	if base, err := url.Parse(r.baseURL); err == nil && base.Path != "" {
		if p, ok := strings.CutPrefix(sub.path, base.EscapedPath()+"/"); ok {
			sub.path = "/" + p
		}
	}
	return &sub, true
}

func (s *tableStore) routeBatch(r *request) *operation {
	b := parseBatch(r)
	op := &operation{name: "Batch", cost: max(len(b.changes), 1), resource: 'o'}
	op.run = func() reply { return s.runBatch(r, b) }
	switch {
	case b.query != nil:
		op.object, op.permission = b.target.table, "r"
		if b.target.resource == oneEntity {
			op.partition = partitionName(b.target.table, b.target.key.pk)
			op.keys = [][2]string{{b.target.key.pk, b.target.key.rk}}
		}
	case len(b.changes) > 0:
		op.object = b.changes[0].table
		op.partition = partitionName(op.object, b.changes[0].key.pk)
		for _, c := range b.changes {
			op.keys = append(op.keys, [2]string{c.key.pk, c.key.rk})
			for _, letter := range verbs[c.verb].permission {
				if !strings.ContainsRune(op.permission, letter) {
					op.permission += string(letter)
				}
			}
		}
	}
	op.permission = cmp.Or(op.permission, "r,a,u,d") // it will be refused; the reason is open
	op.accountPermission = op.permission
	return op
}

// runBatch carries a batch out. A batch that can be read is always answered 202: with one part for
// each change, or with one part only, which says which change failed and why (AZURE.md A4, $batch).
func (s *tableStore) runBatch(r *request, b *batch) reply {
	if b.malformed != nil {
		return b.malformed.answer(r)
	}
	for _, sub := range b.parts {
		sub.now = r.now
	}
	id := drawHash(r.id)
	out := batchWriter{boundary: "batchresponse_" + drawGUID(id).String()}
	var seen []looked
	if b.query != nil {
		b.query.now, b.query.keyRange = r.now, r.keyRange
		a := s.runQueryPart(b.query, b.target)
		seen = a.looked
		out.part(a, "3.0;")
	} else {
		set := batchWriter{boundary: "changesetresponse_" + drawGUID(id, 1).String()}
		s.runChanges(b, &set)
		out.changeSet(&set)
	}
	for range b.extra {
		out.part(batchRefusal(r, errInvalidInput), "3.0;")
	}
	h := http.Header{"Cache-Control": {"no-cache"}, "X-Content-Type-Options": {"nosniff"}}
	h.Set("Content-Type", "multipart/mixed; boundary="+out.boundary)
	return reply{status: http.StatusAccepted, header: h, body: out.close(), looked: seen}
}

func (s *tableStore) runQueryPart(sub *request, t tableTarget) reply {
	if t.resource == oneEntity {
		return s.getEntity(sub, t, tight)
	}
	q, e := parseQuery(sub)
	if e != nil {
		return batchRefusal(sub, e)
	}
	return s.queryEntities(sub, t.table, q, tight)
}

// runChanges makes the changes and answers them.
func (s *tableStore) runChanges(b *batch, out *batchWriter) {
	levels := make([]metadata, len(b.parts))
	e := b.refused
	for i, sub := range b.parts {
		if e == nil && b.changes[i].verb == verbInsert && !noContent(sub) {
			if levels[i], e = requestLevel(sub); e != nil {
				e = e.at(i)
			}
		}
	}
	var (
		t    *table
		made []*entity
	)
	if e == nil {
		if t = s.find(b.changes[0].table); t == nil {
			e = errTableNotFound
		} else {
			made, e = t.write(b.changes, b.parts[0].now)
		}
	}
	if e != nil {
		i := max(e.index, 0)
		out.part(batchRefusal(b.parts[i], e.at(i)), "3.0;")
		return
	}
	for i, c := range b.changes {
		version := "1.0;"
		if c.verb == verbInsert {
			version = "3.0;"
		}
		out.part(s.changed(b.parts[i], t, c, made[i], levels[i], tight), version)
	}
}

// batchRefusal is a refusal as a part of a batch answers it.
func batchRefusal(sub *request, e *tableError) reply {
	a := e.answer(sub)
	level, _ := requestLevel(sub) // the answer must be given in some format
	a.header.Set("Content-Type", contentType(level, tight))
	return a
}

// batchWriter writes the answer of a batch or of its change set.
type batchWriter struct {
	boundary string
	b        bytes.Buffer
}

// partHeaders are the headers of an answer within a batch, in the order and
// spelling of the recordings.
var partHeaders = []string{
	"X-Content-Type-Options", "Cache-Control", "Preference-Applied", "DataServiceVersion",
	"Content-Type", "Location", "DataServiceId", "ETag", "x-ms-continuation-NextPartitionKey",
	"x-ms-continuation-NextRowKey",
}

func (w *batchWriter) part(a reply, version string) {
	a.header.Set("DataServiceVersion", version)
	w.b.WriteString("--" + w.boundary +
		"\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n")
	w.b.WriteString("HTTP/1.1 " + strconv.Itoa(a.status) + " " + http.StatusText(a.status) + "\r\n")
	for _, name := range partHeaders {
		if v := a.header.Get(name); v != "" {
			w.b.WriteString(name + ": " + v + "\r\n")
		}
	}
	w.b.WriteString("\r\n")
	w.b.Write(a.body)
	w.b.WriteString("\r\n")
}

func (w *batchWriter) changeSet(set *batchWriter) {
	w.b.WriteString("--" + w.boundary + "\r\nContent-Type: multipart/mixed; boundary=" + set.boundary +
		"\r\n\r\n")
	w.b.Write(set.close())
}

func (w *batchWriter) close() []byte {
	w.b.WriteString("--" + w.boundary + "--\r\n")
	return slices.Clip(w.b.Bytes())
}
