package queues

import (
	"testing"
	"time"
)

// Requests that wait for each other, for connections or a processor, must not call for more of
// them.
func TestPutsUnderWayFollowTheQuickest(t *testing.T) {
	var q latencyEstimate
	if n := q.Ahead(2000, 16, 256); n != 40 {
		t.Errorf("%d before anything was measured", n)
	}
	for range 10 {
		q.add(5 * time.Millisecond)
		for range 20 {
			q.add(300 * time.Millisecond)
		}
	}
	if n := q.Ahead(2000, 16, 256); n != 20 {
		t.Errorf("%d under way where the quickest take 5 ms", n)
	}
	for range 2 * estimateOf {
		q.add(50 * time.Millisecond) // the way is longer now
	}
	if n := q.Ahead(2000, 16, 256); n != 200 {
		t.Errorf("%d under way where all take 50 ms", n)
	}
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
	if n := s.Gets.Ahead(2000, 16, 256); n != 20 {
		t.Errorf("%d gets under way where the quickest take 5 ms", n)
	}
	if n := s.Settles.Ahead(2000, 16, 256); n != 20 {
		t.Errorf("%d deletes under way where the quickest take 5 ms", n)
	}
}
