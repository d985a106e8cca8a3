package send

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// Loops are the loops of a distribution.
type Loops struct {
	Puts  waits.Counter // attempts to put messages, while there are any
	Sinks waits.Counter // looks at all sinks
	Map   waits.Counter // looks at the age of the map
}

// The longest time between two rounds of loops that are well.
const (
	// PutsMost: a message may wait long for its budget. One of many processes may have one put in
	// minutes.
	PutsMost = 10 * time.Minute
	// MapMost: some 12 s of rest, and a request with its pause.
	MapMost = refreshAfter*5/4 + refreshTimeout + 2*refreshRetry + 20*time.Second
)
