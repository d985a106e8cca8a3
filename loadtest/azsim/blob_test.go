package azsim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// blobs speaks to the blob service of the account of newRaw.
func blobs(t *testing.T, c Config) (raw, *Sim) {
	t.Helper()
	w, s := newRaw(t, c)
	w.at = "https://acct.blob.core.windows.net"
	w.want(201, "", "PUT", "/box?restype=container", "")
	return w, s
}

const blockBlob = "X-Ms-Blob-Type"

func TestBlobsAreServedInBothStyles(t *testing.T) {
	w, s := blobs(t, Config{})
	w.want(201, "", "PUT", "/box/a/b", "0123456789", blockBlob, "BlockBlob", "X-Ms-Meta-K", "v")
	for _, at := range []string{w.at, "http://127.0.0.1:10000/acct", "http://acct.blob.localhost:10000"} {
		w.at = at
		a := w.want(200, "", "GET", "/box/a/b", "")
		if a.body != "0123456789" || a.header.Get("X-Ms-Meta-K") != "v" || a.header.Get("Etag") == "" {
			t.Errorf("%s: %q, %v", at, a.body, a.header)
		}
		a = w.want(206, "", "GET", "/box/a/b", "", "X-Ms-Range", "bytes=8-20")
		proof.Same(t, a.body, "89", at, "a part")
		proof.Same(t, a.header.Get("Content-Range"), "bytes 8-9/10", at, "a part")
		if a = w.want(200, "", "HEAD", "/box/a/b", ""); a.header.Get("Content-Length") != "10" {
			t.Errorf("%s: %v", at, a.header)
		}
		if a = w.want(200, "", "GET", "/?comp=list&prefix=bo", ""); !strings.Contains(a.body, "<Name>box</Name>") {
			t.Errorf("%s: %s", at, a.body)
		}
		if a = w.want(200, "", "GET", "/box?restype=container&comp=list&maxresults=1", ""); !strings.Contains(a.body, "<Name>a/b</Name>") {
			t.Errorf("%s: %s", at, a.body)
		}
	}
	if names := s.Blobs("acct", "box"); len(names) != 1 || s.Blobs("acct", "none") != nil {
		t.Errorf("%q", names)
	}
	s.Reset("acct")
	w.want(404, "ContainerNotFound", "GET", "/box/a/b", "")
}

func TestRequestsForBlobsAreRefusedAsByTheService(t *testing.T) {
	w, _ := blobs(t, Config{})
	w.want(201, "", "PUT", "/box/x", "1", blockBlob, "BlockBlob")
	for _, r := range []struct {
		status               int
		code, method, target string
		headers              []string
	}{
		{409, "ContainerAlreadyExists", "PUT", "/box?restype=container", nil},
		{400, "InvalidResourceName", "PUT", "/Box?restype=container", nil},
		{400, "InvalidUri", "PUT", "/box", nil},
		{405, "UnsupportedHttpVerb", "POST", "/box?restype=container", nil},
		{405, "UnsupportedHttpVerb", "POST", "/box/x", nil},
		{405, "UnsupportedHttpVerb", "GET", "/?comp=properties&restype=service", nil},
		{400, "InvalidQueryParameterValue", "PUT", "/box/x?comp=blocklist", nil},
		{400, "InvalidQueryParameterValue", "GET", "/box?restype=container&comp=list&marker=!", nil},
		{400, "OutOfRangeQueryParameterValue", "GET", "/box?restype=container&comp=list&maxresults=0", nil},
		{400, "MissingRequiredHeader", "PUT", "/box/x", nil},
		{400, "InvalidHeaderValue", "PUT", "/box/x", []string{blockBlob, "PageBlob"}},
		{400, "InvalidMetadata", "PUT", "/box/x", []string{blockBlob, "BlockBlob", "X-Ms-Meta-A.b", "v"}},
		{404, "BlobNotFound", "GET", "/box/y", nil},
		{404, "BlobNotFound", "DELETE", "/box/y", nil},
		{404, "ContainerNotFound", "PUT", "/none/y", []string{blockBlob, "BlockBlob"}},
		{416, "InvalidRange", "GET", "/box/x", []string{"X-Ms-Range", "bytes=1-1"}},
	} {
		w.want(r.status, r.code, r.method, r.target, "", r.headers...)
	}
	w.want(202, "", "DELETE", "/box?restype=container", "")
	w.want(409, "ContainerBeingDeleted", "PUT", "/box?restype=container", "")
}

// A blob's own limit does not hold up its neighbours; the account's rate is that of its queues too.
func TestBlobsHaveALimitEachAndShareTheAccounts(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		rate   float64
		name   func(worker, i int) string
	}{
		{PublishedLimits(), 500, func(int, int) string { return "/box/one" }},
		{Limits{QueueAccount: 1200}, 1200, func(_, i int) string { return "/box/" + itoa(int64(i%40)) }},
		{Limits{QueueAccount: 1200}, 1200, func(worker, i int) string {
			if worker%2 == 0 {
				return "queue"
			}
			return "/box/" + itoa(int64(i%40))
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, s := blobs(t, Config{Limits: c.limits})
			q := raw{t, s.Transport(), "https://acct.queue.core.windows.net"}
			q.create("queue")
			time.Sleep(time.Second)
			const d = 3 * time.Second
			done, _ := hammer(t, 4, d, func(worker, i int) int {
				if name := c.name(worker, i); name != "queue" {
					return w.do("PUT", name, "x", blockBlob, "BlockBlob").status
				}
				return q.do("POST", "/queue/messages", text("x")).status
			})
			near(t, "requests", done, c.rate, d)
		})
	}
}

func TestFaultsHitBlobs(t *testing.T) {
	w, s := blobs(t, Config{})
	s.Inject(Rule{Fault: AnswerAfter, Service: "blob", Operations: []string{"PutBlob"}, Object: "box", Partition: "x", First: 1})
	w.want(201, "", "PUT", "/box/y", "1", blockBlob, "BlockBlob")
	w.want(500, "InternalError", "PUT", "/box/x", "1", blockBlob, "BlockBlob")
	w.want(202, "", "DELETE", "/box/x", "")
	s.SetState("acct", Disabled)
	w.want(403, "AccountIsDisabled", "GET", "/box/y", "")
}
