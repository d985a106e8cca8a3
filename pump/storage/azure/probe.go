package azure

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/pump/storage"
)

// The methods here are for a doctor and outside the contract of package storage: the doctor finds
// them by a type assertion, and other drivers need not have them.

// Hosts gives the names or addresses, without ports, of the account's queue service and, if it is
// known, its table service.
func (a *account) Hosts() (queue, table string) {
	if u, err := url.Parse(a.tableURL); err == nil {
		table = u.Hostname()
	}
	return a.queueURL.Hostname(), table
}

// BlobHost gives the name or address, without port, of the account's blob service, or why it is not
// known.
func (a *account) BlobHost() (string, error) {
	if a.noBlobs != nil {
		return "", a.noBlobs
	}
	return a.blobURL.Hostname(), nil
}

// Endpoint is the address of the account's queue service, without credentials.
func (a *account) Endpoint() string { return bare(a.queueURL) }

// bare is an address without a signature.
func bare(address *url.URL) string {
	if address == nil {
		return ""
	}
	u := *address
	u.RawQuery = ""
	return u.String()
}

// Date asks the account for the time. A refusal tells the time too: a clock that is far wrong leads
// to refusals, and then no other request tells how far.
func (a *account) Date(ctx context.Context) (time.Time, error) {
	x := &exchange{want: http.StatusOK, limit: listAnswer}
	err := a.do(ctx, "list", "*", x, func(ctx context.Context) error {
		o := &azqueue.ListQueuesOptions{MaxResults: new(int32(1))}
		_, err := a.queues.NewListQueuesPager(o).NextPage(ctx)
		return err
	})
	if x.status == 0 {
		return time.Time{}, err
	}
	at, err := http.ParseTime(x.header.Get("Date"))
	if err != nil {
		err = errors.New("the answer has no date")
		return time.Time{}, &storage.Error{
			Code: storage.MaybeDone, Op: "list", Account: a.name, Object: "*",
			Status: x.status, Index: -1, Err: err,
		}
	}
	return at, nil
}
