package azure

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// The requests of a message's life are those that the SDK makes by itself: to the same address
// with the same parameters, headers, signature and body. Only a renewal has no body, with which
// it would erase the text.
func TestRequestsAreTheSDKs(t *testing.T) {
	t.Parallel()
	for _, connection := range []string{
		testConnection,
		"AccountName=acct;SharedAccessSignature=" + testSAS,
		"AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=http://127.0.0.1:10001/acct;TableEndpoint=http://127.0.0.1:10002/acct",
	} {
		theirs, ours := &fake{status: 500}, &fake{status: 500}
		options := &azqueue.ClientOptions{}
		options.Transport, options.Retry.MaxRetries, options.Telemetry.ApplicationID = theirs, -1, "queuepump"
		c, err := azqueue.NewQueueClientFromConnectionString(strings.ReplaceAll(connection, "TableEndpoint=http://127.0.0.1:10002/acct", "DefaultEndpointsProtocol=http"), "queue", options)
		must(t, err)
		for op, ask := range askSDK {
			// Ours is sent before the SDK's and after it: where the date is the same in both,
			// all are of that second, and their signatures can be compared.
			send := func() (date string) {
				a, err := Open(Options{ConnectionString: connection, Transport: ours})
				must(t, err)
				_ = requests[op](t.Context(), a)
				return ours.last.Header.Get("X-Ms-Date")
			}
			for range 100 {
				before := send()
				ask(t.Context(), c)
				if send() == before {
					break
				}
			}
			mine, its := essence(ours), essence(theirs)
			if op == "renew" {
				its["body"] = ""
				delete(its, "Content-Length")
				delete(its, "content-type")
			}
			if ours.sent != theirs.sent { // an XML declaration, which the service does not need, counts for the length
				delete(mine, "authorization")
				delete(its, "authorization")
			}
			proof.Same(t, cmp.Diff(its, mine), "", op, "the SDK's request and the driver's differ")
		}
	}
}

// askSDK makes the same requests as those of that name in requests.
var askSDK = map[string]func(ctx context.Context, c *azqueue.QueueClient){
	"put": func(ctx context.Context, c *azqueue.QueueClient) {
		_, _ = c.EnqueueMessage(ctx, "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))})
	},
	"get": func(ctx context.Context, c *azqueue.QueueClient) {
		_, _ = c.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(32)), VisibilityTimeout: new(int32(60))})
	},
	"replace": func(ctx context.Context, c *azqueue.QueueClient) {
		_, _ = c.UpdateMessage(ctx, testReceipt.ID, testReceipt.PopReceipt, "text", &azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(0))})
	},
	"renew": func(ctx context.Context, c *azqueue.QueueClient) {
		o := &azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(60))}
		_, _ = c.UpdateMessage(ctx, testReceipt.ID, testReceipt.PopReceipt, "", o)
	},
	"delete": func(ctx context.Context, c *azqueue.QueueClient) {
		_, _ = c.DeleteMessage(ctx, testReceipt.ID, testReceipt.PopReceipt, nil)
	},
}

// essence is what counts of the last request that f was sent.
func essence(f *fake) map[string]any {
	r := f.last
	seen := map[string]any{
		"method": r.Method, "scheme": r.URL.Scheme, "host": r.URL.Host, "for host": r.Host, "path": r.URL.EscapedPath(),
		"query": r.URL.Query(), "has its length": r.ContentLength == int64(len(f.sent)),
		"body": strings.TrimPrefix(f.sent, xml.Header), // which the service does not need
	}
	for name, values := range r.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length":
			seen[name] = values[0] == strconv.Itoa(len(f.sent))
		default:
			seen[strings.ToLower(name)] = slices.Clone(values)
		}
	}
	return seen
}

// One account is used by many goroutines; none sees another's request.
func TestRequestsOfManyGoroutinesAreTheirOwn(t *testing.T) {
	t.Parallel()
	echo := transportFunc(func(req *http.Request) (*http.Response, error) {
		text := ""
		if req.Body != nil {
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			text = strings.TrimSuffix(strings.TrimPrefix(string(b), documentHead), documentTail)
		}
		h := http.Header{"X-Ms-Popreceipt": {req.URL.Query().Get("popreceipt") + text}}
		return &http.Response{StatusCode: http.StatusNoContent, Header: h, Body: http.NoBody, Request: req}, nil
	})
	a := openFake(t, echo)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			q := a.Queue("queue")
			r := testReceipt
			for i := range 100 {
				r.PopReceipt = strings.Repeat(string(rune('a'+g)), i%7+1)
				text := strings.Repeat(string(rune('A'+g)), i)
				next, err := q.Replace(t.Context(), r, []byte(text), 0)
				if err != nil || next.PopReceipt != r.PopReceipt+text {
					t.Errorf("%v, %q", err, next.PopReceipt)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A message's life costs the requests that it consists of; this is what they may allocate,
// with an answer that costs nothing, beside what the SDK's own methods take.
func TestRequestsAllocateLittle(t *testing.T) {
	if racing {
		t.Skip("the race detector drops what pools hold")
	}
	calls := map[string]func(q storage.Queue) error{
		"put":    func(q storage.Queue) error { _, err := q.Put(t.Context(), []byte("text"), 0); return err },
		"delete": func(q storage.Queue) error { return q.Delete(t.Context(), testReceipt) },
		"renew":  func(q storage.Queue) error { _, err := q.Renew(t.Context(), testReceipt, time.Minute); return err },
	}
	most := map[string]float64{"put": 126, "delete": 98, "renew": 124} // the SDK alone: 186, 85, 120
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		status, body := 204, ""
		if name == "put" {
			status, body = 201, azureGet
		}
		a := openFake(t, canned(status, body, http.Header{"X-Ms-Popreceipt": {"new"}}))
		q := a.Queue("queue")
		if got := testing.AllocsPerRun(100, func() {
			must(t, calls[name](q))
		}); got > most[name] {
			t.Errorf("%s: %v allocations, at most %v", name, got, most[name])
		} else {
			t.Logf("%s: %v allocations", name, got)
		}
	}
}

// A put without a slot makes no request; when its time ends it says that it was not sent.
func TestAPutWithoutASlotWasNotSent(t *testing.T) {
	t.Parallel()
	f := &fake{status: 201, body: azureGet}
	a := openFake(t, f)
	slots := semaphore.NewWeighted(1)
	a.(*account).puts = slots
	q := a.Queue("work")
	must(t, slots.Acquire(t.Context(), 1))
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := q.Put(ended, []byte("x"), 0); !storage.Is(err, storage.Canceled) || f.calls.Load() != 0 {
		t.Errorf("%v after %d requests", err, f.calls.Load())
	}
	synctest.Test(t, func(t *testing.T) { // without a deadline, the wait has an end
		_, err := q.Put(t.Context(), []byte("x"), 0)
		if !storage.Is(err, storage.Canceled) || !errors.Is(err, context.DeadlineExceeded) || f.calls.Load() != 0 {
			t.Errorf("%v after %d requests", err, f.calls.Load())
		}
	})
	slots.Release(1)
	for range 2 {
		_, err := q.Put(t.Context(), []byte("x"), 0)
		must(t, err)
	}
}
