package azsim

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzBatch: whatever the body, reading and running a batch ends without a
// panic, keeps no more than a batch may hold, and what it stores has been
// accepted whole.
func FuzzBatch(f *testing.F) {
	whole := changeSet(insertion("p", "1"), insertion("p", "2"),
		part{"PATCH", "/tbl(PartitionKey='p',RowKey='there')", `{"A":1}`, []string{"If-Match: *"}},
		part{"DELETE", "/tbl(PartitionKey='p',RowKey='x')", "", []string{"If-Match: *"}})
	f.Add("multipart/mixed; boundary=batch_1", []byte(whole))
	f.Add("multipart/mixed; boundary=batch_1", []byte(strings.ReplaceAll(whole, "\r\n", "\n")))
	f.Add("multipart/mixed; boundary=\"batch_1\"", []byte("--batch_1\r\nContent-Type: application/http\r\n\r\nGET /tbl() HTTP/1.1\r\nAccept: application/json\r\n\r\n\r\n--batch_1--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		s := newTableStore("acct", 0, TableOptions{})
		granted(t, s.create("tbl", filterTime))
		r := &request{
			method: "POST", path: "/$batch", query: url.Values{}, header: http.Header{"Content-Type": {contentType}},
			body: body, service: tableService, baseURL: benchURL, id: "id", now: filterTime,
		}
		op, _ := s.route(r)
		if op == nil {
			t.Fatal("a batch has no operation")
		}
		if len(op.keys) > maxChanges || op.cost > maxChanges {
			t.Fatalf("%d keys, cost %d", len(op.keys), op.cost)
		}
		a := op.run()
		if a.status != 202 && a.status != 400 && a.status != 413 {
			t.Fatalf("status %d", a.status)
		}
		stored := s.find("tbl").rows.n
		failed := strings.Contains(string(a.body), "odata.error")
		if failed && !strings.Contains(string(a.body), "HTTP/1.1 20") && stored > 0 {
			t.Fatalf("a refused batch stored %d rows", stored)
		}
	})
}
