package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// A message's life is a put, its part of a get, a delete and perhaps renewals,
// so a client's processor time goes into these requests. Most of what the SDK's
// methods for them cost is not signing or sending: they parse an address, encode a
// query, make XML that the carrier replaces, and azcore's retry policy parses and
// encodes it all again for a log line that nobody reads. So the SDK makes one
// request of the service that is never sent, and copies of it with other method,
// address and body are sent through the policies that it still had before it:
// the SDK's signing and the rest of its pipeline. What it says in its headers
// (version, who asks) is what the SDK says.

// templates are unsent requests of the SDK, each used by one call at a time,
// because the policies keep values of a request in a map that its copies share.
type templates struct {
	client *azqueue.ServiceClient
	pool   sync.Pool // of *policy.Request
}

type templateKey struct{}

// catcher is the first policy behind the SDK's retries, where the requests that
// become templates end.
type catcher struct{}

var errCaught = errors.New("caught")

func (catcher) Do(req *policy.Request) (*http.Response, error) {
	if into, ok := req.Raw().Context().Value(templateKey{}).(**policy.Request); ok {
		*into = req.Clone(context.Background())
		return nil, errCaught
	}
	return req.Next()
}

// take gives a template for one call, which puts it back.
func (t *templates) take() (*policy.Request, error) {
	if req, ok := t.pool.Get().(*policy.Request); ok {
		return req, nil
	}
	var req *policy.Request
	// Which request it is does not matter: all of them have the same headers.
	_, err := t.client.GetServiceProperties(context.WithValue(context.Background(), templateKey{}, &req), nil)
	if req == nil {
		return nil, fmt.Errorf("the SDK did not make a request: %w", err)
	}
	return req, nil
}

func (t *templates) put(req *policy.Request) { t.pool.Put(req) }

// request is one request to a queue's messages, in the SDK's terms.
type request struct {
	method  string
	message string   // id of the message; empty: the queue's
	params  [2]param // in the order of their names, which are lower-case; a SAS is added
	text    []byte   // the body
}

// param is a parameter of a request; none if it has no name.
type param struct{ name, value string }

// query is the parameters as they stand in an address.
func (r *request) query() string {
	q := ""
	for _, p := range r.params {
		if p.name == "" {
			continue
		}
		if q != "" {
			q += "&"
		}
		q += p.name + "=" + url.QueryEscape(p.value)
	}
	return q
}

// send makes the request. The answer is in the context's exchange, or the error
// says why there is none.
func (q *queue) send(ctx context.Context, r request) error {
	a := q.account
	u := q.address(r.message, r.query())
	t, err := a.templates.take()
	if err != nil {
		return err
	}
	defer a.templates.put(t)
	req := t.WithContext(ctx)
	raw := req.Raw()
	raw.Method, raw.URL, raw.Header = r.method, u, raw.Header.Clone()
	if r.text != nil {
		if err := req.SetBody(streaming.NopCloser(bytes.NewReader(r.text)), "application/xml"); err != nil {
			return err
		}
	}
	_, err = req.Next()
	return err
}

// address is that of the queue's messages or of one of them. Neither a queue's
// name nor a message's id has anything to escape: both were checked.
func (q *queue) address(message, query string) *url.URL {
	u := *q.account.queueURL
	u.Path = messagesPath(u.Path, q.name, message)
	if u.RawPath != "" {
		u.RawPath = messagesPath(u.RawPath, q.name, message)
	}
	switch {
	case u.RawQuery == "":
		u.RawQuery = query
	case query != "":
		u.RawQuery += "&" + query
	}
	return &u
}

func messagesPath(service, queue, message string) string {
	if message == "" {
		return service + "/" + queue + "/messages"
	}
	return service + "/" + queue + "/messages/" + message
}
