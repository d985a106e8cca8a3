// Package operations has the kinds of storage requests, how many of each there were, and how a row
// says that in few bytes.
package operations

import (
	"encoding/binary"
	"math/bits"
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

// most is what a count never reaches: a thousand requests a second for 285,000 years.
const most = 1 << 53

// Append packs the counts: which of them are not zero as the bits of a varint, then those.
func (c Counts) Append(to []byte) []byte {
	set := uint64(0)
	for k, n := range c {
		if n > 0 {
			set |= 1 << k
		}
	}
	to = binary.AppendUvarint(to, set)
	for _, n := range c {
		if n > 0 {
			to = binary.AppendUvarint(to, min(n, most))
		}
	}
	return to
}

// Take unpacks the counts at the beginning of packed, and gives the rest. Kinds that a newer
// program has added are passed over.
func Take(packed []byte) (c Counts, rest []byte, ok bool) {
	set, size := binary.Uvarint(packed)
	if size <= 0 {
		return Counts{}, nil, false
	}
	for packed = packed[size:]; set != 0; set &= set - 1 {
		n, size := binary.Uvarint(packed)
		if size <= 0 || n > most {
			return Counts{}, nil, false
		}
		packed = packed[size:]
		if k := bits.TrailingZeros64(set); k < len(c) {
			c[k] = n
		}
	}
	return c, packed, true
}
