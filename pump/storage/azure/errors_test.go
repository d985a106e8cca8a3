package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

func xmlError(code string) string {
	return "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + code + "</Code><Message>What was wrong.\nRequestId:11111111-2222\nTime:2023-06-16T19:55:42.2926148Z</Message></Error>"
}

func jsonError(code string) string {
	return `{"odata.error":{"code":"` + code + `","message":{"lang":"en-US","value":"What was wrong.\nRequestId:11111111-2222\nTime:2023-06-16T19:55:42.2926148Z"}}}`
}

// answered is an answer to a request, and the code that it becomes.
type answered struct {
	op     string
	status int
	code   string
	want   storage.Code
}

// answers are those of azsim/AZURE.md A1, A3 and A4.
var answers = []answered{
	{"delete", 404, "MessageNotFound", storage.Gone},
	{"renew", 404, "MessageNotFound", storage.Gone},
	{"delete", 400, "PopReceiptMismatch", storage.Gone},
	{"renew", 400, "PopReceiptMismatch", storage.Gone},
	{"replace", 400, "PopReceiptMismatch", storage.Gone},
	{"delete", 400, "InvalidQueryParameterValue", storage.Invalid},
	{"get", 400, "OutOfRangeQueryParameterValue", storage.Invalid},
	{"get", 404, "QueueNotFound", storage.Missing},
	{"put", 404, "ResourceNotFound", storage.Missing}, // unknown account
	{"create", 409, "QueueBeingDeleted", storage.Missing},
	{"put", 409, "QueueBeingDeleted", storage.Missing},
	{"put", 409, "QueueDisabled", storage.Missing},
	{"put", 403, "AccountIsDisabled", storage.Missing},
	{"put", 413, "RequestBodyTooLarge", storage.TooLarge},
	{"put", 400, "MessageTooLarge", storage.TooLarge},
	{"put", 413, "", storage.TooLarge},
	{"put", 403, "AuthenticationFailed", storage.Auth},
	{"put", 403, "AuthorizationPermissionMismatch", storage.Auth},
	{"put", 403, "InsufficientAccountPermissions", storage.Auth},
	{"put", 403, "", storage.Auth},
	{"put", 401, "NoAuthenticationInformation", storage.Auth},
	{"put", 401, "", storage.Auth},
	{"put", 400, "InvalidAuthenticationInfo", storage.Auth},
	{"put", 503, "ServerBusy", storage.Throttled},
	{"put", 503, "", storage.Throttled},
	{"put", 500, "OperationTimedOut", storage.Throttled},
	{"put", 429, "TooManyRequests", storage.Throttled},
	{"put", 500, "InternalError", storage.MaybeDone},
	{"put", 500, "", storage.MaybeDone},
	{"put", 502, "", storage.MaybeDone},
	{"put", 504, "", storage.MaybeDone},
	{"put", 408, "", storage.MaybeDone},
	{"put", 307, "", storage.MaybeDone},
	{"put", 200, "", storage.MaybeDone}, // not the 201 of a put
	{"delete", 200, "", storage.MaybeDone},
	{"delete", 404, "", storage.MaybeDone}, // from a proxy, for all one knows
	{"put", 409, "SomethingNew", storage.MaybeDone},
	{"put", 400, "", storage.Invalid},
	{"put", 405, "UnsupportedHttpVerb", storage.Invalid},
	{"put", 411, "MissingContentLengthHeader", storage.Invalid},

	{"table read", 404, "ResourceNotFound", storage.Gone},
	{"table read", 404, "EntityNotFound", storage.Gone},
	{"table read", 404, "TableNotFound", storage.Missing},
	{"table write", 404, "ResourceNotFound", storage.Gone},
	{"table write", 404, "TableNotFound", storage.Missing},
	{"table write", 412, "UpdateConditionNotSatisfied", storage.Precondition},
	{"table write", 412, "ConditionNotMet", storage.Precondition},
	{"table write", 412, "", storage.Precondition},
	{"table write", 409, "EntityAlreadyExists", storage.Exists},
	{"table write", 400, "EntityTooLarge", storage.TooLarge},
	{"table write", 400, "PropertyValueTooLarge", storage.TooLarge},
	{"table write", 400, "TooManyProperties", storage.TooLarge},
	{"table write", 400, "InvalidInput", storage.Invalid},
	{"table write", 415, "JsonFormatNotSupported", storage.Invalid},
	{"table write", 409, "TableBeingDeleted", storage.Missing},
	{"table create", 409, "TableBeingDeleted", storage.Missing},
	{"table drop", 404, "ResourceNotFound", storage.Missing},
	{"table query", 404, "ResourceNotFound", storage.Missing},
	{"table query", 404, "TableNotFound", storage.Missing},
	{"blob get", 404, "BlobNotFound", storage.Gone},
	{"blob get", 404, "ContainerNotFound", storage.Missing},
	{"blob get", 404, "ResourceNotFound", storage.Missing},
	{"blob get", 404, "", storage.MaybeDone},
	{"blob put", 404, "ContainerNotFound", storage.Missing},
	{"blob put", 409, "ContainerBeingDeleted", storage.Missing},
	{"blob put", 413, "RequestBodyTooLarge", storage.TooLarge},
	{"blob put", 503, "ServerBusy", storage.Throttled},
	{"blob delete", 404, "BlobNotFound", storage.Gone},
	{"blob list", 403, "AuthorizationServiceMismatch", storage.Auth},
	{"blob create", 409, "ContainerBeingDeleted", storage.Missing},
	{"table transact", 413, "RequestBodyTooLarge", storage.TooLarge},
	{"table transact", 404, "TableNotFound", storage.Missing},
	{"table read", 503, "ServerBusy", storage.Throttled},
	{"table read", 500, "OperationTimedOut", storage.Throttled},
	{"table read", 403, "AuthenticationFailed", storage.Auth},
}

// They come in the queue's form with the code in header and body, in the table's with the code in
// the JSON only.
func TestAnswersBecomeCodes(t *testing.T) {
	t.Parallel()
	for _, c := range answers {
		f := &fake{status: c.status, body: xmlError(c.code), header: http.Header{"X-Ms-Request-Id": {"11111111-2222"}}}
		op := strings.TrimPrefix(strings.TrimPrefix(c.op, "table "), "blob ")
		if strings.HasPrefix(c.op, "table ") {
			f.body = jsonError(c.code)
		} else if c.code != "" {
			f.header.Set("x-ms-error-code", c.code)
		}
		if c.code == "" {
			f.body = "<html>nothing of the service"
		}
		err := requests[c.op](t.Context(), openFake(t, f))
		e, ok := errors.AsType[*storage.Error](err)
		if !ok || e.Code != c.want || e.Status != c.status || e.Service != c.code || e.Op != op {
			t.Errorf("%s answered %d %s: %#v, want %s", c.op, c.status, c.code, err, c.want)
			continue
		}
		if c.code != "" && !strings.Contains(err.Error(), "What was wrong. (request 11111111-2222)") {
			t.Errorf("%s answered %d %s: %q does not pass on what the service says", c.op, c.status, c.code, err)
		}
		proof.Same(t, f.calls.Load(), 1, c.op, "answered", c.status, c.code, "requests")
	}
}

func TestExistingQueueOrTableIsSuccessOfCreate(t *testing.T) {
	t.Parallel()
	for op, f := range map[string]*fake{
		"create 201":       {status: 201},
		"create 204":       {status: 204},
		"blob create 201":  {status: 201},
		"blob create 409":  {status: 409, body: xmlError("ContainerAlreadyExists")},
		"create 409":       {status: 409, body: xmlError("QueueAlreadyExists")},
		"table create 201": {status: 201, body: `{}`},
		"table create 204": {status: 204},
		"table create 409": {status: 409, body: jsonError("TableAlreadyExists")},
	} {
		proof.Is(t, requests[op[:len(op)-4]](t.Context(), openFake(t, f)), nil, op)
	}
}

// A wrong answer to any request, and a transport that fails: one request, no
// retry, and a code that does not claim more than is known.
func TestOneRequestPerCall(t *testing.T) {
	t.Parallel()
	for op, call := range requests {
		for _, f := range []*fake{
			{status: 503, body: xmlError("ServerBusy")},
			{status: 500, body: "oops"},
			{status: 200, body: "<html>log in</html>"},
			{status: 200, body: ""},
			{status: 202, body: "\n"},
			{status: 204},
			{err: io.ErrUnexpectedEOF},
			{err: &url.Error{Op: "Put", URL: "https://acct.queue.core.windows.net/queue?sig=secret", Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}},
		} {
			err := call(t.Context(), openFake(t, f))
			proof.Same(t, f.calls.Load(), 1, op, "with", f.status, f.err, "requests")
			done := f.status == 204 && map[string]bool{"create": true, "drop": true, "clear": true, "delete": true, "table create": true, "table drop": true}[op]
			done = done || f.status == 202 && op == "blob delete"
			proof.Same(t, done, (err == nil), op, "with", f.status, f.body, err)
			if err != nil && !storage.Ambiguous(err) {
				t.Errorf("%s with %d %v: %v claims to know that nothing was done", op, f.status, f.err, err)
			}
			if f.err != nil && err != nil && !errors.Is(err, errors.Unwrap(f.err)) && !errors.Is(err, f.err) {
				t.Errorf("%s: the cause %v is not found in %v", op, f.err, err)
			}
		}
	}
}

func TestRetryAfterInAllItsForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header http.Header
		want   time.Duration
	}{
		{nil, 0},
		{http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		{http.Header{"Retry-After": {" 0.5 "}}, 500 * time.Millisecond},
		{http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"7"}}, 250 * time.Millisecond},
		{http.Header{"X-Ms-Retry-After-Ms": {"1500"}}, 1500 * time.Millisecond},
		{http.Header{"Retry-After": {"Fri, 16 Jun 2023 19:56:00 GMT"}, "Date": {"Fri, 16 Jun 2023 19:55:30 GMT"}}, 30 * time.Second},
		{http.Header{"Retry-After": {"Fri, 16 Jun 2023 19:55:00 GMT"}, "Date": {"Fri, 16 Jun 2023 19:55:30 GMT"}}, 0},
		{http.Header{"Retry-After": {"soon"}}, 0},
		{http.Header{"Retry-After": {"-5"}}, 0},
		{http.Header{"Retry-After": {"NaN"}}, 0},
		{http.Header{"Retry-After": {"1e300"}}, longestRetryAfter},
		{http.Header{"Retry-After": {"999999999999999999999"}}, longestRetryAfter},
	} {
		if c.header == nil {
			c.header = http.Header{}
		}
		err := requests["put"](t.Context(), openFake(t, &fake{status: 503, header: c.header, body: xmlError("ServerBusy")}))
		if e, ok := errors.AsType[*storage.Error](err); !ok || e.RetryAfter != c.want {
			t.Errorf("%v: %v, want %v", c.header, e.RetryAfter, c.want)
		}
	}
}

func TestNoErrorShowsASecret(t *testing.T) {
	t.Parallel()
	const sig = "c2VjcmV0c2VjcmV0+2VjcmV0c2VjcmV0/2VjcmV0c2U="
	sas := "sv=2022-11-02&ss=qt&srt=sco&sp=rwdlacup&se=2030-01-01&sig=" + url.QueryEscape(sig)
	secrets := []string{testKey, sig, url.QueryEscape(sig), "c2VjcmV0"}
	for _, o := range []Options{
		{ConnectionString: testConnection},
		{ConnectionString: "AccountName=acct;SharedAccessSignature=" + sas},
		{Endpoint: "https://acct.queue.core.windows.net/?" + sas},
	} {
		for op, call := range requests {
			for _, f := range []*fake{
				{err: &url.Error{Op: "Get", URL: "https://acct.queue.core.windows.net/queue/messages?" + sas, Err: errors.New("dial tcp: no")}},
				{err: fmt.Errorf("transport of one's own, for https://acct.queue.core.windows.net/queue?%s: no", sas)},
				{err: fmt.Errorf("key %s, sig=%s, Authorization: SharedKey acct:%s", testKey, sig, sig)},
				{status: 403, body: xmlError("AuthenticationFailed") + sig},
				{status: 403, body: "<Error><Code>AuthenticationFailed</Code><Message>The signature " + sig + " of key " + testKey + " and sig=c2VjcmV0x did not match</Message></Error>"},
				{status: 403, body: jsonError("AuthenticationFailed " + sig)},
			} {
				o.Transport = f
				a, err := Open(o)
				must(t, err)
				err = call(t.Context(), a)
				if err == nil {
					t.Errorf("%s: no error", op)
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					for _, secret := range secrets {
						if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(e.Error(), secret) {
							t.Errorf("%s shows a secret: %s", op, text)
						}
					}
				}
			}
		}
	}
}

// An error's text comes from outside; it must not write lines of its own into a log.
func TestServiceMessagesAreOneBoundedLine(t *testing.T) {
	t.Parallel()
	body := "<Error><Code>Evil\x20Code</Code><Message>first&#13;&#9;still first " + strings.Repeat("é", 4000) + "\nsecond</Message></Error>"
	err := requests["put"](t.Context(), openFake(t, &fake{status: 500, body: body}))
	if text := err.Error(); strings.ContainsAny(text, "\r\n\t") || len(text) > 500 || strings.Contains(text, "second") || strings.Contains(text, "Evil") {
		t.Errorf("%q", text)
	}
}

func TestContextThatEndsBeforeTheRequestIsCanceled(t *testing.T) {
	t.Parallel()
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for op, call := range requests {
		f := &fake{status: 500}
		err := call(ctx, openFake(t, f))
		if !storage.Is(err, storage.Canceled) || !errors.Is(err, cause) || f.calls.Load() != 0 {
			t.Errorf("%s: %v after %d requests", op, err, f.calls.Load())
		}
	}
}

// A context that ends while the request is under way leaves it open whether it was done.
func TestContextThatEndsAfterTheRequestIsMaybeDone(t *testing.T) {
	t.Parallel()
	for op, call := range requests {
		ctx, cancel := context.WithCancel(t.Context())
		a := openFake(t, transportFunc(func(req *http.Request) (*http.Response, error) {
			cancel()
			<-req.Context().Done()
			return nil, req.Context().Err()
		}))
		if err := call(ctx, a); !storage.Is(err, storage.MaybeDone) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

func TestALongMessageOfTheServiceEndsWithASentence(t *testing.T) {
	said := "Server failed to authenticate the request. Make sure the value of Authorization header " +
		"is formed correctly including the signature."
	proof.Same(t, firstLine(said+" Server used following string to sign: '"+strings.Repeat("x", 300)), said)
	proof.Same(t, len(firstLine(strings.Repeat("x", 400))), 303, "bytes of a sentence without an end")
}
