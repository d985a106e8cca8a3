// This file has the kinds of storage requests, how many of each there were, and how a row
// says that.
//
// A beat says the counts of each kind over all accounts, and by account if that takes no more than
// 2 KiB (up to 80 accounts), as compressed JSON in one property. The muster has 840 KiB for all
// members: 1,000 members with 8 accounts take 253 KiB without these counts and 557 with them, and a
// muster that would be too large leaves out the counts by account. A member's row is read with any
// counts, or none. Requests of members that do not say their kind are a kind without a name, so
// kinds always add up to the sums by service.

package cluster

import (
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// Op is a kind of storage request, as it is counted.
type Op uint8

// The kinds. Rows hold their numbers: a new one comes last.
const (
	OpPut       Op = iota // one message
	OpGet                 // up to 32
	OpRenew               // the time for which a message is hidden
	OpReplace             // of a text
	OpDelete              // of a message
	OpCreate              // of a queue or a table
	OpRead                // of a row
	OpWrite               // of a row, or of some at once
	OpQuery               // of rows
	OpCount               // of a queue
	OpPeek                // up to 32 messages
	OpPutBlob             // a whole blob
	OpGetBlob             // a blob or a part of it
	OpListBlobs           // up to 5,000 names
	OpDeleteBlob
	OpKinds // how many there are
)

var operationsNames = [OpKinds]string{
	"put", "get", "renew", "replace", "delete", "create", "read", "write", "query", "count", "peek",
	"put-blob", "get-blob", "list-blobs", "delete-blob",
}

// String is the kind's name in metrics and in what programs read.
func (k Op) String() string { return operationsNames[k] }

// The services of an account, which have a price each.
const (
	QueueService = "queue"
	TableService = "table"
)

// Service is which of the two services bills requests of the kind; see Of of pump.Prices.
func (k Op) Service() string {
	switch k {
	case OpRead, OpWrite, OpQuery:
		return TableService
	}
	return QueueService
}

// OpCounts says how many requests there were of each kind.
type OpCounts [OpKinds]uint64

// Add gives the sum.
func (c OpCounts) Add(o OpCounts) OpCounts {
	for k := range c {
		c[k] += o[k]
	}
	return c
}

// Since gives what was asked after o; nothing where a count is smaller than before.
func (c OpCounts) Since(o OpCounts) OpCounts {
	for k := range c {
		c[k] -= min(o[k], c[k])
	}
	return c
}

// Max gives the larger count of each kind.
func (c OpCounts) Max(o OpCounts) OpCounts {
	for k := range c {
		c[k] = max(c[k], o[k])
	}
	return c
}

// Of is how many requests to a service there were.
func (c OpCounts) Of(service string) (n uint64) {
	for k := range OpKinds {
		if k.Service() == service {
			n += c[k]
		}
	}
	return n
}

// BlobsMore is what requests to blobs cost beside the price of as many to queues, as which they are
// counted; it may be below 0.
func (c OpCounts) BlobsMore(l pump.Prices) (cost float64) {
	for k := OpPutBlob; k <= OpDeleteBlob; k++ {
		cost += float64(c[k]) * (l.Of(k.String()) - l.Of("get"))
	}
	return cost
}

// Most is what a count never exceeds: a thousand requests a second for 285,000 years.
const MostOps = 1 << 53

// PackOps gives counts, none above Most, for a column of bytes; see [row.Pack]. Each is a list of
// numbers, by kind.
func PackOps(counts []OpCounts) []byte {
	for i := range counts {
		for k, n := range counts[i] {
			counts[i][k] = min(n, MostOps)
		}
	}
	return row.Pack(counts)
}

// UnpackOps gives nil for what is damaged. Kinds that a newer program has added are passed over.
func UnpackOps(packed []byte) (counts []OpCounts) {
	const most = 256 * int64(OpKinds) * 17 // bytes, of 256 accounts
	tooMany := func(c OpCounts) bool { return slices.Max(c[:]) > MostOps }
	if row.Unpack(packed, most, &counts) != nil || slices.ContainsFunc(counts, tooMany) {
		return nil
	}
	return counts
}
