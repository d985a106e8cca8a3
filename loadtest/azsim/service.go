package azsim

import (
	"net/http"
	"net/url"
	"time"
)

// service names one of the two services of an account.
type service string

const (
	queueService service = "queue"
	tableService service = "table"
)

// request is one request after the core has read it: the account found, the
// account's name taken off the path, the body read within its bound.
type request struct {
	method  string
	path    string // escaped, after the account: "/q/messages/id", "/t(PartitionKey='p',RowKey='r')"
	query   url.Values
	header  http.Header
	body    []byte
	account *account
	service service
	baseURL string    // what Location headers and ServiceEndpoint attributes begin with, no trailing slash
	now     time.Time // the server's clock when the request arrived: time.Now plus the configured offset
}

// reply is the answer to one request before the common headers are added.
type reply struct {
	status int
	header http.Header // may be nil
	body   []byte
}

// operation is what a request asks for. It is found before the request is
// authorised, counted, throttled or failed on purpose, so that each of those
// can speak of the operation, and carried out last.
type operation struct {
	name       string    // "PutMessage", "GetMessages", "InsertEntity", "Batch", ...: the REST reference's names without spaces
	object     string    // queue or table; "" for operations of the account
	partition  string    // what the per-partition limit is counted on: the queue, or table + partition key; "" if none
	cost       int       // messages or entities that the published limits count
	permission string    // SAS permission letters, any one of which allows it ("r", "au", ...); "" if only an account SAS or key may do it
	keys       [2]string // table service: partition and row key addressed, for SAS key ranges; "" for queries
	run        func() reply
}

// backend is one service of one account. Both methods are called by many
// goroutines at once. route looks at the request only and changes nothing; a
// request it cannot make sense of gives a nil operation and the answer. run
// must not sleep nor wait for anything but a short mutex: virtual time stops
// while a mutex is held across a sleep.
type backend interface {
	route(r *request) (*operation, reply)
}
