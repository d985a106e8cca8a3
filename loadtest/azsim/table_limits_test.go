package azsim

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// entityWith writes an entity with n properties of a value, named P0, P1, ...
func entityWith(n int, value string) string {
	var b strings.Builder
	b.WriteString(`{"PartitionKey":"p","RowKey":"r"`)
	for i := range n {
		fmt.Fprintf(&b, `,"P%d":%s`, i, value)
	}
	return b.String() + "}"
}

// One published limit a line (AZURE.md A2 and A4, DOC: the data model page and
// the list of Table service error codes). A value just within is accepted.
func TestPublishedLimitsOfEntities(t *testing.T) {
	text := func(n int) string { return strconv.Quote(strings.Repeat("x", n)) }
	named := func(name string) string { return `{"PartitionKey":"p","RowKey":"r","` + name + `":1}` }
	keyed := func(pk string) string { return fmt.Sprintf(`{"PartitionKey":%s,"RowKey":"r"}`, pk) }
	binary := func(n int) string {
		return `{"PartitionKey":"p","RowKey":"r","B@odata.type":"Edm.Binary","B":"` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"}`
	}
	for _, c := range []struct {
		rule, body string
		status     int
		code       string
	}{
		{"an entity has up to 255 properties, 3 of them the system's", entityWith(252, "1"), 201, ""},
		{"no 256th property", entityWith(253, "1"), 400, "TooManyProperties"},
		{"a string is up to 64 KiB of UTF-16, so 32 K characters", entityWith(1, text(32768)), 201, ""},
		{"no character more", entityWith(1, text(32769)), 400, "PropertyValueTooLarge"},
		{"characters outside the basic plane count twice", entityWith(1, `"`+strings.Repeat("😀", 16384)+`"`), 201, ""},
		{"also at the limit", entityWith(1, `"`+strings.Repeat("😀", 16384)+`x"`), 400, "PropertyValueTooLarge"},
		{"a binary is up to 64 KiB", binary(65536), 201, ""},
		{"no byte more", binary(65537), 400, "PropertyValueTooLarge"},
		{"an entity is up to 1 MiB", entityWith(15, text(32768)), 201, ""},
		{"not more, by the formula of the data model page", entityWith(16, text(32768)), 400, "EntityTooLarge"},
		{"a property's name has up to 255 characters", named(strings.Repeat("n", 255)), 201, ""},
		{"no character more", named(strings.Repeat("n", 256)), 400, "PropertyNameTooLong"},
		{"names are C# identifiers", named("_Grün1"), 201, ""},
		{"which have no hyphen", named("a-b"), 400, "PropertyNameInvalid"},
		{"nor begin with a digit", named("1a"), 400, "PropertyNameInvalid"},
		{"keys are up to 1 KiB, so 512 characters", keyed(text(512)), 201, ""},
		{"no character more", keyed(text(513)), 400, "KeyValueTooLarge"},
		{"keys may be empty", keyed(`""`), 201, ""},
		{"no / in keys", keyed(`"a/b"`), 400, "OutOfRangeInput"},
		{"no \\ in keys", keyed(`"a\\b"`), 400, "OutOfRangeInput"},
		{"no # in keys", keyed(`"a#b"`), 400, "OutOfRangeInput"},
		{"no ? in keys", keyed(`"a?b"`), 400, "OutOfRangeInput"},
		{"no control characters in keys", keyed(`"a\tb"`), 400, "OutOfRangeInput"},
		{"nor the second block of them", keyed(`"a\u0085b"`), 400, "OutOfRangeInput"},
		{"keys are strings", keyed("5"), 400, "InvalidInput"},
		{"keys are needed", keyed("null"), 400, "PropertiesNeedValue"},
		{"dates begin in 1601", `{"PartitionKey":"p","RowKey":"r","D@odata.type":"Edm.DateTime","D":"1600-12-31T23:59:59Z"}`, 400, "OutOfRangeInput"},
		{"a property only once", `{"PartitionKey":"p","RowKey":"r","A":1,"A":1}`, 400, "DuplicatePropertiesSpecified"},
	} {
		b := newTable(t)
		a := b.do("POST", "/tbl", c.body)
		proof.Same(t, a.status, c.status, c.rule)
		proof.Same(t, a.code(), c.code, c.rule)
	}
}

func TestMergeIsHeldToTheLimitsOfTheWholeEntity(t *testing.T) {
	b := newTable(t)
	b.want(b.do("POST", "/tbl", entityWith(252, "1")), 201, "")
	b.want(b.do("PATCH", "/tbl(PartitionKey='p',RowKey='r')", `{"P0":2,"P251":2}`), 204, "")
	b.want(b.do("PATCH", "/tbl(PartitionKey='p',RowKey='r')", `{"Another":1}`), 400, "TooManyProperties")
	b.want(b.do("PUT", "/tbl(PartitionKey='p',RowKey='r')", `{"Another":1}`), 204, "")
}

// Types as they travel (AZURE.md A4, Types): what a body holds comes back as
// the same type, and what does not fit its type is refused.
func TestTypesTravelAsAnnotated(t *testing.T) {
	for in, out := range map[string]string{
		`"X":"text \"quoted\" \\ \n\u0001 é 😀"`: `"X":"text \"quoted\" \\ \n\u0001 é 😀"`,
		`"X":2147483647`:                        `"X":2147483647`,
		`"X":-2147483648`:                       `"X":-2147483648`,
		`"X":2147483648`:                        `"X":2147483648.0`, // a bare number beyond 32 bits is a Double
		`"X":9007199254740993`:                  `"X":9.007199254740992E+15`,
		`"X":1.0`:                               `"X":1.0`,
		`"X":1e300`:                             `"X":1E+300`,
		`"X@odata.type":"Edm.Double","X":3`:     `"X":3.0`,
		`"X":100.0`:                             `"X":100.0`,
		`"X@odata.type":"Edm.Double","X":"NaN"`: `"X@odata.type":"Edm.Double","X":"NaN"`,
		`"X@odata.type":"Edm.Double","X":"Infinity"`:                             `"X@odata.type":"Edm.Double","X":"Infinity"`,
		`"X@odata.type":"Edm.Double","X":"-Infinity"`:                            `"X@odata.type":"Edm.Double","X":"-Infinity"`,
		`"X@odata.type":"Edm.Int64","X":"-9223372036854775808"`:                  `"X@odata.type":"Edm.Int64","X":"-9223372036854775808"`,
		`"X":"9007199254740993","X@odata.type":"Edm.Int64"`:                      `"X@odata.type":"Edm.Int64","X":"9007199254740993"`,
		`"X@odata.type":"Edm.Int32","X":5`:                                       `"X":5`,
		`"X@odata.type":"Edm.Boolean","X":true`:                                  `"X":true`,
		`"X@odata.type":"Edm.String","X":"s"`:                                    `"X":"s"`,
		`"X@odata.type":"Edm.DateTime","X":"2026-11-21T01:02:03.4500000Z"`:       `"X@odata.type":"Edm.DateTime","X":"2026-11-21T01:02:03.45Z"`,
		`"X@odata.type":"Edm.DateTime","X":"2026-11-21T01:02:03+01:00"`:          `"X@odata.type":"Edm.DateTime","X":"2026-11-21T00:02:03Z"`,
		`"X@odata.type":"Edm.Guid","X":"4185404A-5818-48C3-B9BE-F217DF0DBA6F"`:   `"X@odata.type":"Edm.Guid","X":"4185404a-5818-48c3-b9be-f217df0dba6f"`,
		`"X@odata.type":"Edm.Binary","X":"AP8="`:                                 `"X@odata.type":"Edm.Binary","X":"AP8="`,
		`"X":"2026-11-21T01:02:03Z"`:                                             `"X":"2026-11-21T01:02:03Z"`, // without the annotation it is a string
		`"X":"\ud83d\ude00 \\ud83d"`:                                             `"X":"😀 \\ud83d"`,
		`"X":null`:                                                               ``,
		`"odata.etag":"x","odata.whatever":1,"Timestamp":"0001-01-01T00:00:00Z"`: ``,
	} {
		b := newTable(t)
		a := b.do("POST", "/tbl", `{"PartitionKey":"p","RowKey":"r",`+in+`}`)
		_, rest, _ := strings.Cut(a.body, `"Timestamp":"`)
		_, rest, _ = strings.Cut(rest, `"`)
		if got := strings.TrimPrefix(strings.TrimSuffix(rest, "}"), ","); a.status != 201 || got != out {
			t.Errorf("%s came back as %s, want %s (%d %s)", in, got, out, a.status, a.code())
		}
	}
	for _, in := range []string{
		`"X@odata.type":"Edm.Int64","X":"1.5"`, `"X@odata.type":"Edm.Int64","X":"9223372036854775808"`, `"X@odata.type":"Edm.Int64","X":5`, `"X@odata.type":"Edm.Int32","X":"5"`,
		`"X@odata.type":"Edm.Int32","X":5.5`, `"X@odata.type":"Edm.Boolean","X":"true"`, `"X@odata.type":"Edm.Double","X":"many"`, `"X@odata.type":"Edm.Double","X":true`,
		`"X@odata.type":"Edm.DateTime","X":"soon"`, `"X@odata.type":"Edm.DateTime","X":"2026-11-21T01:02:03.12345678Z"`, `"X@odata.type":"Edm.Guid","X":"4185404A"`,
		`"X@odata.type":"Edm.Binary","X":"*"`, `"X@odata.type":"Edm.Decimal","X":"1"`, `"X@odata.type":5,"X":"1"`, `"X":[]`, `"X":{}`, `"X":1e400`, "\"X\":\"\xff\"", `"X":1} {`, `"X"`, `"X":tru`, `"X":"\ud83d"`, `"X":"\\\uDE00\ud83d"`, `"half \ud83d":"X"`,
	} {
		b := newTable(t)
		a := b.do("POST", "/tbl", `{"PartitionKey":"p","RowKey":"r",`+in+`}`)
		proof.Same(t, a.status, 400, in)
		proof.Same(t, a.code(), "InvalidInput", in)
	}
}

// What a request can get wrong beside its entity, a line each.
func TestRequestsRefused(t *testing.T) {
	const row = "/tbl(PartitionKey='p',RowKey='r')"
	etag := `If-Match: W/"datetime'2026-01-01T00%3A00%3A00Z'"`
	for _, c := range []struct {
		rule, method, path, body string
		headers                  []string
		status                   int
		code                     string
	}{
		{"deletion needs a condition (T22)", "DELETE", row, "", nil, 400, "MissingRequiredHeader"},
		{"a missing row to delete", "DELETE", "/tbl(PartitionKey='p',RowKey='x')", "", []string{"If-Match: *"}, 404, "ResourceNotFound"},
		{"a stale row to delete", "DELETE", row, "", []string{etag}, 412, "UpdateConditionNotSatisfied"},
		{"a missing row to replace, any ETag", "PUT", "/tbl(PartitionKey='p',RowKey='x')", "{}", []string{"If-Match: *"}, 404, "ResourceNotFound"},
		{"a missing row to merge, one ETag", "PATCH", "/tbl(PartitionKey='p',RowKey='x')", "{}", []string{etag}, 404, "ResourceNotFound"},
		{"an ETag that is none", "PUT", row, "{}", []string{"If-Match: \"1\""}, 400, "InvalidInput"},
		{"two ETags", "PUT", row, "{}", []string{`If-Match: W/"datetime'2026-01-01T00%3A00%3A00Z'", W/"datetime'2026-01-01T00%3A00%3A01Z'"`}, 400, "InvalidInput"},
		{"If-None-Match on PUT (T53)", "PUT", row, "{}", []string{"If-None-Match: *"}, 400, "InvalidInput"},
		{"both conditions", "PUT", row, "{}", []string{"If-None-Match: *", "If-Match: *"}, 400, "InvalidInput"},
		{"keys that contradict the address (T54)", "PUT", row, `{"PartitionKey":"p","RowKey":"other"}`, nil, 400, "InvalidInput"},
		{"a missing table", "GET", "/none(PartitionKey='p',RowKey='r')", "", nil, 404, "TableNotFound"},
		{"a missing table to query", "GET", "/none()", "", nil, 404, "TableNotFound"},
		{"a missing table to insert into", "POST", "/none", `{"PartitionKey":"p","RowKey":"r"}`, nil, 404, "TableNotFound"},
		{"a missing row", "GET", "/tbl(PartitionKey='p',RowKey='x')", "", nil, 404, "ResourceNotFound"},
		{"a / in an address's key (T24)", "GET", "/tbl(PartitionKey='a%2Fb',RowKey='r')", "", nil, 400, "OutOfRangeInput"},
		{"an address with one key", "GET", "/tbl(PartitionKey='p')", "", nil, 400, "InvalidInput"},
		{"an address with a key twice", "GET", "/tbl(PartitionKey='p',PartitionKey='p')", "", nil, 400, "InvalidInput"},
		{"a quote that is not doubled", "GET", "/tbl(PartitionKey='o'brien',RowKey='r')", "", nil, 400, "InvalidInput"},
		{"no such verb on a row", "POST", row, "{}", nil, 405, "MethodNotAllowed"},
		{"no such verb on a table", "PUT", "/tbl", "{}", nil, 405, "MethodNotAllowed"},
		{"no such verb on the tables", "DELETE", "/Tables", "", nil, 405, "MethodNotAllowed"},
		{"a tunnel through another verb than POST", "PUT", row, "{}", []string{"X-HTTP-Method: MERGE"}, 400, "XMethodNotUsingPost"},
		{"two tunnels", "POST", row, "{}", []string{"X-HTTP-Method: MERGE", "X-HTTP-Method: PUT"}, 400, "XMethodIncorrectCount"},
		{"an unknown tunnel", "POST", row, "{}", []string{"X-HTTP-Method: FETCH"}, 400, "XMethodIncorrectValue"},
		{"a body that is Atom", "POST", "/tbl", "<entry/>", []string{"Content-Type: application/atom+xml"}, 415, "AtomFormatNotSupported"},
		{"a body of no kind", "POST", "/tbl", "{}", []string{"Content-Type: text/plain"}, 415, "MediaTypeNotSupported"},
		{"an answer in Atom, the default", "GET", "/tbl()", "", []string{"Accept:"}, 415, "AtomFormatNotSupported"},
		{"an answer of another kind", "GET", "/tbl()", "", []string{"Accept: text/html"}, 415, "MediaTypeNotSupported"},
		{"JSON before the version that learnt it", "GET", "/tbl()", "", []string{"X-Ms-Version: 2012-02-12"}, 415, "JsonFormatNotSupported"},
		{"also as a body", "POST", "/tbl", "{}", []string{"X-Ms-Version: 2012-02-12"}, 415, "JsonFormatNotSupported"},
		{"a body that is not JSON", "POST", "/tbl", "{", nil, 400, "InvalidInput"},
		{"$top over 1,000 (T42)", "GET", "/tbl()?$top=1001", "", nil, 400, "InvalidInput"},
		{"$top of 0 (T43)", "GET", "/tbl()?$top=0", "", nil, 400, "InvalidInput"},
		{"$top of text", "GET", "/tbl()?$top=ten", "", nil, 400, "InvalidInput"},
		{"functions in $filter (T41)", "GET", "/tbl()?$filter=" + url.QueryEscape("startswith(RowKey,'r')"), "", nil, 400, "InvalidInput"},
		{"a $select that is not a list of names", "GET", "/tbl()?$select=a-b", "", nil, 400, "InvalidInput"},
		{"an option that is not implemented", "GET", "/tbl()?$orderby=RowKey", "", nil, 501, "NotImplemented"},
		{"a token that is none", "GET", "/tbl()?NextPartitionKey=abc", "", nil, 400, "InvalidInput"},
		{"a token of a false length", "GET", "/tbl()?NextPartitionKey=1!9!MQ--", "", nil, 400, "InvalidInput"},
		{"half a token", "GET", "/tbl()?NextRowKey=1!4!MQ--", "", nil, 400, "InvalidInput"},
		{"a table's name is 3 characters at least", "POST", "/Tables", `{"TableName":"ab"}`, nil, 400, "OutOfRangeInput"},
		{"and 63 at most", "POST", "/Tables", `{"TableName":"` + strings.Repeat("a", 64) + `"}`, nil, 400, "OutOfRangeInput"},
		{"only letters and digits", "POST", "/Tables", `{"TableName":"a-table"}`, nil, 400, "InvalidResourceName"},
		{"not a digit first", "POST", "/Tables", `{"TableName":"1table"}`, nil, 400, "InvalidResourceName"},
		{"the name tables is reserved", "POST", "/Tables", `{"TableName":"tables"}`, nil, 400, "InvalidResourceName"},
		{"a table needs a name", "POST", "/Tables", `{}`, nil, 400, "PropertiesNeedValue"},
	} {
		b := newTable(t)
		b.want(b.do("POST", "/tbl", `{"PartitionKey":"p","RowKey":"r"}`), 201, "")
		a := b.do(c.method, c.path, c.body, c.headers...)
		proof.Same(t, a.status, c.status, c.rule, a.body)
		proof.Same(t, a.code(), c.code, c.rule, a.body)
	}
}
