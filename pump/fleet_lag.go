package pump

import (
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// lag is how long the requests of one kind to one queue take, lately: of those that
// succeeded, each new one counts for a sixteenth. It may be used from many goroutines.
type lag struct{ ns atomic.Int64 }

// lagFirst is what a request is thought to take before one has succeeded.
const lagFirst = 10 * time.Millisecond

func (l *lag) add(took time.Duration) {
	for {
		old := l.ns.Load()
		next := int64(took)
		if old > 0 {
			next = old + (int64(took)-old)/16
		}
		if l.ns.CompareAndSwap(old, max(next, 1)) {
			return
		}
	}
}

func (l *lag) takes() time.Duration {
	if ns := l.ns.Load(); ns > 0 {
		return time.Duration(ns)
	}
	return lagFirst
}

// ahead is how many requests should be under way at once so that so many a second can
// be made although each takes as long as it does (Little's law, and as much again), from
// least to most.
func (l *lag) ahead(rate float64, least, most int) int {
	return int(min(max(2*rate*l.takes().Seconds(), float64(least)), float64(most)))
}

// A queue whose last silentAfter requests all ended without an answer gets the next ones
// with a deadline of troubledTimeout: requests that hang for requestTimeout would
// go on hanging for most of that when it answers again. It is sixty times what a
// request usually takes; and one that is given up although it would have been answered
// is what every request without an answer is: maybe done.
const (
	silentAfter     = 4
	troubledTimeout = 3 * time.Second
)

// timeout is how long the next request to the queue may take.
func (s *shard) timeout() time.Duration {
	if s.silent.Load() >= silentAfter {
		return troubledTimeout
	}
	return requestTimeout
}

// heard notes how a request ended.
func (s *shard) heard(op operation, took time.Duration, err error) {
	switch {
	case err == nil:
		s.silent.Store(0)
	case storage.CodeOf(err) == storage.MaybeDone:
		s.silent.Add(1)
		return
	case storage.CodeOf(err) == storage.Canceled:
		return
	default:
		s.silent.Store(0)
		return
	}
	switch op {
	case opPut:
		s.puts.add(took)
	case opGet:
		s.gets.add(took)
	case opDelete:
		s.settles.add(took)
	}
}
