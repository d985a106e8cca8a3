package row

import (
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Times are how often a process writes a row of its own, and for how long a
// write is good.
type Times struct{ Beat, Lease, Margin time.Duration }

// The bounds of times that stand in a row.
const (
	maxBeat  = 10 * time.Minute
	maxLease = time.Hour
)

// Check bounds times that another process may have to go by.
func (t Times) Check() error {
	switch {
	case t.Beat <= 0 || t.Beat > maxBeat:
		return fmt.Errorf("a beat of %v is not from 1 ns to %v", t.Beat, maxBeat)
	case t.Lease > maxLease:
		return fmt.Errorf("a lease of %v is over %v", t.Lease, maxLease)
	case t.Margin < 0 || t.Margin > t.Lease:
		return fmt.Errorf("a margin of %v is not from 0 to the lease of %v", t.Margin, t.Lease)
	case t.Trust() < 2*t.Beat:
		return fmt.Errorf(
			"a lease of %v less a margin of %v must be at least two beats of %v, "+
				"or one lost beat ends trust",
			t.Lease, t.Margin, t.Beat,
		)
	}
	return nil
}

// Trust is how long one trusts an own beat, from the moment it was sent (P5.2).
func (t Times) Trust() time.Duration { return t.Lease - t.Margin }

// Dead is how long an observer must see no beat (P5.3).
func (t Times) Dead() time.Duration { return t.Lease + t.Margin }

// Timeout bounds one request, so that a request that hangs leaves time for two more.
func (t Times) Timeout() time.Duration { return min(RequestTimeout, t.Trust()/3) }

// Longer gives the times for an observer whose own times differ from those of the observed process.
func Longer(a, b Times) Times {
	return Times{max(a.Beat, b.Beat), max(a.Lease, b.Lease), max(a.Margin, b.Margin)}
}

// Watch is what an observer remembers of a row that another process beats (P5.3).
type Watch struct {
	etag  storage.ETag
	Since time.Time // when the answer was here that first showed this version
	last  time.Time // when the last successful read was sent
}

// Look notes a successful read and reports whether the owner of the row may be alive. The owner
// counts as dead if the row did not change over lease + margin of reads, each within two beats of
// the last. After a longer gap the watch begins again, because the owner may have been unable to
// beat, too.
func (w *Watch) Look(etag storage.ETag, sent, received time.Time, t Times) (alive bool) {
	if etag != w.etag || received.Sub(w.last) > 2*t.Beat {
		w.etag, w.Since = etag, received
	}
	w.last = sent
	// The read that ends the watch was sent after the time was over, so its answer is later, too.
	return sent.Sub(w.Since) < t.Dead()
}
