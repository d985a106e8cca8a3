package pump

import (
	"testing"
	"time"
)

// Requests that wait for each other, for connections or a processor, must not call for more of them.
func TestPutsUnderWayFollowTheQuickest(t *testing.T) {
	var q quickest
	if n := q.ahead(2000, 16, 256); n != 40 {
		t.Errorf("%d before anything was measured", n)
	}
	for range 10 {
		q.add(5 * time.Millisecond)
		for range 20 {
			q.add(300 * time.Millisecond)
		}
	}
	if n := q.ahead(2000, 16, 256); n != 20 {
		t.Errorf("%d under way where the quickest take 5 ms", n)
	}
	for range 2 * quickestOf {
		q.add(50 * time.Millisecond) // the way is longer now
	}
	if n := q.ahead(2000, 16, 256); n != 200 {
		t.Errorf("%d under way where all take 50 ms", n)
	}
}
