package azure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// The answers of real Azure (TestBatchMixed_storage and TestBatchError_storage
// among the recordings of the Azure SDK for Go).
const batchType = "multipart/mixed; boundary=batchresponse_70fb8dbf"

func batchAnswerOf(parts ...string) string {
	var b strings.Builder
	b.WriteString("--batchresponse_70fb8dbf\r\nContent-Type: multipart/mixed; boundary=changesetresponse_37ceb29b\r\n\r\n")
	for _, p := range parts {
		b.WriteString("--changesetresponse_37ceb29b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" + p + "\r\n")
	}
	b.WriteString("--changesetresponse_37ceb29b--\r\n--batchresponse_70fb8dbf--\r\n")
	return b.String()
}

func donePart(etag string) string {
	return "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\nDataServiceVersion: 1.0;\r\nETag: " + etag + "\r\n\r\n"
}

func failedPart(status int, code, message string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\nPreference-Applied: return-no-content\r\nDataServiceVersion: 3.0;\r\n"+
		"Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8\r\n\r\n"+
		`{"odata.error":{"code":"%s","message":{"lang":"en-US","value":"%s\nRequestId:d2a8ac1b-6002-0030\nTime:2022-04-13T19:29:04.2283077Z"}}}`, status, http.StatusText(status), code, message)
}

func threeWrites() []storage.Write {
	return []storage.Write{
		{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "a"}},
		{Mode: storage.Merge, Entity: storage.Entity{Partition: "p", Row: "b", ETag: `W/"b"`}},
		{Mode: storage.Remove, Entity: storage.Entity{Partition: "p", Row: "c"}},
	}
}

func transact(t testing.TB, body string, writes []storage.Write) ([]storage.ETag, error) {
	t.Helper()
	f := &fake{status: 202, body: body, header: http.Header{"Content-Type": {batchType}}}
	return openFake(t, f).Table("table1").Transact(t.Context(), writes)
}

// azsim/AZURE.md D21: the SDK drops these ETags.
func TestBatchGivesTheETagsInOrder(t *testing.T) {
	t.Parallel()
	etags, err := transact(t, batchAnswerOf(donePart(`W/"1"`), donePart(`W/"2"`), "HTTP/1.1 204 No Content\r\n\r\n"), threeWrites())
	if err != nil || fmt.Sprint(etags) != `[W/"1" W/"2" ]` {
		t.Errorf("%q, %v", etags, err)
	}
}

// azsim/AZURE.md D21: the SDK reports these as 202.
func TestFailedBatchNamesItsWriteAndWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status        int
		code, message string
		want          storage.Code
		index         int
	}{
		{409, "EntityAlreadyExists", "2:The specified entity already exists.", storage.Exists, 2},
		{412, "UpdateConditionNotSatisfied", "0:The update condition specified in the request was not satisfied.", storage.Precondition, 0},
		{404, "ResourceNotFound", "1:The specified resource does not exist.", storage.Gone, 1},
		{404, "ResourceNotFound", "0:an insert needs no row to be there", storage.Missing, 0},
		{404, "TableNotFound", "0:The table specified does not exist.", storage.Missing, 0},
		{400, "InvalidInput", "1:One of the request inputs is not valid.", storage.Invalid, 1},
		{400, "EntityTooLarge", "1:The entity is larger than the maximum allowed size (1MB).", storage.TooLarge, 1},
		{413, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.", storage.TooLarge, -1},
		{500, "OperationTimedOut", "Operation could not be completed within the specified time.", storage.Throttled, -1},
		{503, "ServerBusy", "1:The server is busy.", storage.Throttled, 1},
		{500, "InternalError", "x", storage.MaybeDone, -1},
		{409, "EntityAlreadyExists", "7:an index that there is not", storage.Exists, -1},
		{409, "EntityAlreadyExists", ": no index", storage.Exists, -1},
		{409, "EntityAlreadyExists", "99999999999999999999: no index", storage.Exists, -1},
	} {
		_, err := transact(t, batchAnswerOf(failedPart(c.status, c.code, c.message)), threeWrites())
		e, ok := errors.AsType[*storage.Error](err)
		if !ok || e.Code != c.want || e.Index != c.index || e.Status != c.status || e.Service != c.code {
			t.Errorf("%d %s %q: %#v, want %s at %d", c.status, c.code, c.message, err, c.want, c.index)
		}
	}
	_, err := transact(t, batchAnswerOf(failedPart(409, "EntityAlreadyExists", "no index")), threeWrites()[:1])
	if e, ok := errors.AsType[*storage.Error](err); !ok || e.Index != 0 {
		t.Errorf("the only write of a transaction is the one that failed: %#v", err)
	}
}

func TestBatchAnswersThatCannotBeReadAreMaybeDone(t *testing.T) {
	t.Parallel()
	whole := batchAnswerOf(donePart(`W/"1"`), donePart(`W/"2"`), donePart(`W/"3"`))
	for name, body := range map[string]string{
		"nothing":       "",
		"no line end":   "--batchresponse_70fb8dbf",
		"a page":        "<html></html>",
		"JSON":          jsonError("InternalError"),
		"cut":           whole[:len(whole)/2],
		"cut at a part": whole[:strings.LastIndex(whole, "--changesetresponse_37ceb29b\r\n")],
		"too few":       batchAnswerOf(donePart(`W/"1"`), donePart(`W/"2"`)),
		"too many":      batchAnswerOf(donePart(`W/"1"`), donePart(`W/"2"`), donePart(`W/"3"`), donePart(`W/"4"`)),
		"far too many":  batchAnswerOf(strings.Split(strings.Repeat(donePart(`W/"1"`)+"|", 200), "|")...),
		"none":          batchAnswerOf(),
		"no ETag":       batchAnswerOf(donePart(`W/"1"`), "HTTP/1.1 204 No Content\r\n\r\n", donePart(`W/"3"`)),
		"no HTTP":       batchAnswerOf("hello", "hello", "hello"),
	} {
		if etags, err := transact(t, body, threeWrites()); !storage.Is(err, storage.MaybeDone) {
			t.Errorf("%s: %q, %v", name, etags, err)
		}
	}
	f := &fake{status: 202, body: whole}
	if _, err := openFake(t, f).Table("table1").Transact(t.Context(), threeWrites()); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("without a Content-Type: %v", err)
	}
}

// What goes out, read back by the standard library.
func TestBatchRequestIsAWellFormedChangeset(t *testing.T) {
	t.Parallel()
	f := &fake{err: io.EOF}
	tb := openFake(t, f).Table("table1")
	evil := "\r\n--changeset_queuepump--\r\n--batch_queuepump--\r\n"
	writes := []storage.Write{
		{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "a", ETag: "ignored", Properties: map[string]any{"s": evil}}},
		{Mode: storage.Replace, Entity: storage.Entity{Partition: "p", Row: "b", ETag: `W/"b"`}},
		{Mode: storage.Merge, Entity: storage.Entity{Partition: "p", Row: "c"}},
		{Mode: storage.Upsert, Entity: storage.Entity{Partition: "p", Row: "d", ETag: "ignored"}},
		{Mode: storage.Remove, Entity: storage.Entity{Partition: "p", Row: "e", ETag: `W/"e"`}},
	}
	_, _ = tb.Transact(t.Context(), writes)
	first := f.sent
	_, _ = tb.Transact(t.Context(), writes)
	proof.Same(t, f.sent, first, "the same transaction is not the same bytes")
	_, params, err := mime.ParseMediaType(f.last.Header.Get("Content-Type"))
	if err != nil || f.last.URL.Path != "/$batch" || f.last.Method != http.MethodPost {
		t.Fatalf("%s %s, %v", f.last.Method, f.last.URL, err)
	}
	outer := multipart.NewReader(strings.NewReader(first), params["boundary"])
	changes, err := outer.NextPart()
	must(t, err)
	_, params, err = mime.ParseMediaType(changes.Header.Get("Content-Type"))
	must(t, err)
	inner := multipart.NewReader(changes, params["boundary"])
	const row = "/table1(PartitionKey='p',RowKey='"
	for i, want := range []string{
		"POST /table1 If-Match=[] Prefer=[return-no-content]",
		"PUT " + row + "b') If-Match=[W/\"b\"] Prefer=[]",
		"PATCH " + row + "c') If-Match=[*] Prefer=[]",
		"PUT " + row + "d') If-Match=[] Prefer=[]",
		"DELETE " + row + "e') If-Match=[W/\"e\"] Prefer=[]",
	} {
		p, err := inner.NextRawPart()
		must(t, err)
		req, err := http.ReadRequest(bufio.NewReader(p))
		must(t, err)
		if got := fmt.Sprintf("%s %s If-Match=%v Prefer=%v", req.Method, req.URL.Path, req.Header["If-Match"], req.Header["Prefer"]); got != want || req.URL.Host != "acct.table.core.windows.net" {
			t.Errorf("write %d is %s at %s, want %s", i, got, req.URL.Host, want)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || bytes.ContainsAny(body, "\r\n") || (len(body) == 0) != (writes[i].Mode == storage.Remove) {
			t.Errorf("write %d carries %q, %v", i, body, err)
		}
	}
	if _, err := inner.NextRawPart(); err != io.EOF {
		t.Errorf("after the last write: %v", err)
	}
}

func FuzzReadBatch(f *testing.F) {
	f.Add(batchType, []byte(batchAnswerOf(donePart(`W/"1"`), donePart(`W/"2"`))))
	f.Add(batchType, []byte(batchAnswerOf(failedPart(409, "EntityAlreadyExists", "2:exists"))))
	f.Add("multipart/mixed", []byte("--\n"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		parts, err := readBatch(contentType, body)
		if err == nil && len(parts) > storage.MaxBatch {
			t.Errorf("%d parts", len(parts))
		}
		for _, p := range parts {
			serviceError(p.header, p.body)
		}
	})
}
