package azure

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/queuepump/queuepump/pump/storage"
)

const (
	testKey        = "bm90IGEgcmVhbCBrZXksIGJ1dCBhcyBsb25nIGFzIG9uZTogc2l4dHktZm91ciBieXRlcyBpbiBiYXNlNjQuLg=="
	testConnection = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + testKey + ";EndpointSuffix=core.windows.net"
)

// fake answers every request with what it is given, and counts them.
type fake struct {
	status int
	header http.Header
	body   string
	err    error
	calls  atomic.Int64
	last   *http.Request
	sent   string // the last request's body
}

func (f *fake) Do(req *http.Request) (*http.Response, error) {
	f.calls.Add(1)
	f.last, f.sent = req, ""
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		f.sent = string(b)
	}
	if f.err != nil {
		return nil, f.err
	}
	h := f.header
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{StatusCode: f.status, Header: h, Body: io.NopCloser(strings.NewReader(f.body)), ContentLength: -1, Request: req}, nil
}

// openFake opens an account whose requests transport answers.
func openFake(t testing.TB, transport policy.Transporter) storage.Account {
	t.Helper()
	a, err := Open(Options{ConnectionString: testConnection, Transport: transport})
	must(t, err)
	return a
}

var testReceipt = storage.Receipt{ID: "f7bff1d3-3b0b-4b38-9e1c-5e2e8a1f0f00", PopReceipt: "AgAAAAMAAAAAAAAAMhKHpEdo1QE="}

// requests are one call of every request of the contract, by its name in
// errors; those of tables begin with "table", those of blobs with "blob".
var requests = map[string]func(context.Context, storage.Account) error{
	"list":   func(ctx context.Context, a storage.Account) error { _, err := a.Queues(ctx, "q"); return err },
	"create": func(ctx context.Context, a storage.Account) error { return a.Queue("queue").Create(ctx) },
	"drop":   func(ctx context.Context, a storage.Account) error { return a.Queue("queue").Drop(ctx) },
	"count":  func(ctx context.Context, a storage.Account) error { _, err := a.Queue("queue").Count(ctx); return err },
	"clear":  func(ctx context.Context, a storage.Account) error { return a.Queue("queue").Clear(ctx) },
	"put": func(ctx context.Context, a storage.Account) error {
		_, err := a.Queue("queue").Put(ctx, []byte("text"), 0)
		return err
	},
	"get": func(ctx context.Context, a storage.Account) error {
		_, err := a.Queue("queue").Get(ctx, 32, time.Minute)
		return err
	},
	"peek": func(ctx context.Context, a storage.Account) error {
		_, err := a.Queue("queue").Peek(ctx, 32)
		return err
	},
	"renew": func(ctx context.Context, a storage.Account) error {
		_, err := a.Queue("queue").Renew(ctx, testReceipt, time.Minute)
		return err
	},
	"replace": func(ctx context.Context, a storage.Account) error {
		_, err := a.Queue("queue").Replace(ctx, testReceipt, []byte("text"), 0)
		return err
	},
	"delete": func(ctx context.Context, a storage.Account) error { return a.Queue("queue").Delete(ctx, testReceipt) },

	"table create": func(ctx context.Context, a storage.Account) error { return a.Table("table1").Create(ctx) },
	"table drop":   func(ctx context.Context, a storage.Account) error { return a.Table("table1").Drop(ctx) },
	"table read": func(ctx context.Context, a storage.Account) error {
		_, err := a.Table("table1").Read(ctx, "p", "r")
		return err
	},
	"table write": func(ctx context.Context, a storage.Account) error {
		_, err := a.Table("table1").Write(ctx, storage.Write{Mode: storage.Replace, Entity: storage.Entity{Partition: "p", Row: "r", ETag: `W/"x"`}})
		return err
	},
	"table transact": func(ctx context.Context, a storage.Account) error {
		_, err := a.Table("table1").Transact(ctx, []storage.Write{{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "r"}}})
		return err
	},
	"blob create": func(ctx context.Context, a storage.Account) error { return a.Container("box").Create(ctx) },
	"blob put": func(ctx context.Context, a storage.Account) error {
		return a.Container("box").Put(ctx, "a/b", []byte("text"), map[string]string{"k": "v"})
	},
	"blob get": func(ctx context.Context, a storage.Account) error {
		_, err := a.Container("box").Get(ctx, "a/b", 0, 9)
		return err
	},
	"blob delete": func(ctx context.Context, a storage.Account) error { return a.Container("box").Delete(ctx, "a/b") },
	"blob list": func(ctx context.Context, a storage.Account) error {
		for _, err := range a.Container("box").List(ctx, "a/", "a/b") {
			return err
		}
		return nil
	},
	"table query": func(ctx context.Context, a storage.Account) error {
		for _, err := range a.Table("table1").Query(ctx, storage.Query{Partition: "p"}) {
			return err
		}
		return nil
	},
}
