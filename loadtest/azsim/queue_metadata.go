package azsim

import (
	"net/http"
	"strings"
)

// maxMetadata is the most bytes of names and values together.
const maxMetadata = 8 << 10

// getMetadata: learn.microsoft.com/rest/api/storageservices/get-queue-metadata,
// which the SDKs call GetProperties. The approximate count includes messages
// that are invisible (AZURE.md Q44) and is never too low.
func (s *queueStore) getMetadata(r *request, name string) reply {
	return s.with(r, name, func(q *queue) reply {
		h := http.Header{
			"X-Ms-Approximate-Messages-Count": {itoa(int64(q.messages.len()))},
			"Cache-Control":                   {"no-cache"},
		}
		for k, v := range q.metadata {
			h[http.CanonicalHeaderKey("x-ms-meta-"+k)] = []string{v}
		}
		return reply{status: http.StatusOK, header: h}
	})
}

// setMetadata: learn.microsoft.com/rest/api/storageservices/set-queue-metadata.
// It replaces everything.
func (s *queueStore) setMetadata(r *request, name string) reply {
	metadata, rep := readMetadata(r)
	if rep != nil {
		return *rep
	}
	return s.with(r, name, func(q *queue) reply {
		q.metadata = metadata
		return reply{status: http.StatusNoContent}
	})
}

// readMetadata reads the x-ms-meta- headers. Names are kept in small letters:
// HTTP compares them without regard to case.
func readMetadata(r *request) (map[string]string, *reply) {
	const prefix = "X-Ms-Meta-"
	m := make(map[string]string)
	size := 0
	for k, v := range r.header {
		if !strings.HasPrefix(k, prefix) {
			continue
		}
		name := strings.ToLower(k[len(prefix):])
		value := strings.Join(v, ",")
		switch size += len(name) + len(value); {
		case name == "":
			return nil, new(r.fail(http.StatusBadRequest, "EmptyMetadataKey", ""))
		case !identifier(name):
			return nil, new(r.fail(http.StatusBadRequest, "InvalidMetadata", ""))
		case size > maxMetadata:
			return nil, new(r.fail(http.StatusBadRequest, "MetadataTooLarge", ""))
		}
		m[name] = value
	}
	return m, nil
}

// identifier reports whether s is a C# identifier in ASCII, which names of metadata have to be.
func identifier(s string) bool {
	for i, c := range []byte(s) {
		switch {
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}
