package azsim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// inBubble runs a test at 2000-01-01 00:00:00 UTC, so that times on the wire
// are known.
func inBubble(t *testing.T, o TableOptions, test func(*tableBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newTableBench(t, o)) })
}

// wantWire compares an answer with the recorded form of it. Headers that the
// core adds to every answer are left out.
func (b *tableBench) wantWire(what string, a answer, status int, headers map[string]string, body string) {
	b.Helper()
	got := maps.Collect(func(yield func(string, string) bool) {
		for name, v := range a.header {
			switch name {
			case "Server", "Date", "X-Ms-Request-Id", "X-Ms-Version", "Content-Length", "Transfer-Encoding":
			default:
				if !yield(name, masked(strings.Join(v, ", "))) {
					return
				}
			}
		}
	})
	want := make(map[string]string)
	for name, v := range headers {
		want[http.CanonicalHeaderKey(name)] = v
	}
	if a.status != status || !maps.Equal(got, want) || masked(a.body) != body {
		b.Errorf("%s:\n got %d %v\n%s\nwant %d %v\n%s", what, a.status, got, masked(a.body), status, want, body)
	}
}

const (
	jsonType  = "application/json; odata=minimalmetadata; streaming=true; charset=utf-8"
	epochETag = `W/"datetime'2000-01-01T00%3A00%3A00Z'"`
)

// with adds headers to those of every OData answer.
func with(pairs ...string) map[string]string {
	h := map[string]string{"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
	for p := range slices.Chunk(pairs, 2) {
		h[p[0]] = p[1]
	}
	return h
}

func failure(code, text string) string {
	return `{"odata.error":{"code":"` + code + `","message":{"lang":"en-US","value":"` + text + `\nRequestId:GUID\nTime:2000-01-01T00:00:00.0000000Z"}}}`
}

func TestWireFormsOfTablesAsRecorded(t *testing.T) {
	inBubble(t, TableOptions{}, func(b *tableBench) {
		b.wantWire("Create Table", b.do("POST", "/Tables", `{"TableName":"tbl"}`), 201,
			with("Content-Type", jsonType, "Location", benchURL+"/Tables('tbl')"),
			`{"odata.metadata":"`+benchURL+`/$metadata#Tables/@Element","TableName":"tbl"}`)
		b.wantWire("Create Table again", b.do("POST", "/Tables", `{"TableName":"TBL"}`), 409,
			with("Content-Type", jsonType), failure("TableAlreadyExists", "The table specified already exists."))
		b.wantWire("Create Table without an answer", b.do("POST", "/Tables", `{"TableName":"tbl2"}`, "Prefer: return-no-content"), 204,
			with("Location", benchURL+"/Tables('tbl2')", "DataServiceId", benchURL+"/Tables('tbl2')", "Preference-Applied", "return-no-content"), "")
		b.wantWire("Query Tables", b.do("GET", "/Tables", ""), 200, with("Content-Type", jsonType),
			`{"odata.metadata":"`+benchURL+`/$metadata#Tables","value":[{"TableName":"tbl"},{"TableName":"tbl2"}]}`)
		b.wantWire("Query Tables, full", b.do("GET", "/Tables?$filter=TableName%20eq%20'tbl2'", "", "Accept: application/json;odata=fullmetadata"), 200,
			with("Content-Type", strings.Replace(jsonType, "minimal", "full", 1)),
			`{"odata.metadata":"`+benchURL+`/$metadata#Tables","value":[{"odata.type":"acct.Tables","odata.id":"`+benchURL+`/Tables('tbl2')","odata.editLink":"Tables('tbl2')","TableName":"tbl2"}]}`)
		b.wantWire("Query Tables, bare", b.do("GET", "/Tables?$format=application/json%3Bodata=nometadata", ""), 200,
			with("Content-Type", strings.Replace(jsonType, "minimalmetadata", "nometadata", 1)), `{"value":[{"TableName":"tbl"},{"TableName":"tbl2"}]}`)
		b.wantWire("one table", b.do("GET", "/Tables('tbl')", ""), 200, with("Content-Type", jsonType),
			`{"odata.metadata":"`+benchURL+`/$metadata#Tables/@Element","TableName":"tbl"}`)
		b.wantWire("Delete Table", b.do("DELETE", "/Tables('tbl')", ""), 204, with(), "")
		b.wantWire("Delete Table again", b.do("DELETE", "/Tables('tbl')", ""), 404,
			with("Content-Type", jsonType), failure("ResourceNotFound", "The specified resource does not exist."))
	})
}

// everyType is an entity with all eight types, in the order of its JSON.
const everyType = `{"PartitionKey":"p","RowKey":"r","Timestamp":"0001-01-01T00:00:00Z","String":"test","Int64@odata.type":"Edm.Int64","Int64":"123456789012","Int32":1234,` +
	`"Guid@odata.type":"Edm.Guid","Guid":"4185404A-5818-48c3-b9be-f217df0dba6f","Double":1234.1234,"DateTime@odata.type":"Edm.DateTime","DateTime":"2013-08-02T17:37:43.0090043Z",` +
	`"Bool":false,"Binary@odata.type":"Edm.Binary","Binary":"U29tZUJpbmFyeQ==","Nothing":null}`

// typedMembers are its properties as the service writes them: sorted, typed
// where the literal alone is not enough.
const typedMembers = `"Binary@odata.type":"Edm.Binary","Binary":"U29tZUJpbmFyeQ==","Bool":false,"DateTime@odata.type":"Edm.DateTime","DateTime":"2013-08-02T17:37:43.0090043Z",` +
	`"Double":1234.1234,"Guid@odata.type":"Edm.Guid","Guid":"4185404a-5818-48c3-b9be-f217df0dba6f","Int32":1234,"Int64@odata.type":"Edm.Int64","Int64":"123456789012","String":"test"`

func TestWireFormsOfEntitiesAsRecorded(t *testing.T) {
	inBubble(t, TableOptions{}, func(b *tableBench) {
		b.table("tbl")
		address := benchURL + "/tbl(PartitionKey='p',RowKey='r')"
		minimal := `{"odata.metadata":"` + benchURL + `/$metadata#tbl/@Element","odata.etag":"W/\"datetime'2000-01-01T00%3A00%3A00Z'\"","PartitionKey":"p","RowKey":"r","Timestamp":"2000-01-01T00:00:00Z",` + typedMembers + `}`
		b.wantWire("Insert", b.do("POST", "/tbl", everyType), 201,
			with("Content-Type", jsonType, "ETag", epochETag, "Location", address), minimal)
		b.wantWire("Insert again", b.do("POST", "/tbl", everyType, "Prefer: return-no-content"), 409,
			with("Content-Type", jsonType, "Preference-Applied", "return-no-content"), failure("EntityAlreadyExists", "The specified entity already exists."))
		b.wantWire("Insert without keys", b.do("POST", "/tbl", `{"Value":10}`, "Prefer: return-no-content"), 400,
			with("Content-Type", jsonType, "Preference-Applied", "return-no-content"), failure("PropertiesNeedValue", "The values are not specified for all properties in the entity."))
		b.wantWire("Get", b.do("GET", "/tbl(PartitionKey='p',RowKey='r')", ""), 200,
			with("Content-Type", jsonType, "ETag", epochETag), minimal)
		b.wantWire("Get, bare", b.do("GET", "/tbl(RowKey='r',PartitionKey='p')?$select=RowKey,Int64,Timestamp,Absent", "", "Accept: application/json;odata=nometadata"), 200,
			with("Content-Type", strings.Replace(jsonType, "minimalmetadata", "nometadata", 1), "ETag", epochETag),
			`{"RowKey":"r","Int64":"123456789012","Timestamp":"2000-01-01T00:00:00Z","Absent":null}`)
		b.wantWire("Query, full", b.do("GET", "/tbl()", "", "Accept: application/json;odata=fullmetadata"), 200,
			with("Content-Type", strings.Replace(jsonType, "minimal", "full", 1)),
			`{"odata.metadata":"`+benchURL+`/$metadata#tbl","value":[{"odata.type":"acct.tbl","odata.id":"`+address+`","odata.etag":"W/\"datetime'2000-01-01T00%3A00%3A00Z'\"","odata.editLink":"tbl(PartitionKey='p',RowKey='r')",`+
				`"PartitionKey":"p","RowKey":"r","Timestamp@odata.type":"Edm.DateTime","Timestamp":"2000-01-01T00:00:00Z",`+typedMembers+`}]}`)
		time.Sleep(1_500_000_050) // 1.5 s and half a tick
		next := `W/"datetime'2000-01-01T00%3A00%3A01.5Z'"`
		b.wantWire("Replace", b.do("PUT", "/tbl(PartitionKey='p',RowKey='r')", `{"A":1}`, "If-Match: "+epochETag), 204, with("ETag", next), "")
		a := b.do("PATCH", "/tbl(PartitionKey='p',RowKey='r')", `{"A":2}`, "If-Match: "+epochETag)
		b.want(a, 412, "UpdateConditionNotSatisfied")
		if !strings.Contains(a.body, `"The update condition specified in the request was not satisfied.\nRequestId:`) || !strings.Contains(a.body, `Time:2000-01-01T00:00:01.5000000Z"`) {
			b.Errorf("body of a stale condition: %s", a.body)
		}
		b.wantWire("Merge", b.do("MERGE", "/tbl(PartitionKey='p',RowKey='r')", `{"B":2}`, "If-Match: *"), 204, with("ETag", `W/"datetime'2000-01-01T00%3A00%3A01.5000001Z'"`), "")
		b.wantWire("Delete", b.do("DELETE", "/tbl(PartitionKey='p',RowKey='r')", "", "If-Match: *"), 204, with(), "")
		b.wantWire("Upsert", b.do("PUT", "/tbl(PartitionKey='p',RowKey='r')", `{}`), 204, with("ETag", `W/"datetime'2000-01-01T00%3A00%3A01.5000003Z'"`), "")
		for name := range map[string]bool{"X-Ms-Error-Code": true, "Dataserviceversion": true} {
			proof.Same(b, b.do("GET", "/tbl(PartitionKey='no',RowKey='r')", "").header.Get(name), "", "an answer carries", name, "which recorded table answers do not")
		}
	})
}
