package azsim

import (
	"cmp"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// metadata is how much of OData's control information an answer carries.
type metadata uint8

const (
	minimalMetadata metadata = iota
	noMetadata
	fullMetadata
)

var metadataNames = [...]string{
	minimalMetadata: "minimalmetadata", noMetadata: "nometadata", fullMetadata: "fullmetadata",
}

// The parameters of a Content-Type are written with spaces in the header of an
// answer and without in the parts of a batch, both as recorded (AZURE.md A4).
const (
	spaced = "; "
	tight  = ";"
)

func contentType(level metadata, separator string) string {
	return "application/json" + separator + "odata=" + metadataNames[level] +
		separator + "streaming=true" + separator + "charset=utf-8"
}

// firstJSON is the service version that learnt JSON (DOC: payload format).
const firstJSON = "2013-08-15"

// requestLevel reads the format that a request wants its answer in: $format, else Accept. Without
// either the service would answer in Atom, which it no longer speaks.
func requestLevel(r *request) (metadata, *tableError) {
	if !r.sinceVersion(firstJSON) {
		return minimalMetadata, errJSONFormat
	}
	accept := strings.Join(r.header.Values("Accept"), ",")
	if f := r.query.Get("$format"); f != "" {
		accept = f
	}
	refused := errAtomFormat
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		switch media {
		case "application/json", "json":
			name := cmp.Or(strings.ToLower(params["odata"]), metadataNames[minimalMetadata])
			if level := slices.Index(metadataNames[:], name); level >= 0 {
				return metadata(level), nil
			}
			refused = errMediaType
		case "*/*", "application/*":
			return minimalMetadata, nil
		case "application/atom+xml":
		default:
			refused = errMediaType
		}
	}
	return minimalMetadata, refused
}

// beginObject begins an answer, with what describes it if the level has that.
func beginObject(level metadata, context string) []byte {
	b := []byte{'{'}
	if level != noMetadata {
		b = append(appendMember(b, "odata.metadata", context), ',')
	}
	return b
}

// tableHeader is what every OData answer carries.
func tableHeader(r *request) http.Header {
	h := http.Header{"Cache-Control": {"no-cache"}, "X-Content-Type-Options": {"nosniff"}}
	if r.method == http.MethodPost { // only insertions have a content to prefer
		if p := r.header.Get("Prefer"); p == "return-content" || p == "return-no-content" {
			h.Set("Preference-Applied", p)
		}
	}
	return h
}

func noContent(r *request) bool { return r.header.Get("Prefer") == "return-no-content" }

// formatETag makes the ETag of a timestamp (AZURE.md A4).
func formatETag(ticks int64) string {
	return `W/"datetime'` + strings.ReplaceAll(formatTicks(ticks), ":", "%3A") + `'"`
}

// parseETag reads an ETag back.
func parseETag(s string) (int64, bool) {
	s, begins := strings.CutPrefix(s, `W/"datetime'`)
	s, ends := strings.CutSuffix(s, `'"`)
	s, err := url.PathUnescape(s)
	if !begins || !ends || err != nil {
		return 0, false
	}
	return parseDateTime(s)
}

// entityLink is the address of an entity within the service.
func entityLink(table string, k rowKey) string {
	return table + "(PartitionKey='" + escapeKey(k.pk) + "',RowKey='" + escapeKey(k.rk) + "')"
}

func escapeKey(key string) string { return url.PathEscape(strings.ReplaceAll(key, "'", "''")) }

func appendMember(b []byte, name, text string) []byte {
	b = appendString(b, name)
	b = append(b, ':')
	return appendString(b, text)
}

// appendEntity writes an entity. context is its odata.metadata, "" in a list. selected names the
// wanted properties, nil for all; a property that the entity lacks is null.
func (s *tableStore) appendEntity(
	b []byte, r *request, level metadata, t *table, e *entity, context string, selected []string,
) []byte {
	b = append(b, '{')
	empty := len(b)
	comma := func() {
		if len(b) > empty {
			b = append(b, ',')
		}
	}
	member := func(name, text string) {
		comma()
		b = appendMember(b, name, text)
	}
	if context != "" && level != noMetadata {
		member("odata.metadata", context)
	}
	link := entityLink(t.name, rowKey{e.pk, e.rk})
	if level == fullMetadata {
		member("odata.type", s.account+"."+t.name)
		member("odata.id", r.baseURL+"/"+link)
	}
	if level != noMetadata {
		member("odata.etag", formatETag(e.ticks))
	}
	if level == fullMetadata {
		member("odata.editLink", link)
	}
	put := func(name string, v value, annotated bool) {
		if annotated && level != noMetadata {
			member(name+"@odata.type", edmNames[v.kind])
		}
		comma()
		b = appendString(b, name)
		b = append(b, ':')
		if r.mischief.damage && v.kind == edmBinary && v.text != "" {
			v.text = v.text[:len(v.text)-1]
		}
		b = v.appendJSON(b)
	}
	if selected != nil {
		for _, name := range selected {
			if v, ok := e.find(name); ok {
				put(name, v, v.annotated() && (name != "Timestamp" || level == fullMetadata))
			} else {
				comma()
				b = appendString(b, name)
				b = append(b, ":null"...)
			}
		}
		return append(b, '}')
	}
	member("PartitionKey", e.pk)
	member("RowKey", e.rk)
	put("Timestamp", value{kind: edmDateTime, num: e.ticks}, level == fullMetadata)
	for _, p := range e.properties {
		put(p.name, p.value, p.value.annotated())
	}
	return append(b, '}')
}
