package azsim

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

// once turns the SDK's retries off.
func once(t policy.Transporter) azcore.ClientOptions {
	return azcore.ClientOptions{Transport: t, Retry: policy.RetryOptions{MaxRetries: -1}}
}

// code is the error code of an SDK call, "" for none.
func code(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	re, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		t.Fatalf("not an answer: %v", err)
	}
	return re.ErrorCode
}

// ways are the two ways into a simulator: without sockets and by TCP.
func ways(t *testing.T, s *Sim, f func(t *testing.T, connection string, o azcore.ClientOptions)) {
	srv, err := s.Listen("", "")
	must(t, err)
	t.Cleanup(func() { _ = srv.Close() })
	t.Run("Transport", func(t *testing.T) { f(t, s.ConnectionString(s.Accounts()[0]), once(s.Transport())) })
	t.Run("TCP", func(t *testing.T) { f(t, srv.ConnectionString(s.Accounts()[0]), once(nil)) })
}

// authorize-with-shared-key: SharedKey, as azqueue signs it.
func TestEveryAzqueueOperationWorksWithSharedKey(t *testing.T) {
	s := New(Config{BeingDeleted: -1})
	ways(t, s, func(t *testing.T, connection string, o azcore.ClientOptions) {
		ctx := t.Context()
		service, err := azqueue.NewServiceClientFromConnectionString(connection, &azqueue.ClientOptions{ClientOptions: o})
		must(t, err)
		must := func(err error) {
			t.Helper()
			must(t, err)
		}
		props, err := service.GetServiceProperties(ctx, nil)
		must(err)
		_, err = service.SetProperties(ctx, &azqueue.SetPropertiesOptions{Logging: props.Logging, CORS: []*azqueue.CORSRule{}})
		must(err)
		_, err = service.CreateQueue(ctx, "queue", &azqueue.CreateOptions{Metadata: map[string]*string{"Colour": new("red & blue")}})
		must(err)
		queues, err := service.NewListQueuesPager(&azqueue.ListQueuesOptions{Include: azqueue.ListQueuesInclude{Metadata: true}}).NextPage(ctx)
		must(err)
		if q := queues.Queues; len(q) != 1 || *q[0].Name != "queue" || *q[0].Metadata["colour"] != "red & blue" {
			t.Errorf("listed %+v", q)
		}
		q := service.NewQueueClient("queue")
		_, err = q.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: map[string]*string{"a": new("1")}})
		must(err)
		expiry := time.Now().Add(time.Hour)
		_, err = q.SetAccessPolicy(ctx, &azqueue.SetAccessPolicyOptions{QueueACL: []*azqueue.SignedIdentifier{{
			ID: new("id"), AccessPolicy: &azqueue.AccessPolicy{Expiry: &expiry, Permission: new("r")},
		}}})
		must(err)
		acl, err := q.GetAccessPolicy(ctx, nil)
		must(err)
		if l := acl.SignedIdentifiers; len(l) != 1 || *l[0].ID != "id" || *l[0].AccessPolicy.Permission != "r" {
			t.Errorf("access policies %+v", l)
		}
		const text = "<b> & \"quotes\" \u00e4\u4e16 \t ]]"
		_, err = q.EnqueueMessage(ctx, text, &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))})
		must(err)
		peeked, err := q.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(32))})
		must(err)
		proof.Same(t, *peeked.Messages[0].MessageText, text, "peeked")
		m, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(32))})
		must(err)
		proof.Same(t, *m.Messages[0].MessageText, text, "dequeued")
		u, err := q.UpdateMessage(ctx, *m.Messages[0].MessageID, *m.Messages[0].PopReceipt, "new", nil)
		must(err)
		_, err = q.DeleteMessage(ctx, *m.Messages[0].MessageID, *u.PopReceipt, nil)
		must(err)
		_, err = q.DeleteMessage(ctx, *m.Messages[0].MessageID, *u.PopReceipt, nil)
		proof.Same(t, code(t, err), "MessageNotFound", "deleting twice")
		got, err := q.GetProperties(ctx, nil)
		must(err)
		proof.Same(t, *got.ApproximateMessagesCount, 0, "messages")
		_, err = q.ClearMessages(ctx, nil)
		must(err)
		_, err = service.DeleteQueue(ctx, "queue", nil)
		must(err)
	})
}

// azqueue's TestServiceGetStatistics and aztables' TestGetStatistics ask the
// secondary endpoint with the primary's credential.
func TestStatisticsAreThoseOfTheSecondary(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "acct"}}})
	key, err := azqueue.NewSharedKeyCredential("acct", s.Key("acct"))
	must(t, err)
	o := &azqueue.ClientOptions{ClientOptions: once(s.Transport())}
	secondary, err := azqueue.NewServiceClientWithSharedKeyCredential("https://acct-secondary.queue.core.windows.net", key, o)
	must(t, err)
	st, err := secondary.GetStatistics(t.Context(), nil)
	if err != nil || *st.GeoReplication.Status != azqueue.GeoReplicationStatusLive || time.Since(*st.GeoReplication.LastSyncTime) > time.Hour {
		t.Errorf("%+v, %v", st.GeoReplication, err)
	}
	if _, err := secondary.CreateQueue(t.Context(), "queue", nil); code(t, err) != "WriteOperationNotSupportedOnSecondary" {
		t.Errorf("a write to the secondary: %v", err)
	}
	primary, err := azqueue.NewServiceClientFromConnectionString(s.ConnectionString("acct"), o)
	must(t, err)
	if _, err := primary.GetStatistics(t.Context(), nil); code(t, err) != "InvalidQueryParameterValue" {
		t.Errorf("statistics of the primary: %v", err)
	}
	tkey, err := aztables.NewSharedKeyCredential("acct", s.Key("acct"))
	must(t, err)
	tables, err := aztables.NewServiceClientWithSharedKey("https://acct-secondary.table.core.windows.net", tkey, &aztables.ClientOptions{ClientOptions: once(s.Transport())})
	must(t, err)
	if ts, err := tables.GetStatistics(t.Context(), nil); err != nil || *ts.GeoReplication.Status != aztables.GeoReplicationStatusLive {
		t.Errorf("%+v, %v", ts, err)
	}
}

// authorize-with-shared-key: SharedKeyLite for tables, as aztables signs it.
func TestAztablesWorksWithSharedKeyLite(t *testing.T) {
	s := New(Config{BeingDeleted: -1})
	ways(t, s, func(t *testing.T, connection string, o azcore.ClientOptions) {
		service, err := aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{ClientOptions: o})
		must(t, err)
		must(t, errOf(service.CreateTable(t.Context(), "table", nil)))
		defer func() {
			proof.Is(t, proof.ErrOf(service.DeleteTable(context.WithoutCancel(t.Context()), "table", nil)), nil)
		}()
		c := service.NewClient("table")
		must(t, errOf(c.AddEntity(t.Context(), []byte(`{"PartitionKey":"it's","RowKey":"r"}`), nil)))
		must(t, errOf(c.GetEntity(t.Context(), "it's", "r", nil)))
		props, err := service.GetProperties(t.Context(), nil)
		must(t, err)
		must(t, errOf(service.SetProperties(t.Context(), aztables.ServiceProperties{Logging: props.Logging, Cors: []*aztables.CorsRule{{
			AllowedHeaders: new("x"), AllowedMethods: new("GET"), AllowedOrigins: new("*"), ExposedHeaders: new("y"), MaxAgeInSeconds: new(int32(5)),
		}}}, nil)))
		if props, err = service.GetProperties(t.Context(), nil); err != nil || len(props.Cors) != 1 || *props.Cors[0].AllowedOrigins != "*" {
			t.Errorf("%+v, %v", props, err)
		}
	})
}

// signedRequest is a request as authorize-with-shared-key writes it down,
// signed by hand with a key.
func signedRequest(t *testing.T, a *account, scheme, method, target, stringToSign string, headers ...string) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	var sum [32]byte
	req.Header.Set("Authorization", scheme+" "+a.name+":"+base64.StdEncoding.EncodeToString(a.mac.Load().sum(sum[:0], stringToSign)))
	return req
}

// authorize-with-shared-key, the four forms of the string to sign; path style
// has the account twice in the resource (AZURE.md A5, Q70, T50).
func TestTheFourStringsToSign(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "acct"}}})
	a := s.accounts["acct"]
	now := time.Now().UTC().Format(http.TimeFormat)
	for _, c := range []struct{ name, scheme, method, target, text string }{
		{
			"queue SharedKey", "SharedKey", "GET", "https://acct.queue.core.windows.net/?prefix=Q&comp=list",
			"GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:" + now + "\nx-ms-version:2020-02-10\n/acct/\ncomp:list\nprefix:Q",
		},
		{
			"queue SharedKey path style", "SharedKey", "GET", "http://127.0.0.1:10001/acct?comp=list",
			"GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:" + now + "\nx-ms-version:2020-02-10\n/acct/acct\ncomp:list",
		},
		{
			"queue SharedKeyLite", "SharedKeyLite", "GET", "https://acct.queue.core.windows.net/?comp=list&prefix=q",
			"GET\n\n\n\nx-ms-date:" + now + "\nx-ms-version:2020-02-10\n/acct/?comp=list",
		},
		{
			"table SharedKey", "SharedKey", "GET", "https://acct.table.core.windows.net/Tables",
			"GET\n\n\n" + now + "\n/acct/Tables",
		},
		{
			"table SharedKeyLite", "SharedKeyLite", "GET", "https://acct.table.core.windows.net/Tables",
			now + "\n/acct/Tables",
		},
		{
			"table SharedKeyLite path style", "SharedKeyLite", "GET", "http://127.0.0.1:10002/acct/Tables",
			now + "\n/acct/acct/Tables",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := signedRequest(t, a, c.scheme, c.method, c.target, c.text, "x-ms-date", now, "x-ms-version", "2020-02-10", "Accept", "application/json")
			resp, err := s.Transport().Do(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v, %v", resp, err)
			}
			req = signedRequest(t, a, c.scheme, c.method, c.target, c.text+"x", "x-ms-date", now, "x-ms-version", "2020-02-10", "Accept", "application/json")
			if resp, err = s.Transport().Do(req); err != nil || resp.StatusCode != 403 {
				t.Errorf("another string was accepted: %v, %v", resp, err)
			}
		})
	}
}

// common-rest-api-error-codes: AuthenticationFailed 403, NoAuthenticationInformation 401 (Q71,
// T51).
func TestAWrongKeyIsAuthenticationFailedAndTheAnswerTellsWhatWasSigned(t *testing.T) {
	s := New(Config{Accounts: []Account{{Name: "acct"}, {Name: "other"}}})
	wrong := strings.Replace(s.ConnectionString("acct"), s.Key("acct"), s.Key("other"), 1)
	service, err := azqueue.NewServiceClientFromConnectionString(wrong, &azqueue.ClientOptions{ClientOptions: once(s.Transport())})
	must(t, err)
	_, err = service.CreateQueue(t.Context(), "queue", nil)
	if c := code(t, err); c != "AuthenticationFailed" {
		t.Fatalf("%q", c)
	}
	re, _ := errors.AsType[*azcore.ResponseError](err)
	proof.Same(t, re.StatusCode, 403)
	proof.Says(t, err, "x-ms-version:2026-04-06\n/acct/queue", "the string to sign")
	if strings.Contains(err.Error(), s.Key("acct")) {
		t.Error("the answer holds the key")
	}
	tables, err := aztables.NewServiceClientFromConnectionString(wrong, &aztables.ClientOptions{ClientOptions: once(s.Transport())})
	must(t, err)
	if _, err = tables.CreateTable(t.Context(), "table", nil); code(t, err) != "AuthenticationFailed" {
		t.Errorf("tables: %v", err)
	}
}

// common-rest-api-error-codes: NoAuthenticationInformation, InvalidAuthenticationInfo.
func TestARequestWithoutCredentialsIsUnauthenticated(t *testing.T) {
	w, s := newRaw(t, Config{})
	do := func(authorization string) *http.Response {
		req := httptest.NewRequestWithContext(t.Context(), "GET", w.at+"/?comp=list", nil)
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := s.Transport().Do(req)
		must(t, err)
		return resp
	}
	for authorization, want := range map[string]string{
		"":                  "401 NoAuthenticationInformation",
		"Basic abc":         "401 InvalidAuthenticationInfo",
		"Bearer":            "401 InvalidAuthenticationInfo",
		"Bearer x":          "200 ",
		"SharedKey acct":    "403 AuthenticationFailed",
		"SharedKey other:x": "403 AuthenticationFailed",
		"SharedKey acct:!!": "403 AuthenticationFailed",
		"SharedKeyLite a:b": "403 AuthenticationFailed",
	} {
		resp := do(authorization)
		proof.Same(t, itoa(int64(resp.StatusCode))+" "+resp.Header.Get("x-ms-error-code"), want, authorization)
		if resp.StatusCode == 401 && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer authorization_uri=") {
			t.Errorf("%q: no challenge", authorization)
		}
	}
}

// authorize-with-shared-key: "The storage services ensure that a request is no
// older than 15 minutes by the time it reaches the service" (Q73).
func TestARequestDateMoreThanFifteenMinutesOffIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		service, err := azqueue.NewServiceClientFromConnectionString(s.ConnectionString("devstoreaccount1"), &azqueue.ClientOptions{ClientOptions: once(s.Transport())})
		must(t, err)
		for offset, want := range map[time.Duration]string{
			0:                               "",
			15 * time.Minute:                "",
			-15 * time.Minute:               "",
			15*time.Minute + time.Second:    "AuthenticationFailed",
			-(15*time.Minute + time.Second): "AuthenticationFailed",
			48 * time.Hour:                  "AuthenticationFailed",
		} {
			s.SetClockOffset(offset)
			_, err := service.NewListQueuesPager(nil).NextPage(t.Context())
			proof.Same(t, code(t, err), want, "the server's clock", offset, "ahead")
		}
	})
}

// token is a credential whose token can run out.
type token struct {
	given int
	life  time.Duration
}

func (k *token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	k.given++
	return azcore.AccessToken{Token: time.Now().Add(k.life).Format(time.RFC3339), ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// window 38: a token that the server no longer takes is a 401, and the client
// fetches another.
func TestAnExpiredBearerTokenIsAChallengeThatTheClientAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Accounts: []Account{{Name: "acct"}}, Bearer: func(token string, now time.Time) error {
			if end, err := time.Parse(time.RFC3339, token); err != nil || now.After(end) {
				return errors.New("expired")
			}
			return nil
		}})
		cred := &token{life: time.Minute}
		// NewQueueClient answers challenges; in azqueue v2.1.0 NewServiceClient does not.
		q, err := azqueue.NewQueueClient("https://acct.queue.core.windows.net/queue", cred, &azqueue.ClientOptions{ClientOptions: once(s.Transport())})
		must(t, err)
		for range 3 {
			proof.Is(t, proof.ErrOf(q.Create(t.Context(), nil)), nil)
			time.Sleep(2 * time.Minute)
		}
		n := int64(0)
		for _, r := range s.Stats().Requests {
			if r.Status == 401 && r.Code == "InvalidAuthenticationInfo" {
				n = r.Count
			}
		}
		proof.Same(t, n, 2, "challenges")
		proof.Same(t, cred.given, 3, "tokens")
	})
}
