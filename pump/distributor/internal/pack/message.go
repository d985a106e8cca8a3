package pack

import "sync"

// Message is one sealed envelope.
type Message struct {
	Text     []byte
	Segment  uint32
	First    uint64 // n of its first task
	Tasks    int
	Interval int  // of its first task, for the tracker
	Bad      bool // it is a bad line on its way to quarantine
	Receipts []receiptPart
}

// Texts are buffers for message text, reused from envelope to envelope.
var Texts = sync.Pool{New: func() any { return new([]byte) }}
