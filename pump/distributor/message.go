package distributor

import "sync"

// message is one sealed envelope.
type message struct {
	text     []byte
	segment  uint32
	first    uint64 // n of its first task
	tasks    int
	interval int  // of its first task, for the tracker
	bad      bool // it is a bad line on its way to quarantine
	receipts []receiptPart
}

// texts are buffers for message text, reused from envelope to envelope.
var texts = sync.Pool{New: func() any { return new([]byte) }}
