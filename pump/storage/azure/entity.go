package azure

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/pump/storage"
)

// validRowKey reports whether key may be a row's key; see storage.Table. Quotes, slashes and the
// like are escaped differently for single operations, in batches and by the service.
func validRowKey(s string) bool {
	return within(s, 1, 512, func(c byte) bool {
		return letter(c) || digit(c) || c == '_' || c == '.' || c == '~' || c == '-'
	})
}

var errRowKey = errors.New(
	"partition and row keys are 1 to 512 characters of A-Z, a-z, 0-9, _ . ~ -",
)

// validProperty keeps to names that every client of the service can read. The
// dot and the @ of annotations are not among them.
func validProperty(s string) bool {
	switch s {
	case "PartitionKey", "RowKey", "Timestamp":
		return false
	}
	return within(s, 1, 255, func(c byte) bool {
		return letter(c) || digit(c) || c == '_'
	}) && !digit(s[0])
}

// The service keeps times from this one on, in steps of 100 ns.
var firstTime = time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC)

const timeFormat = "2006-01-02T15:04:05.9999999Z"

// entityJSON writes a row. The SDK takes JSON apart into float64 and puts it
// together again, on both ways (azsim/AZURE.md D11), so rows do not pass through it.
// The same row gives the same bytes, so that a retry can send them again.
func entityJSON(e storage.Entity) ([]byte, error) {
	doc := append(make([]byte, 0, 1024), placeholder(e)...)
	doc = doc[:len(doc)-1]
	names := slices.AppendSeq(make([]string, 0, len(e.Properties)), maps.Keys(e.Properties))
	slices.Sort(names)
	for _, name := range names {
		if !validProperty(name) {
			return nil, fmt.Errorf("property %.40q: a name is a letter or _, then letters, digits and _, "+
				"and not one of the service's own", name)
		}
		doc = append(append(append(doc, `,"`...), name...), `":`...)
		kind := ""
		switch v := e.Properties[name].(type) {
		case string:
			if !utf8.ValidString(v) {
				return nil, fmt.Errorf("property %s: not UTF-8; use []byte", name)
			}
			quoted, _ := json.Marshal(v) // of a string; it cannot fail
			doc = append(doc, quoted...)
		case bool:
			doc = strconv.AppendBool(doc, v)
		case int64:
			doc, kind = append(strconv.AppendInt(append(doc, '"'), v, 10), '"'), "Edm.Int64"
		case []byte:
			doc, kind = append(base64.StdEncoding.AppendEncode(append(doc, '"'), v), '"'), "Edm.Binary"
		case float64:
			doc, kind = append(doc, doubleJSON(v)...), "Edm.Double"
		case time.Time:
			if v.Before(firstTime) || v.Year() > 9999 {
				return nil, fmt.Errorf("property %s: the service keeps times of the years 1601 to 9999", name)
			}
			doc, kind = append(v.UTC().AppendFormat(append(doc, '"'), timeFormat), '"'), "Edm.DateTime"
		default:
			return nil,
				fmt.Errorf("property %s: %T; the types are string, []byte, int64, bool, float64 and time.Time",
					name, v)
		}
		if kind != "" {
			doc = append(append(append(doc, `,"`...), name...), `@odata.type":"`...)
			doc = append(append(doc, kind...), '"')
		}
	}
	return append(doc, '}'), nil
}

// doubleJSON keeps a point or exponent in every double, so that one with an
// integral value is not read back as an integer where the type is not sent along.
func doubleJSON(v float64) string {
	switch {
	case math.IsNaN(v):
		return `"NaN"`
	case math.IsInf(v, 1):
		return `"Infinity"`
	case math.IsInf(v, -1):
		return `"-Infinity"`
	}
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// readEntity reads a row. etag is what the answer's header says, empty for the rows of a query,
// which carry their own. For a row without an ETag it is made from the Timestamp, as the service
// makes it. If the service made it otherwise, a write would be refused, never done wrongly. A row
// without both is an error: an empty ETag would mean "any version" in the next write.
func readEntity(doc []byte, etag string) (storage.Entity, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(doc, &fields); err != nil {
		return storage.Entity{}, err
	}
	e := storage.Entity{ETag: storage.ETag(etag), Properties: make(map[string]any, len(fields))}
	var stamp string
	for name, raw := range fields {
		var err error
		switch {
		case name == "odata.etag":
			if e.ETag == "" {
				err = json.Unmarshal(raw, (*string)(&e.ETag))
			}
		case strings.Contains(name, "@odata.") || strings.HasPrefix(name, "odata."):
		case name == "PartitionKey":
			err = json.Unmarshal(raw, &e.Partition)
		case name == "RowKey":
			err = json.Unmarshal(raw, &e.Row)
		case name == "Timestamp":
			if json.Unmarshal(raw, &stamp) == nil {
				e.Modified, _ = time.Parse(time.RFC3339Nano, stamp) // for display
			}
		default:
			var value any
			if value, err = readProperty(raw, fields[name+"@odata.type"]); err == nil && value != nil {
				e.Properties[name] = value
			}
		}
		if err != nil {
			return storage.Entity{}, fmt.Errorf("%.40q: %w", name, err)
		}
	}
	if e.ETag == "" {
		if stamp == "" {
			return storage.Entity{}, errors.New("a row without an ETag")
		}
		e.ETag = storage.ETag(`W/"datetime'` + url.QueryEscape(stamp) + `'"`)
	}
	return e, nil
}

// readProperty gives the value of one property; nil for null. A number without
// a type is an Int32 or a Double, which the service tells apart by the point.
func readProperty(raw, annotation json.RawMessage) (any, error) {
	kind := ""
	if annotation != nil {
		if err := json.Unmarshal(annotation, &kind); err != nil {
			return nil, err
		}
	}
	raw = bytes.TrimSpace(raw)
	switch c := raw[0]; {
	case c == 'n':
		return nil, nil
	case c == 't' || c == 'f':
		return c == 't', nil
	case c == '{' || c == '[':
		return nil, errors.New("not a value that a row can have")
	case c != '"':
		if kind == "Edm.Double" || kind == "" && bytes.ContainsAny(raw, ".eE") {
			return strconv.ParseFloat(string(raw), 64)
		}
		return strconv.ParseInt(string(raw), 10, 64)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	switch kind {
	case "Edm.Int64", "Edm.Int32":
		return strconv.ParseInt(s, 10, 64)
	case "Edm.Binary":
		return base64.StdEncoding.DecodeString(s)
	case "Edm.Double":
		return strconv.ParseFloat(s, 64)
	case "Edm.DateTime":
		return time.Parse(time.RFC3339Nano, s)
	case "Edm.Boolean":
		return strconv.ParseBool(s)
	}
	return s, nil // Edm.String, Edm.Guid, none
}
