package azsim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// maxListed is the most queues of one page, even if more are asked for.
const maxListed = 5000

// listQueues: learn.microsoft.com/rest/api/storageservices/list-queues1.
func (s *queueStore) listQueues(r *request) reply {
	limit, rep := intParameter(r, "maxresults", maxListed, 1, 1<<31-1)
	if rep != nil {
		return *rep
	}
	prefix, marker := r.query.Get("prefix"), r.query.Get("marker")
	from := ""
	if marker != "" { // "/account/name", as the real service's
		account, name, ok := strings.Cut(strings.TrimPrefix(marker, "/"), "/")
		if !ok || account != s.account.name {
			return badParameter(r, "marker", marker, "")
		}
		from = name
	}
	names := s.names(prefix, from)
	next := ""
	if n := int(min(limit, maxListed)); len(names) > n {
		next, names = "/"+s.account.name+"/"+names[n], names[:n]
	}
	b := []byte(xmlProlog + `<EnumerationResults ServiceEndpoint="`)
	b = appendXMLAttr(b, legalXML(r.baseURL)+"/")
	b = append(b, `">`...)
	if prefix != "" {
		b = appendElement(b, "Prefix", legalXML(prefix))
	}
	if marker != "" {
		b = appendElement(b, "Marker", legalXML(marker))
	}
	if r.query.Has("maxresults") {
		b = appendElement(b, "MaxResults", itoa(limit))
	}
	b = s.appendQueues(b, names,
		slices.Contains(strings.Split(r.query.Get("include"), ","), "metadata"))
	b = appendElement(b, "NextMarker", next)
	b = append(b, "</EnumerationResults>"...)
	return reply{status: http.StatusOK, header: xmlNoCache(), body: b}
}

// names lists the living queues with a prefix, sorted, from a name on.
func (s *queueStore) names(prefix, from string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for name := range s.queues {
		if strings.HasPrefix(name, prefix) && name >= from {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *queueStore) appendQueues(b []byte, names []string, metadata bool) []byte {
	if len(names) == 0 {
		return append(b, "<Queues />"...)
	}
	b = append(b, "<Queues>"...)
	for _, name := range names {
		b = append(b, "<Queue>"...)
		b = appendElement(b, "Name", name)
		if metadata {
			b = s.appendMetadata(b, name)
		}
		b = append(b, "</Queue>"...)
	}
	return append(b, "</Queues>"...)
}

func (s *queueStore) appendMetadata(b []byte, name string) []byte {
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q == nil { // deleted meanwhile
		return b
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.metadata) == 0 {
		return append(b, "<Metadata />"...)
	}
	b = append(b, "<Metadata>"...)
	for _, k := range slices.Sorted(maps.Keys(q.metadata)) {
		b = appendElement(b, k, legalXML(q.metadata[k]))
	}
	return append(b, "</Metadata>"...)
}
