package pump

import (
	"sync/atomic"

	"github.com/queuepump/queuepump/pump/storage"
)

// operation is a kind of storage request, as it is counted.
type operation uint8

const (
	opPut operation = iota
	opGet
	opRenew
	opReplace
	opDelete
	opCreate
	opRead
	opWrite
	opQuery
	operations // how many there are
)

var operationNames = [operations]string{"put", "get", "renew", "replace", "delete", "create", "read", "write", "query"}

func (o operation) String() string { return operationNames[o] }

// requestCounts counts the requests to one account. It may be used from many
// goroutines at once.
type requestCounts struct {
	made      [operations]atomic.Int64
	throttled atomic.Int64
}

func (c *requestCounts) add(op operation, err error) {
	// A request that was never sent cost the account nothing.
	if err != nil && storage.Is(err, storage.Canceled) {
		return
	}
	c.made[op].Add(1)
	if err != nil && storage.Is(err, storage.Throttled) {
		c.throttled.Add(1)
	}
}

// snapshot gives the counts by the operation's name, without those at zero.
func (c *requestCounts) snapshot() map[string]int64 {
	out := map[string]int64{}
	for op := range operations {
		if n := c.made[op].Load(); n > 0 {
			out[op.String()] = n
		}
	}
	return out
}

// Requests counts the storage requests of a process by account and operation.
type Requests map[string]map[string]int64

// Total is the sum over all accounts and operations.
func (r Requests) Total() int64 {
	var n int64
	for _, ops := range r {
		for _, c := range ops {
			n += c
		}
	}
	return n
}
