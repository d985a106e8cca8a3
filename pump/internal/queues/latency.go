package queues

import (
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// firstLatency is what a request is thought to take before one has succeeded.
const firstLatency = 10 * time.Millisecond

// latencyEstimate is how long the quickest of the last requests of one kind to one queue took: the
// time of the way and the service. Slower requests spent the difference waiting here: for a
// connection, for a processor. More requests would make that worse: over TLS puts made 2,048
// connections for 5,000 messages, and each took longer for the handshakes of the others. It may be
// used from many goroutines.
type latencyEstimate struct {
	mu          sync.Mutex // guards what follows
	n           int        // requests in now
	now, before time.Duration
}

// estimateOf is the least number of requests in an estimate; the most is twice as many.
const estimateOf = 64

func (q *latencyEstimate) add(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == estimateOf {
		q.before, q.n = q.now, 0
	}
	if q.n == 0 || took < q.now {
		q.now = max(took, 1)
	}
	q.n++
}

func (q *latencyEstimate) estimate() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.n == 0 && q.before == 0:
		return firstLatency
	case q.before == 0:
		return q.now
	case q.n == 0:
		return q.before
	}
	return min(q.now, q.before)
}

// Ahead is how many requests should be under way at once to make rate a second at their present
// time, from least to most: twice what Little's law says.
func (q *latencyEstimate) Ahead(rate float64, least, most int) int {
	return int(min(max(2*rate*q.estimate().Seconds(), float64(least)), float64(most)))
}

// A queue whose last SilentAfter requests all ended without an answer gets the next ones with a
// deadline of TroubledTimeout: requests that hang for waits.RequestTimeout would go on hanging for
// most of that when the queue answers again. It is sixty times what a request usually takes. A
// request that is given up too early is like every request without an answer: maybe done.
const (
	SilentAfter     = 4
	TroubledTimeout = 3 * time.Second
	// wholeEvery: one in so many of those has the whole time, or a queue that has become slow while it
	// did not answer would never be heard again.
	wholeEvery = 16
)

// timeout is how long the next request to the queue may take.
func (s *Queue) timeout() time.Duration {
	if n := s.silent.Load(); n >= SilentAfter && n%wholeEvery != 0 {
		return TroubledTimeout
	}
	return waits.RequestTimeout
}

// heard notes how a request ended.
func (s *Queue) heard(op operation, took time.Duration, err error) {
	switch code := storage.CodeOf(err); {
	case err != nil && code == storage.MaybeDone:
		s.silent.Add(1)
	case err == nil || code != storage.Canceled:
		s.silent.Store(0)
	}
	switch {
	case err != nil:
	case op == OpPut:
		s.Puts.add(took)
	case op == OpGet:
		s.Gets.add(took)
	case op == OpDelete:
		s.Settles.add(took)
	}
}
