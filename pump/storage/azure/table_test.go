package azure

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// Every row is read exactly as it was written.
func TestRowsKeepEveryValue(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,20}`).Filter(validProperty)
	value := rapid.OneOf(
		rapid.String().AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(),
		rapid.Int64().AsAny(),
		rapid.Bool().AsAny(),
		rapid.Float64().AsAny(),
		rapid.Map(rapid.Int64Range(-11644473600, 253402300799), func(s int64) any { return time.Unix(s, s%1e7*100).UTC() }),
	)
	rapid.Check(t, func(t *rapid.T) {
		in := storage.Entity{Partition: "p", Row: "r", Properties: rapid.MapOfN(name, value, 0, 10).Draw(t, "properties")}
		doc, err := entityJSON(in)
		if err != nil {
			if d, ok := findBefore1601(in.Properties); ok {
				t.Skip(d)
			}
			t.Fatal(err)
		}
		again, err := entityJSON(in)
		if err != nil || string(again) != string(doc) {
			t.Fatalf("the same row is %s and %s, %v", doc, again, err)
		}
		out, err := readEntity(doc, `W/"x"`)
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		// No bytes are read as an empty slice or as none; times are compared by their Equal.
		if d := cmp.Diff(in.Properties, out.Properties, cmpopts.EquateEmpty()); d != "" || out.Partition != "p" || out.Row != "r" {
			t.Fatalf("%+v: %s", out, d)
		}
	})
}

// Azure does not send a double's type back; the point must tell it from an integer.
func TestDoublesHaveAPointOrAnExponent(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{3: "3.0", 0: "0.0", -7: "-7.0", 0.5: "0.5", 1e21: "1e+21", 100000: "100000.0", 1e6: "1e+06"} {
		doc, err := entityJSON(storage.Entity{Partition: "p", Row: "r", Properties: map[string]any{"f": v}})
		if err != nil || !strings.Contains(string(doc), `"f":`+want+`,"f@odata.type":"Edm.Double"`) {
			t.Errorf("%v is %s, %v", v, doc, err)
		}
		bare := strings.Replace(string(doc), `,"f@odata.type":"Edm.Double"`, "", 1)
		if e, err := readEntity([]byte(bare), "e"); err != nil || e.Properties["f"] != v {
			t.Errorf("%s is read as %#v, %v", bare, e.Properties["f"], err)
		}
	}
}

func findBefore1601(p map[string]any) (time.Time, bool) {
	for _, v := range p {
		if t, ok := v.(time.Time); ok && t.Before(firstTime) {
			return t, true
		}
	}
	return time.Time{}, false
}

// Rows as real Azure sends them: types beside the values, a double as a bare number.
func TestRowsAreReadAsAzureSendsThem(t *testing.T) {
	t.Parallel()
	doc := `{"odata.metadata":"https://acct.table.core.windows.net/$metadata#t/@Element","odata.etag":"W/\"datetime'2022-04-13T19%3A29%3A04.2283077Z'\"",
		"PartitionKey":"p","RowKey":"r","Timestamp":"2022-04-13T19:29:04.2283077Z",
		"big@odata.type":"Edm.Int64","big":"9007199254740993","small":42,"half":0.5,"three":3.0,"large":1E+300,"nan@odata.type":"Edm.Double","nan":"NaN",
		"inf@odata.type":"Edm.Double","inf":"Infinity","yes":true,"none":null,"guid@odata.type":"Edm.Guid","guid":"c9da6455-213d-42c9-9a79-3e9149a57833",
		"bin@odata.type":"Edm.Binary","bin":"AAH/","at@odata.type":"Edm.DateTime","at":"2022-01-01T00:00:00Z","text":"a\u0000b"}`
	e, err := readEntity([]byte(doc), "")
	must(t, err)
	if e.ETag != `W/"datetime'2022-04-13T19%3A29%3A04.2283077Z'"` || e.Modified.Nanosecond() != 228307700 {
		t.Errorf("%+v", e)
	}
	if f, ok := e.Properties["nan"].(float64); !ok || !math.IsNaN(f) {
		t.Errorf("NaN is %v", e.Properties["nan"])
	}
	delete(e.Properties, "nan")
	want := map[string]any{
		"big": int64(9007199254740993), "small": int64(42), "half": 0.5, "three": 3.0, "large": 1e300, "inf": math.Inf(1), "yes": true,
		"guid": "c9da6455-213d-42c9-9a79-3e9149a57833", "bin": []byte{0, 1, 255}, "at": time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC), "text": "a\x00b",
	}
	if !reflect.DeepEqual(e.Properties, want) {
		t.Errorf("%#v", e.Properties)
	}
}

// An empty ETag would mean "any version" in the write that follows.
func TestRowWithoutETagGetsThatOfItsTimestampOrIsAnError(t *testing.T) {
	t.Parallel()
	e, err := readEntity([]byte(`{"PartitionKey":"p","RowKey":"r","Timestamp":"2022-04-13T19:29:04.2283077Z"}`), "")
	if err != nil || e.ETag != `W/"datetime'2022-04-13T19%3A29%3A04.2283077Z'"` {
		t.Errorf("%+v, %v", e, err)
	}
	for _, doc := range []string{`{"PartitionKey":"p","RowKey":"r"}`, `{"PartitionKey":"p","odata.etag":7}`, `[]`, `null`, `"x"`, ``, `{`} {
		if e, err := readEntity([]byte(doc), ""); err == nil {
			t.Errorf("%s: %+v", doc, e)
		}
	}
}

func TestValuesThatAreNoneAreErrors(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`{"v":[]}`, `{"v":{}}`, `{"v@odata.type":"Edm.Int64","v":"x"}`, `{"v@odata.type":"Edm.Int64","v":"9223372036854775808"}`, `{"v":9223372036854775808}`,
		`{"v@odata.type":"Edm.Binary","v":"!"}`, `{"v@odata.type":"Edm.DateTime","v":"soon"}`, `{"v@odata.type":7,"v":"x"}`, `{"PartitionKey":7}`,
	} {
		if e, err := readEntity([]byte(doc), `W/"x"`); err == nil {
			t.Errorf("%s: %+v", doc, e)
		}
		f := &fake{status: 200, body: doc, header: http.Header{"Etag": {`W/"x"`}}}
		if _, err := openFake(t, f).Table("table1").Read(t.Context(), "p", "r"); !storage.Is(err, storage.MaybeDone) {
			t.Errorf("%s: a read says %v", doc, err)
		}
	}
}

func FuzzReadEntity(f *testing.F) {
	f.Add([]byte(`{"PartitionKey":"p","RowKey":"r","v@odata.type":"Edm.Int64","v":"9007199254740993","w":1.5,"x":null,"y":true,"z":"é"}`))
	f.Add([]byte(`{"odata.etag":"e","v@odata.type":"Edm.Double","v":"NaN"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := readEntity(doc, "")
		if err == nil && e.ETag == "" {
			t.Errorf("%s: a row without an ETag", doc)
		}
	})
}

// Each mode is the request that has its condition: never "any version" unless asked.
func TestWritesCarryTheirCondition(t *testing.T) {
	t.Parallel()
	etag := storage.ETag(`W/"datetime'2022-04-13T19%3A29%3A04.2283077Z'"`)
	row := map[string]any{"v": int64(1<<53 + 1)}
	const body = `{"PartitionKey":"p","RowKey":"r","v":"9007199254740993","v@odata.type":"Edm.Int64"}`
	for _, c := range []struct {
		mode                       storage.Mode
		etag                       storage.ETag
		method, path, match, quiet string
	}{
		{storage.Insert, "", "POST", "/table1", "", "return-no-content"},
		{storage.Insert, etag, "POST", "/table1", "", "return-no-content"},
		{storage.Replace, "", "PUT", "/table1(PartitionKey='p',RowKey='r')", "*", ""},
		{storage.Replace, etag, "PUT", "/table1(PartitionKey='p',RowKey='r')", string(etag), ""},
		{storage.Merge, "", "PATCH", "/table1(PartitionKey='p',RowKey='r')", "*", ""},
		{storage.Merge, etag, "PATCH", "/table1(PartitionKey='p',RowKey='r')", string(etag), ""},
		{storage.Upsert, "", "PUT", "/table1(PartitionKey='p',RowKey='r')", "", ""},
		{storage.Upsert, etag, "PUT", "/table1(PartitionKey='p',RowKey='r')", "", ""},
		{storage.Remove, "", "DELETE", "/table1(PartitionKey='p',RowKey='r')", "*", ""},
		{storage.Remove, etag, "DELETE", "/table1(PartitionKey='p',RowKey='r')", string(etag), ""},
	} {
		for _, host := range []string{"https://acct.table.core.windows.net", "http://localhost:18902/acct"} {
			f := &fake{status: 204, header: http.Header{"Etag": {`W/"new"`}}}
			// A port with 8902 in it makes aztables take the emulator for Cosmos DB's.
			a, err := Open(Options{ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=https://q.example;TableEndpoint=" + host, Transport: f})
			must(t, err)
			w := storage.Write{Mode: c.mode, Entity: storage.Entity{Partition: "p", Row: "r", ETag: c.etag, Properties: row}}
			got, err := a.Table("table1").Write(t.Context(), w)
			if err != nil || (got == "") != (c.mode == storage.Remove) {
				t.Errorf("%v: %q, %v", c, got, err)
			}
			r := f.last
			if r.Method != c.method || !strings.HasSuffix(r.URL.Path, c.path) || r.Header.Get("If-Match") != c.match || r.Header.Get("Prefer") != c.quiet || r.Header.Get("X-HTTP-Method") != "" {
				t.Errorf("mode %d at %q: %s %s with %v", c.mode, c.etag, r.Method, r.URL, r.Header)
			}
			_, has := r.Header["If-Match"]
			proof.Same(t, has, c.match != "", c.mode, "has If-Match")
			if want := body; c.mode != storage.Remove && f.sent != want {
				t.Errorf("mode %d sent %s, want %s", c.mode, f.sent, want)
			}
		}
	}
}

func TestWriteWithoutAnETagInTheAnswerIsMaybeDone(t *testing.T) {
	t.Parallel()
	for mode := storage.Insert; mode < storage.Remove; mode++ {
		_, err := openFake(t, &fake{status: 204}).Table("table1").Write(t.Context(), storage.Write{Mode: mode, Entity: storage.Entity{Partition: "p", Row: "r"}})
		if !storage.Is(err, storage.MaybeDone) {
			t.Errorf("mode %d: %v", mode, err)
		}
	}
}

func TestReadOfAnotherRowIsMaybeDone(t *testing.T) {
	t.Parallel()
	f := &fake{status: 200, body: `{"PartitionKey":"p","RowKey":"other"}`, header: http.Header{"Etag": {`W/"x"`}}}
	if _, err := openFake(t, f).Table("table1").Read(t.Context(), "p", "r"); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("%v", err)
	}
}

// window 28: an empty page with a continuation is not the end.
func TestQueryFollowsContinuationsToTheEnd(t *testing.T) {
	t.Parallel()
	type page struct {
		rows             string
		partition, token string
	}
	pages := map[string]page{
		"/":                 {`{"odata.etag":"e","PartitionKey":"p","RowKey":"a"}`, "1!4!cA--", "1!4!MQ--"},
		"1!4!cA--/1!4!MQ--": {"", "1!4!cA--", ""}, // empty, and a token without a row key
		"1!4!cA--/":         {"", "1!4!cA--", "1!4!Mg--"},
		"1!4!cA--/1!4!Mg--": {`{"odata.etag":"e","PartitionKey":"p","RowKey":"b"}`, "", ""},
	}
	var filters []string
	a := openFake(t, transportFunc(func(req *http.Request) (*http.Response, error) {
		v := req.URL.Query()
		filters = append(filters, v.Get("$filter")+"|"+v.Get("$select"))
		p, ok := pages[v.Get("NextPartitionKey")+"/"+v.Get("NextRowKey")]
		if !ok {
			t.Errorf("asked for a page %v", v)
		}
		h := http.Header{}
		if p.partition != "" {
			h.Set("x-ms-continuation-NextPartitionKey", p.partition)
		}
		if p.token != "" {
			h.Set("x-ms-continuation-NextRowKey", p.token)
		}
		return (&fake{status: 200, header: h, body: `{"odata.metadata":"x","value":[` + p.rows + `]}`}).Do(req)
	}))
	var rows []string
	for e, err := range a.Table("table1").Query(t.Context(), storage.Query{Partition: "p", From: "a", To: "c", Select: []string{"v", "w"}}) {
		must(t, err)
		rows = append(rows, e.Row)
	}
	if fmt.Sprint(rows) != "[a b]" || len(filters) != 4 {
		t.Errorf("%v in %d pages", rows, len(filters))
	}
	for _, f := range filters {
		proof.Same(t, f, "PartitionKey eq 'p' and RowKey ge 'a' and RowKey lt 'c'|PartitionKey,RowKey,Timestamp,v,w", "asked for")
	}
}

func TestQueryThatCannotBeReadYieldsOneError(t *testing.T) {
	t.Parallel()
	loop := http.Header{"X-Ms-Continuation-Nextpartitionkey": {"p"}, "X-Ms-Continuation-Nextrowkey": {"r"}}
	for _, f := range []*fake{
		{status: 200, body: ``},
		{status: 200, body: `{}`},
		{status: 200, body: `{"value":null}`},
		{status: 200, body: `[]`},
		{status: 200, body: `{"value":[{}]}`},
		{status: 200, body: `{"value":[1]}`},
		{status: 200, body: `{"value":[]`},
		{status: 200, body: `{"value":[]}`, header: loop},
	} {
		n := 0
		for _, err := range openFake(t, f).Table("table1").Query(t.Context(), storage.Query{}) {
			n++
			if !storage.Is(err, storage.MaybeDone) {
				t.Errorf("%s: %v", f.body, err)
			}
		}
		if n != 1 || f.calls.Load() > 2 {
			t.Errorf("%s: yielded %d times after %d requests", f.body, n, f.calls.Load())
		}
	}
}

// The row that the SDK makes its request from must be JSON for every key that is let through.
func TestPlaceholderIsJSONForEveryKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := storage.Entity{Partition: rapid.String().Filter(validRowKey).Draw(t, "partition"), Row: rapid.StringMatching(`[A-Za-z0-9_.~-]{1,512}`).Draw(t, "row")}
		var doc struct{ PartitionKey, RowKey string }
		if err := json.Unmarshal(placeholder(e), &doc); err != nil || doc.PartitionKey != e.Partition || doc.RowKey != e.Row {
			t.Fatalf("%+v became %+v, %v", e, doc, err)
		}
	})
}
