// Package operations has the kinds of storage requests, how many of each there were, and how a row
// says that.
//
// A beat says the counts of each kind over all accounts, and by account if that takes no more than
// 2 KiB (up to 80 accounts), as compressed JSON in one property. The muster has 840 KiB for all
// members: 1,000 members with 8 accounts take 253 KiB without these counts and 557 with them, and a
// muster that would be too large leaves out what is by account. A member's row is read whatever
// stands there. Requests of members that do not say their kind are a kind without a name, so kinds
// always add up to the sums by service.
package operations

import (
	"slices"

	"github.com/queuepump/queuepump/pump/internal/row"
)

// Kind is a kind of storage request, as it is counted.
type Kind uint8

// The kinds. Rows hold their numbers: a new one comes last.
const (
	Put     Kind = iota // one message
	Get                 // up to 32
	Renew               // the time for which a message is hidden
	Replace             // of a text
	Delete              // of a message
	Create              // of a queue or a table
	Read                // of a row
	Write               // of a row, or of some at once
	Query               // of rows
	Count               // of a queue
	Peek                // up to 32 messages
	Kinds               // how many there are
)

var names = [Kinds]string{
	"put", "get", "renew", "replace", "delete", "create", "read", "write", "query", "count", "peek",
}

// String is the kind's name in metrics and in what programs read.
func (k Kind) String() string { return names[k] }

// The services of an account, which have a price each.
const (
	Queue = "queue"
	Table = "table"
)

// Service is which of the two services requests of the kind are paid for; see Of of prices.List.
func (k Kind) Service() string {
	switch k {
	case Read, Write, Query:
		return Table
	}
	return Queue
}

// Counts says how many requests there were of each kind.
type Counts [Kinds]uint64

// Add gives the sum.
func (c Counts) Add(o Counts) Counts {
	for k := range c {
		c[k] += o[k]
	}
	return c
}

// Since gives what was asked after o; nothing where a count is smaller than before.
func (c Counts) Since(o Counts) Counts {
	for k := range c {
		c[k] -= min(o[k], c[k])
	}
	return c
}

// Max gives the larger count of each kind.
func (c Counts) Max(o Counts) Counts {
	for k := range c {
		c[k] = max(c[k], o[k])
	}
	return c
}

// Of is how many requests to a service there were.
func (c Counts) Of(service string) (n uint64) {
	for k := range Kinds {
		if k.Service() == service {
			n += c[k]
		}
	}
	return n
}

// Most is what a count never exceeds: a thousand requests a second for 285,000 years.
const Most = 1 << 53

// Pack gives counts, none above Most, for a column of bytes; see [row.Pack]. Each is a list of
// numbers, by kind.
func Pack(counts []Counts) []byte {
	for i := range counts {
		for k, n := range counts[i] {
			counts[i][k] = min(n, Most)
		}
	}
	return row.Pack(counts)
}

// Unpack gives nil for what is damaged. Kinds that a newer program has added are passed over.
func Unpack(packed []byte) (counts []Counts) {
	const most = 256 * int64(Kinds) * 17 // bytes, of 256 accounts
	if row.Unpack(packed, most, &counts) != nil {
		return nil
	}
	for _, c := range counts {
		if slices.Max(c[:]) > Most {
			return nil
		}
	}
	return counts
}
