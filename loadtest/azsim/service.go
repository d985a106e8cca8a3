package azsim

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// This file is the seam between the core, which owns everything that the services share (accounts,
// the wire, authorisation, limits, faults, counters, the service properties), and the services,
// which own the meaning of operations. The way of a request:
//
//	core:    find account and service, read the body within its bound, check x-ms-version
//	backend: route: name the operation, its object, cost and permissions
//	core:    plan faults, travel (latency), authorise, charge the limits
//	backend: operation.run: carry it out
//	core:    charge what was served, common headers, travel back, count
//
// The core makes an account's services with newTableStore (table_store.go), newQueueStore and
// newBlobStore.

// service names one of the services of an account.
type service string

const (
	queueService service = "queue"
	tableService service = "table"
	blobService  service = "blob"
)

// request is one request after the core has read it: the account found, the account's name taken
// off the path, the body read within its bound. It is used by one goroutine only.
type request struct {
	method string
	// escaped, after the account: "/q/messages/id", "/t(PartitionKey='p',RowKey='r')"; "/": the
	// service
	path    string
	query   url.Values
	header  http.Header // keys in canonical form, not as the client sent them
	body    []byte      // the backend may keep it: nothing else has it or writes to it
	account *account
	service service
	version string // x-ms-version, one of the known ones; "" if none was sent
	// what Location headers and ServiceEndpoint attributes begin with, no trailing slash
	baseURL string
	id      string // the answer's x-ms-request-id, also in error bodies

	// now is the server's clock (time.Now plus the configured offset, UTC).
	// The core sets it again when the request has arrived, after route and
	// before run: run reads r.now, route keeps no copy of it.
	now time.Time

	// keyRange bounds what the request's SAS may see of a table; the core sets
	// it before run. A query leaves out rows for which keyRange.holds is false;
	// addressed rows (operation.keys) are checked by the core.
	keyRange keyRange

	spared    bool // by rules and by darkness
	secondary bool // the account's read-only secondary endpoint was addressed

	mischief mischief // what an injected fault wants the queue service to do wrong
}

// reply is the answer to one request before the common headers are added
// (Server, x-ms-request-id, x-ms-version, Date, x-ms-client-request-id).
// Errors are made with request.fail, in the form of the request's service.
type reply struct {
	status int
	header http.Header // may be nil; canonical keys; the core takes it over
	body   []byte      // the core takes it over: it is handed to the client as is
	code   string      // error code, "" on success; request.fail fills it in
	served int         // messages in the answer, for limits that charge them (Limits.GetCost)
	// entities that a query looked at, for limits that charge them (Limits.QueryCost)
	looked []looked
}

// looked is how many entities of one partition a query looked at.
type looked struct {
	partition string
	n         int
}

// operation is what a request asks for. It is found before the request is authorised, counted,
// throttled or failed on purpose, so that each of these can name the operation, and is carried out
// last.
type operation struct {
	// "PutMessage", "InsertEntity", "Batch", ...: the REST reference's names without spaces
	name   string
	object string // queue, table or container; "" for operations of the account
	// what a partition's limit is counted on: the queue, or table, "\x00" and partition key, or
	// container, "\x00" and blob; or ""
	partition string
	cost      int // messages or entities that the published limits count; 0 counts as 1

	// The letters that a SAS must hold. Commas separate alternatives; an alternative needs all of its
	// letters: "au" is add and update, "c,w" is create or write, "" is never allowed by that kind of
	// SAS.
	permission        string // service SAS, and the permissions of a stored access policy
	accountPermission string // account SAS
	// account SAS resource type: 's' service, 'c' queue, table, container; 'o' what is in it
	resource byte

	// table service: partition and row keys addressed, for SAS key ranges; nil for queries and tables
	keys [][2]string

	run func() reply
}

// is says what an operation does, with the permissions of a service SAS and of an account SAS.
func (op *operation) is(
	name, permission, accountPermission string, run func() reply,
) (*operation, reply) {
	op.name, op.permission, op.accountPermission, op.run = name, permission, accountPermission, run
	return op, reply{}
}

// backend is one service of one account. Its methods are called by many goroutines at once. route
// looks at the request only and changes nothing; a request that it does not understand gives a nil
// operation and the answer. run must not sleep, and wait only for a short mutex: virtual time stops
// while a mutex is held across a sleep. The bodies of its answers are never written to again.
type backend interface {
	route(r *request) (*operation, reply)

	// policies are the stored access policies of a queue or table; found is false if the object does
	// not exist.
	policies(object string) (p []signedIdentifier, found bool)
}

// account is one storage account. A part that can change has its own lock or is
// atomic; the rest is fixed after New.
type account struct {
	name string
	seed uint64 // of this account, from Config.Seed and its name
	// how long a deleted queue's or table's name stays taken (Config.BeingDeleted)
	beingDeleted time.Duration
	sim          *Sim

	stores          atomic.Pointer[stores]
	queueProperties serviceProperties
	tableProperties serviceProperties
	limiter         atomic.Pointer[limiter]
	mac             atomic.Pointer[macPool]
	dark            atomic.Int32 // darkness
	state           atomic.Int32 // State
}

// stores are what an account holds.
type stores struct{ queues, tables, blobs backend }

func (a *account) backend(of service) backend {
	switch stores := a.stores.Load(); of {
	case tableService:
		return stores.tables
	case blobService:
		return stores.blobs
	default:
		return stores.queues
	}
}

// keyRange is the part of a table that a SAS is good for: from (startPK, startRK) to (endPK,
// endRK), both included, in the table's order. An unset bound is open.
type keyRange struct {
	startPK, startRK, endPK, endRK string
}

// holds reports whether a row lies within the range.
func (k keyRange) holds(pk, rk string) bool {
	return (k.startPK == "" || pk > k.startPK || pk == k.startPK && rk >= k.startRK) &&
		(k.endPK == "" || pk < k.endPK || pk == k.endPK && (k.endRK == "" || rk <= k.endRK))
}

// signedIdentifier is one stored access policy of a queue or table. Reading and writing a set of
// them is the same XML for both services: parseACL and renderACL in acl.go.
type signedIdentifier struct {
	id            string
	start, expiry time.Time // zero: not set
	permission    string    // letters; "" not set
}
