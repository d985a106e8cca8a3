package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
)

// must ends a test with an error.
var must = proof.Must

// use does a little of everything with an account.
func use(ctx context.Context, a storage.Account) error {
	q, t := a.Queue("queue"), a.Table("table1")
	if err := errors.Join(q.Create(ctx), t.Create(ctx)); err != nil {
		return err
	}
	_, err := q.Put(ctx, []byte("text"), 0)
	ms, e := q.Get(ctx, 32, time.Minute)
	err = errors.Join(err, e)
	for _, m := range ms {
		r, e := q.Renew(ctx, m.Receipt, time.Minute)
		err = errors.Join(err, e, q.Delete(ctx, r))
	}
	_, e = a.Queues(ctx, "")
	err = errors.Join(err, e)
	etags, e := t.Transact(ctx, []storage.Write{{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "r"}}})
	if err = errors.Join(err, e); err != nil {
		return err
	}
	_, err = t.Write(ctx, storage.Write{Mode: storage.Replace, Entity: storage.Entity{Partition: "p", Row: "r", ETag: etags[0]}})
	for _, e := range t.Query(ctx, storage.Query{}) {
		err = errors.Join(err, e)
	}
	box := a.Container("box")
	err = errors.Join(err, box.Create(ctx), box.Put(ctx, "a/b", []byte("text"), map[string]string{"k": "v"}))
	b, e := box.Get(ctx, "a/b", 1, 2)
	if err = errors.Join(err, e); err == nil && string(b.Body) != "ex" {
		err = fmt.Errorf("a part of the blob is %q", b.Body)
	}
	for _, e := range box.List(ctx, "a/", "a/b") {
		err = errors.Join(err, e)
	}
	return errors.Join(err, box.Delete(ctx, "a/b"), t.Drop(ctx), q.Drop(ctx))
}

func accountSAS(t testing.TB, sim *azsim.Sim, expiry time.Time, permissions string) string {
	t.Helper()
	key, err := aztables.NewSharedKeyCredential("acct", sim.Key("acct"))
	must(t, err)
	q, err := aztables.AccountSASSignatureValues{
		Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: expiry, Services: "bqt", ResourceTypes: "sco", Permissions: permissions,
	}.Sign(key)
	must(t, err)
	return q.Encode()
}

func TestSharedAccessSignatureOpensAllServices(t *testing.T) {
	t.Parallel()
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}, BeingDeleted: -1})
	server, err := sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() {
		proof.Is(t, server.Close(), nil)
	})
	sas := accountSAS(t, sim, time.Now().Add(time.Hour), "rwdlacup")
	client := NewTransport(1)
	t.Cleanup(client.CloseIdleConnections)
	for name, o := range map[string]Options{
		"connection string":                {ConnectionString: "AccountName=acct;SharedAccessSignature=" + sas, Transport: sim.Transport()},
		"connection string with endpoints": {ConnectionString: "QueueEndpoint=" + server.QueueEndpoint("acct") + ";TableEndpoint=" + server.TableEndpoint("acct") + ";BlobEndpoint=" + server.BlobEndpoint("acct") + ";SharedAccessSignature=" + sas, Transport: client},
		"endpoint":                         {Endpoint: "https://acct.queue.core.windows.net/?" + sas, Transport: sim.Transport()},
		"endpoints":                        {Endpoint: server.QueueEndpoint("acct") + "?" + sas, TableEndpoint: server.TableEndpoint("acct"), BlobEndpoint: server.BlobEndpoint("acct"), Transport: client},
	} {
		a, err := Open(o)
		must(t, err)
		proof.Is(t, use(t.Context(), a), nil, name)
	}
	expired, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net/?" + accountSAS(t, sim, time.Now().Add(-time.Hour), "rwdlacup"), Transport: sim.Transport()})
	must(t, err)
	if err := use(t.Context(), expired); !storage.Is(err, storage.Auth) || strings.Contains(err.Error(), "sig=") ||
		storage.Fix(err) != "give another signature" {
		t.Errorf("an expired signature: %v; %s", err, storage.Fix(err))
	}
	some, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net/?" + accountSAS(t, sim, time.Now().Add(time.Hour), "ra"), Transport: sim.Transport()})
	must(t, err)
	if err := use(t.Context(), some); !strings.Contains(storage.Fix(err), "permissions rwdlacup") {
		t.Errorf("a signature without rights: %v; %s", err, storage.Fix(err))
	}
}

func TestWrongKeyIsAuthAndWrongAccountIsMissing(t *testing.T) {
	t.Parallel()
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}})
	for connection, want := range map[string]storage.Code{
		testConnection: storage.Auth,
		strings.Replace(testConnection, "=acct;", "=other;", 1): storage.Missing,
	} {
		a, err := Open(Options{ConnectionString: connection, Transport: sim.Transport()})
		must(t, err)
		_, err = a.Queue("queue").Get(t.Context(), 1, time.Minute)
		if !storage.Is(err, want) {
			t.Errorf("a queue: %v, want %s", err, want)
		}
		if err := a.Table("table1").Create(t.Context()); !storage.Is(err, want) {
			t.Errorf("a table: %v, want %s", err, want)
		}
		for _, mode := range []storage.Mode{storage.Insert, storage.Upsert} {
			if _, err := a.Table("table1").Write(t.Context(), storage.Write{Mode: mode, Entity: storage.Entity{Partition: "p", Row: "r"}}); !storage.Is(err, want) {
				t.Errorf("a row: %v, want %s", err, want)
			}
		}
	}
}

// issuer is a credential whose tokens are numbered.
type issuer struct {
	lasts  time.Duration
	issued atomic.Int64
	err    error
	hangs  bool
}

func (c *issuer) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if c.hangs {
		<-ctx.Done()
		return azcore.AccessToken{}, ctx.Err()
	}
	if c.err != nil {
		return azcore.AccessToken{}, c.err
	}
	if len(o.Scopes) != 1 || o.Scopes[0] != "https://storage.azure.com/.default" {
		return azcore.AccessToken{}, errors.New("another scope than storage's")
	}
	return azcore.AccessToken{Token: "token-" + string('0'+rune(c.issued.Add(1))), ExpiresOn: time.Now().Add(c.lasts)}, nil
}

func TestTokenOpensBothServicesAndIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}, BeingDeleted: -1})
		cred := &issuer{lasts: time.Hour}
		a, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net", Credential: cred, Transport: sim.Transport()})
		must(t, err)
		for range 2 {
			must(t, use(t.Context(), a))
		}
		proof.Same(t, cred.issued.Load(), 1, "tokens for two services within an hour")
		time.Sleep(2 * time.Hour)
		if err := use(t.Context(), a); err != nil || cred.issued.Load() != 2 {
			t.Errorf("after the token's end: %v, %d tokens", err, cred.issued.Load())
		}
	})
}

// window 38: a rejected token is a pause and another token, not a loss.
func TestRejectedTokenIsAuthAndIsReplaced(t *testing.T) {
	t.Parallel()
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}, Bearer: func(token string, _ time.Time) error {
		if token == "token-1" {
			return errors.New("revoked")
		}
		return nil
	}})
	cred := &issuer{lasts: time.Hour}
	a, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net", Credential: cred, Transport: sim.Transport()})
	must(t, err)
	if err := a.Queue("queue").Create(t.Context()); !storage.Is(err, storage.Auth) || strings.Contains(err.Error(), "token-") {
		t.Errorf("with a revoked token: %v", err)
	}
	proof.Is(t, a.Queue("queue").Create(t.Context()), nil, "with the next one")
}

func TestCredentialThatGivesNoTokenIsAuth(t *testing.T) {
	t.Parallel()
	for op, call := range requests {
		f := &fake{status: 500}
		a, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net", Credential: &issuer{err: errors.New("no identity on this machine (Bearer eyJhbGciOi.secret)")}, Transport: f})
		must(t, err)
		err = call(t.Context(), a)
		if !storage.Is(err, storage.Auth) || f.calls.Load() != 0 || !strings.Contains(err.Error(), "no identity on this machine") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v after %d requests", op, err, f.calls.Load())
		}
	}
}

// A call that ends while it waits for a token has sent nothing.
func TestContextThatEndsWhileWaitingForATokenIsCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{status: 500}
		a, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net", Credential: &issuer{hangs: true}, Transport: f})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Queue("queue").Put(ctx, []byte("x"), 0)
		if !storage.Is(err, storage.Canceled) || !errors.Is(err, context.DeadlineExceeded) || f.calls.Load() != 0 {
			t.Errorf("%v", err)
		}
	})
}

// Tokens over plain http only where Open has let that through.
func TestTokenGoesOverPlainHTTPToThisMachineOnly(t *testing.T) {
	t.Parallel()
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "acct"}}, BeingDeleted: -1})
	a, err := Open(Options{Endpoint: "http://127.0.0.1:1/acct", TableEndpoint: "http://acct.table.localhost:1", Credential: &issuer{lasts: time.Hour}, Transport: sim.Transport()})
	must(t, err)
	proof.Is(t, a.Queue("queue").Create(t.Context()), nil, "a queue")
	if _, err := Open(Options{Endpoint: "http://acct.queue.corp.example", Credential: &issuer{}}); err == nil {
		t.Error("opened with a token over plain http to another machine")
	}
}

func TestWithoutCredentialTheDefaultOneIsUsed(t *testing.T) {
	a, err := Open(Options{Endpoint: "https://acct.queue.core.windows.net", Transport: &fake{}})
	must(t, err)
	if !a.(*account).bearer || a.Name() != "acct" {
		t.Errorf("%+v", a)
	}
}
