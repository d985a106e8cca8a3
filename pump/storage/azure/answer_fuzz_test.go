package azure

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// fuzzServer answers with what it is given, once, and announces any length.
type fuzzServer struct {
	status int
	header http.Header
	body   string
	length int64
	calls  int
}

func (e *fuzzServer) Do(req *http.Request) (*http.Response, error) {
	if e.calls++; e.calls > 3 { // a list that always has another page
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: e.status, Header: e.header, Body: io.NopCloser(strings.NewReader(e.body)), ContentLength: e.length, Request: req}, nil
}

// fuzzSecret looks like nothing that a pattern would find: only that it is the account's hides it.
const fuzzSecret = "cGxhbnRlZC1zZWNyZXQ="

// FuzzAnswer: whatever a server answers, the driver makes of it a result or one
// [storage.Error], in memory bounded by what was sent and not by what was announced,
// and shows no secret that the answer throws back.
func FuzzAnswer(f *testing.F) {
	calls := slices.Sorted(maps.Keys(requests))
	add := func(name string, status int, headers, body string) {
		f.Add(byte(slices.Index(calls, name)), status, headers, []byte(body), int64(-1))
	}
	add("get", 200, "", azureGet)
	add("put", 201, "", azureGet)
	add("peek", 200, "", emptyList)
	add("list", 200, "", `<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Queues><Queue><Name>q1</Name></Queue></Queues><NextMarker>/a/q2</NextMarker></EnumerationResults>`)
	add("count", 200, "x-ms-approximate-messages-count: 7\n", "")
	add("renew", 204, "x-ms-popreceipt: abc\nx-ms-time-next-visible: Wed, 11 Sep 2019 02:21:38 GMT\n", "")
	add("delete", 404, "x-ms-error-code: MessageNotFound\nx-ms-request-id: 4711\n", "<Error><Code>MessageNotFound</Code><Message>no\nTime:1</Message></Error>")
	add("replace", 503, "Retry-After: 7\nDate: Wed, 11 Sep 2019 02:21:38 GMT\n", "<Error><Code>ServerBusy</Code></Error>")
	add("table read", 200, "ETag: W/\"1\"\n", `{"PartitionKey":"p","RowKey":"r","v@odata.type":"Edm.Int64","v":"7"}`)
	add("table write", 412, "", `{"odata.error":{"code":"UpdateConditionNotSatisfied","message":{"lang":"en-US","value":"no"}}}`)
	add("table query", 200, "x-ms-continuation-NextPartitionKey: p\n", `{"value":[{"odata.etag":"e","PartitionKey":"p","RowKey":"r"}]}`)
	add("table transact", 202, "Content-Type: "+batchType+"\n", batchAnswerOf(donePart(`W/"1"`)))
	add("table create", 403, "", "AuthenticationFailed sig="+fuzzSecret)
	add("get", 302, "Location: https://other/?sig="+fuzzSecret+"\n", "")
	f.Fuzz(func(t *testing.T, call byte, status int, headers string, body []byte, length int64) {
		e := &fuzzServer{status: status, header: http.Header{}, body: string(body), length: max(length, -1)}
		for line := range strings.Lines(headers) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			e.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
		a, err := Open(Options{ConnectionString: "AccountName=acct;AccountKey=" + fuzzSecret, Transport: e})
		must(t, err)
		name := calls[int(call)%len(calls)]
		// An announced size is believed up to 4 MiB, and a list is asked for three times.
		proof.AtMost(t, 16<<20+256*(len(body)+len(headers)), func() { err = requests[name](t.Context(), a) })
		if err == nil {
			return
		}
		got, ok := err.(*storage.Error)
		if !ok {
			t.Fatalf("%s: %T", name, err)
		}
		if text := err.Error(); strings.Contains(text, fuzzSecret) || len(text) > 2000 || strings.ContainsAny(text, "\r\n\x1b") {
			t.Fatalf("%s: an error of %d bytes: %.300q", name, len(text), text)
		}
		if got.RetryAfter < 0 || got.RetryAfter > longestRetryAfter || got.Code == storage.Canceled {
			t.Fatalf("%s: %+v", name, got)
		}
	})
}

// FuzzEntityRoundTrip: a row that was read can be written, and is read again as it was.
func FuzzEntityRoundTrip(f *testing.F) {
	f.Add([]byte(`{"PartitionKey":"p","RowKey":"r","v@odata.type":"Edm.Int64","v":"9007199254740993","w":1.5,"x":null,"y":true,"z":"é"}`))
	f.Add([]byte(`{"odata.etag":"e","v@odata.type":"Edm.Double","v":"-Infinity","b@odata.type":"Edm.Binary","b":"AAEC","t@odata.type":"Edm.DateTime","t":"2024-01-01T00:00:00.1234567Z"}`))
	f.Add([]byte(`{"odata.etag":"e","a":1e400}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var e storage.Entity
		var err error
		proof.AtMost(t, 64*len(doc)+64<<10, func() { e, err = readEntity(doc, "etag") })
		if err != nil {
			return
		}
		again, err := entityJSON(e)
		if err != nil {
			return // a name or a time that no row of ours has
		}
		twice, err := readEntity(again, "etag")
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(e.Properties, twice.Properties, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("%s\n%s", again, diff)
		}
	})
}
