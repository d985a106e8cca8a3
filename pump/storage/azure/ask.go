package azure

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// TableEndpoint is the address of the account's table service, without credentials; empty if it is
// not known.
func (a *account) TableEndpoint() string { return a.tableURL }

// raw is a request that the caller writes: it shows what the service does with a request that an
// SDK refuses to send.
type raw struct {
	address *url.URL
	header  http.Header
	small   bool // names that begin with x-ms- are in small letters: but for aztables, SDKs look so
}

// write puts address and headers into the SDK's request, which is signed after it.
func (w *raw) write(req *http.Request) {
	req.URL, req.Host = w.address, w.address.Host
	for name, values := range w.header {
		for written := range req.Header { // azqueue writes some in small letters
			if strings.EqualFold(written, name) {
				delete(req.Header, written)
			}
		}
		if w.small && strings.HasPrefix(strings.ToLower(name), "x-ms-") {
			name = strings.ToLower(name)
		}
		if len(values) > 0 && values[0] != "" {
			req.Header[name] = values
		}
	}
}

// BlobEndpoint is that of the account's blob service, as TableEndpoint is.
func (a *account) BlobEndpoint() string { return bare(a.blobURL) }

// Ask sends one request to a service of the account, "table", "blob" or else that of queues, and
// gives the answer, an error too. The path and query of req follow the service's address. Its
// headers replace the SDK's; a header without a value removes the SDK's. It is signed as the
// driver's own requests are.
func (a *account) Ask(
	ctx context.Context, service string, req *http.Request,
) (*http.Response, error) {
	base, sas, missing := a.Endpoint(), a.queueURL.RawQuery, error(nil)
	if service == "table" {
		base, sas, missing = a.tableURL, a.tableSAS, a.noTables
	} else if service == "blob" {
		if base, missing = a.BlobEndpoint(), a.noBlobs; missing == nil {
			sas = a.blobURL.RawQuery
		}
	}
	if missing != nil {
		return nil, missing
	}
	address, err := url.Parse(strings.TrimSuffix(base, "/") + req.URL.EscapedPath())
	if err != nil {
		return nil, a.hide.error(err)
	}
	address.RawQuery = strings.Trim(req.URL.RawQuery+"&"+sas, "&")
	x := &exchange{
		method: req.Method, raw: &raw{address, req.Header, service != "table"}, want: -1,
		limit: pageAnswer, contentType: req.Header.Get("Content-Type"),
	}
	if req.Body != nil {
		if x.body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	err = a.do(ctx, "ask", req.URL.Path, x, func(ctx context.Context) error {
		if service == "table" {
			_, err := a.tables.NewListTablesPager(&aztables.ListTablesOptions{}).NextPage(ctx)
			return err
		}
		// A request to blobs is signed as one to queues is.
		_, err := a.queues.NewListQueuesPager(&azqueue.ListQueuesOptions{}).NextPage(ctx)
		return err
	})
	if x.status == 0 {
		return nil, err
	}
	return &http.Response{
		StatusCode: x.status, Header: x.header, Body: io.NopCloser(bytes.NewReader(x.answer)),
	}, nil
}
