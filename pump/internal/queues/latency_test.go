package queues

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// Requests that wait for each other, for connections or a processor, must not call for more of
// them.
func TestPutsUnderWayFollowTheQuickest(t *testing.T) {
	var q latencyEstimate
	proof.Same(t, q.Ahead(2000, 16, 256), 40, "before anything was measured")
	for range 10 {
		q.add(5 * time.Millisecond)
		for range 20 {
			q.add(300 * time.Millisecond)
		}
	}
	proof.Same(t, q.Ahead(2000, 16, 256), 20, "under way where the quickest take 5 ms")
	for range 2 * estimateOf {
		q.add(50 * time.Millisecond) // the way is longer now
	}
	proof.Same(t, q.Ahead(2000, 16, 256), 200, "under way where all take 50 ms")
}

// What holds for puts holds for gets and deletes: a mean over the slow ones would be 60 times the
// quickest.
func TestGetsAndDeletesUnderWayFollowTheQuickestToo(t *testing.T) {
	var s Queue
	for range 10 {
		for _, op := range []operation{OpGet, OpDelete} {
			s.heard(op, 5*time.Millisecond, nil)
			for range 20 {
				s.heard(op, 300*time.Millisecond, nil)
			}
		}
	}
	proof.Same(t, s.Gets.Ahead(2000, 16, 256), 20, "gets under way where the quickest take 5 ms")
	proof.Same(t, s.Settles.Ahead(2000, 16, 256), 20, "deletes under way where the quickest take 5 ms")
}
