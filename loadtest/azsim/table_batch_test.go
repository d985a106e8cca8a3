package azsim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// part is one request within a change set.
type part struct {
	method, path, body string
	headers            []string
}

// changeSet writes a batch as the clients do.
func changeSet(parts ...part) string {
	var b strings.Builder
	b.WriteString("--batch_1\r\nContent-Type: multipart/mixed; boundary=changeset_1\r\n\r\n")
	for _, p := range parts {
		b.WriteString("--changeset_1\r\nContent-Transfer-Encoding: binary\r\nContent-Type: application/http\r\n\r\n")
		p.write(&b)
	}
	b.WriteString("--changeset_1--\r\n\r\n--batch_1--\r\n")
	return b.String()
}

func (p part) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s %s%s HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\nContent-Type: application/json\r\n", p.method, benchURL, p.path)
	for _, h := range p.headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + p.body + "\r\n")
}

const batchType = "Content-Type: multipart/mixed; boundary=batch_1"

func insertion(pk, rk string) part {
	return part{"POST", "/tbl", fmt.Sprintf(`{"PartitionKey":%q,"RowKey":%q}`, pk, rk), []string{"Prefer: return-no-content"}}
}

// lines joins the lines of a multipart body.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n" }

func TestWireFormsOfBatchesAsRecorded(t *testing.T) {
	inBubble(t, TableOptions{}, func(b *tableBench) {
		b.table("tbl")
		outer := with("Content-Type", "multipart/mixed; boundary=batchresponse_GUID")
		b.wantWire("insertions", b.do("POST", "/$batch", changeSet(insertion("p", "1"), insertion("p", "2")), batchType), 202, outer, lines(
			"--batchresponse_GUID", "Content-Type: multipart/mixed; boundary=changesetresponse_GUID", "",
			"--changesetresponse_GUID", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
			"HTTP/1.1 204 No Content", "X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "Preference-Applied: return-no-content", "DataServiceVersion: 3.0;",
			"Location: "+benchURL+"/tbl(PartitionKey='p',RowKey='1')", "DataServiceId: "+benchURL+"/tbl(PartitionKey='p',RowKey='1')", "ETag: "+epochETag, "", "",
			"--changesetresponse_GUID", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
			"HTTP/1.1 204 No Content", "X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "Preference-Applied: return-no-content", "DataServiceVersion: 3.0;",
			"Location: "+benchURL+"/tbl(PartitionKey='p',RowKey='2')", "DataServiceId: "+benchURL+"/tbl(PartitionKey='p',RowKey='2')", "ETag: "+epochETag, "", "",
			"--changesetresponse_GUID--", "--batchresponse_GUID--"))

		b.wantWire("merge and delete", b.do("POST", "/$batch", changeSet(
			part{"PATCH", "/tbl(PartitionKey='p',RowKey='1')", `{"A":1}`, []string{"If-Match: " + epochETag}},
			part{"DELETE", "/tbl(PartitionKey='p',RowKey='2')", "", []string{"If-Match: *"}}), batchType), 202, outer, lines(
			"--batchresponse_GUID", "Content-Type: multipart/mixed; boundary=changesetresponse_GUID", "",
			"--changesetresponse_GUID", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
			"HTTP/1.1 204 No Content", "X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "DataServiceVersion: 1.0;", `ETag: W/"datetime'2000-01-01T00%3A00%3A00.0000001Z'"`, "", "",
			"--changesetresponse_GUID", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
			"HTTP/1.1 204 No Content", "X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "DataServiceVersion: 1.0;", "", "",
			"--changesetresponse_GUID--", "--batchresponse_GUID--"))

		b.wantWire("third fails", b.do("POST", "/$batch", changeSet(insertion("p", "3"), insertion("p", "4"), insertion("p", "1")), batchType), 202, outer, lines(
			"--batchresponse_GUID", "Content-Type: multipart/mixed; boundary=changesetresponse_GUID", "",
			"--changesetresponse_GUID", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
			"HTTP/1.1 409 Conflict", "X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "Preference-Applied: return-no-content", "DataServiceVersion: 3.0;",
			"Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8", "",
			failure("EntityAlreadyExists", "2:The specified entity already exists."),
			"--changesetresponse_GUID--", "--batchresponse_GUID--"))
		b.want(b.do("GET", "/tbl(PartitionKey='p',RowKey='3')", ""), 404, "ResourceNotFound")

		var query strings.Builder
		query.WriteString("--batch_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n")
		part{method: "GET", path: "/tbl(PartitionKey='p',RowKey='1')"}.write(&query)
		query.WriteString("--batch_1--\r\n")
		b.wantWire("a single query", b.do("POST", "/$batch", query.String(), batchType), 202, outer, lines(
			"--batchresponse_GUID", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
			"HTTP/1.1 200 OK", "X-Content-Type-Options: nosniff", "Cache-Control: no-cache", "DataServiceVersion: 3.0;",
			"Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8", `ETag: W/"datetime'2000-01-01T00%3A00%3A00.0000001Z'"`, "",
			`{"odata.metadata":"`+benchURL+`/$metadata#tbl/@Element","odata.etag":"W/\"datetime'2000-01-01T00%3A00%3A00.0000001Z'\"","PartitionKey":"p","RowKey":"1","Timestamp":"2000-01-01T00:00:00.0000001Z","A":1}`,
			"--batchresponse_GUID--"))
	})
}

// innerError is the status and code of the one part of a batch that failed,
// with the index that its message begins with.
func innerError(a answer) string {
	_, rest, _ := strings.Cut(a.body, "HTTP/1.1 ")
	status, _, _ := strings.Cut(rest, " ")
	_, code, _ := strings.Cut(rest, `"code":"`)
	code, text, _ := strings.Cut(code, `"`)
	_, index, _ := strings.Cut(text, `"value":"`)
	index, _, _ = strings.Cut(index, ":")
	return fmt.Sprintf("%d %s %s %s", a.status, status, code, index)
}

func TestBatchRules(t *testing.T) {
	many := func(n int) []part {
		var p []part
		for i := range n {
			p = append(p, insertion("many", fmt.Sprintf("%03d", i)))
		}
		return p
	}
	big := part{"POST", "/tbl", `{"PartitionKey":"p","RowKey":"big","V":"` + strings.Repeat("x", 40_000) + `"}`, nil}
	for _, c := range []struct {
		rule  string
		parts []part
		want  string
	}{
		{"all entities have the same partition key", []part{insertion("p", "a"), insertion("q", "b")}, "202 400 CommandsInBatchActOnDifferentPartitions 1"},
		{"an entity appears only once", []part{insertion("p", "a"), insertion("p", "b"), insertion("p", "a")}, "202 400 InvalidDuplicateRow 2"},
		{"at most 100 changes", many(101), "202 400 InvalidInput 99"},
		{"a missing row to replace", []part{insertion("p", "a"), {"PUT", "/tbl(PartitionKey='p',RowKey='none')", "{}", []string{"If-Match: *"}}}, "202 404 ResourceNotFound 1"},
		{"a stale condition", []part{{"PUT", "/tbl(PartitionKey='p',RowKey='there')", "{}", []string{`If-Match: W/"datetime'2001-01-01T00%3A00%3A00Z'"`}}}, "202 412 UpdateConditionNotSatisfied 0"},
		{"a missing table", []part{{"POST", "/other", `{"PartitionKey":"p","RowKey":"r"}`, nil}}, "202 404 TableNotFound 0"},
		{"one table", []part{insertion("p", "a"), {"POST", "/other", `{"PartitionKey":"p","RowKey":"r"}`, nil}}, "202 400 CommandsInBatchActOnDifferentPartitions 1"},
		{"a query among changes", []part{insertion("p", "a"), {"GET", "/tbl(PartitionKey='p',RowKey='there')", "", nil}}, "202 400 InvalidInput 1"},
		{"a property too large", []part{insertion("p", "a"), big}, "202 400 PropertyValueTooLarge 1"},
		{"deletion without a condition", []part{{"DELETE", "/tbl(PartitionKey='p',RowKey='there')", "", nil}}, "202 400 MissingRequiredHeader 0"},
		{"a key with a quote that is not doubled (D22)", []part{insertion("p", "a"), {"PUT", "/tbl(PartitionKey='p',RowKey='o%27brien')", "{}", nil}}, "202 400 InvalidInput 1"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := newTable(t)
			b.want(b.do("POST", "/tbl", `{"PartitionKey":"p","RowKey":"there"}`, "Prefer: return-no-content"), 204, "")
			a := b.do("POST", "/$batch", changeSet(c.parts...), batchType)
			proof.Same(t, innerError(a), c.want, a.body, "answer")
			proof.Same(t, strings.Count(a.body, "HTTP/1.1 "), 1,
				"inner answers to a failed batch, want only the failure")
			if all := b.do("GET", "/tbl()", ""); strings.Count(all.body, "RowKey") != 1 {
				t.Errorf("a failed batch left something behind: %s", all.body)
			}
		})
	}
}

func TestBatchThatCannotBeReadIsRefusedAsAWhole(t *testing.T) {
	b := newTable(t)
	good := changeSet(insertion("p", "a"))
	for name, c := range map[string]struct {
		body, contentType string
		status            int
		code              string
	}{
		"no boundary":          {good, "multipart/mixed", 400, "InvalidInput"},
		"other boundary":       {good, "multipart/mixed; boundary=other", 400, "InvalidInput"},
		"not multipart":        {good, "application/json", 400, "InvalidInput"},
		"cut":                  {good[:len(good)/2], "multipart/mixed; boundary=batch_1", 400, "InvalidInput"},
		"empty change set":     {changeSet(), "multipart/mixed; boundary=batch_1", 400, "InvalidInput"},
		"garbage request line": {strings.Replace(good, "POST http", "POSThttp", 1), "multipart/mixed; boundary=batch_1", 400, "InvalidInput"},
		"over 4 MiB":           {good + strings.Repeat(" ", 4<<20), "multipart/mixed; boundary=batch_1", 413, "RequestBodyTooLarge"},
	} {
		a := b.do("POST", "/$batch", c.body, "Content-Type: "+c.contentType)
		proof.Same(t, a.status, c.status, name)
		proof.Same(t, a.code(), c.code, name)
	}
	if a := b.do("GET", "/tbl()", ""); strings.Contains(a.body, "RowKey") {
		t.Errorf("something was stored: %s", a.body)
	}
}

// "If a batch includes more than one change set, the first change set will be
// processed by the service, and additional change sets will be rejected with
// status code 400."
func TestOnlyTheFirstChangeSetIsProcessed(t *testing.T) {
	b := newTable(t)
	first, second := changeSet(insertion("p", "a")), changeSet(insertion("p", "b"))
	a := b.do("POST", "/$batch", strings.TrimSuffix(first, "--batch_1--\r\n")+second, batchType)
	if a.status != 202 || strings.Count(a.body, "HTTP/1.1 204") != 1 || strings.Count(a.body, "HTTP/1.1 400") != 1 {
		t.Errorf("answer %d %s", a.status, a.body)
	}
	b.want(b.do("GET", "/tbl(PartitionKey='p',RowKey='a')", ""), 200, "")
	b.want(b.do("GET", "/tbl(PartitionKey='p',RowKey='b')", ""), 404, "ResourceNotFound")
}
