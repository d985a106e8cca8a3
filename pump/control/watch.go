package control

import (
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// times are how often somebody writes a row of his own, and for how long a
// write is good.
type times struct{ beat, lease, margin time.Duration }

// trust is how long one trusts an own beat, from the moment it was sent (P5.2).
func (t times) trust() time.Duration { return t.lease - t.margin }

// dead is how long an observer must see no beat (P5.3).
func (t times) dead() time.Duration { return t.lease + t.margin }

// timeout bounds one request, so that a request that hangs leaves time for two more.
func (t times) timeout() time.Duration { return min(requestTimeout, t.trust()/3) }

// longer is what an observer goes by whose own times differ from those of whom it observes.
func longer(a, b times) times {
	return times{max(a.beat, b.beat), max(a.lease, b.lease), max(a.margin, b.margin)}
}

// watch is what an observer remembers of a row that somebody beats (P5.3).
type watch struct {
	etag  storage.ETag
	since time.Time // when the answer was here that first showed this version
	last  time.Time // when the last successful read was sent
}

// look notes a successful read and reports whether who beats the row may be
// alive. He may not be if the row did not change over lease + margin of reads
// none of which is further than two beats from the one before: after a longer
// gap the watch begins anew, because he may have had no way to beat either.
func (w *watch) look(etag storage.ETag, sent, received time.Time, t times) (alive bool) {
	if etag != w.etag || received.Sub(w.last) > 2*t.beat {
		w.etag, w.since = etag, received
	}
	w.last = sent
	// The read that ends the watch was sent after the time was over, so that its
	// answer speaks of then.
	return sent.Sub(w.since) < t.dead()
}
