package azsim

import (
	"encoding/base64"
	"encoding/binary"
)

// popReceipt is proof of a delivery: opaque to clients, and in the real service's form (AZURE.md
// A3): base64 of three little-endian uint32 and the FILETIME at which the message becomes visible
// again; four bytes more after an update.
type popReceipt struct {
	kind    uint32 // 2 from a put or get, 3 from an update
	serial  uint64 // of the put, get or update, within the queue: two at one instant differ
	visible int64  // Unix nanoseconds
}

const (
	receiptGiven   = 2
	receiptUpdated = 3
)

// filetimeOffset is 1970-01-01 as a FILETIME, the count of 100 ns since 1601.
const filetimeOffset = 116_444_736_000_000_000

func (p popReceipt) String() string {
	var b [24]byte
	n := 20
	if p.kind == receiptUpdated {
		n = 24
	}
	binary.LittleEndian.PutUint32(b[0:], p.kind)
	binary.LittleEndian.PutUint64(b[4:], p.serial)
	binary.LittleEndian.PutUint64(b[12:], uint64(p.visible/100+filetimeOffset))
	return base64.StdEncoding.EncodeToString(b[:n])
}

// wellFormed reports whether text could be a receipt, which decides between "no such receipt" and
// "no receipt".
func wellFormed(text string) bool {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < 20 {
		return false
	}
	switch binary.LittleEndian.Uint32(b) {
	case receiptGiven:
		return len(b) == 20
	case receiptUpdated:
		return len(b) == 24
	}
	return false
}
