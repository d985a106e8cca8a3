package send

import (
	"math"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// envelopeFor is how long the tasks of one envelope should be in the handlers at most. A hand-over
// waits that long for the envelope, a death repeats that much, and the tasks behind its first ones
// wait that long while other handlers may be free. Envelopes of fast tasks still fill up: the time
// is enough for 640 tasks in 64 handlers of half a second each. The messages of slow tasks cost
// next to nothing, since a processor ends few of them.
const envelopeFor = 5 * time.Second

// envelopeLimits says, by segment, how many tasks an envelope may hold so that its handling
// stays within envelopeFor, as far as processors have said how long a task takes (origins W5):
// a segment's owner, or else the slowest of all. 0: as many as fit. nil: of all segments.
func envelopeLimits(v *cluster.View) []int {
	slowest := 0.
	for i := range v.Members {
		if m := &v.Members[i]; m.Err == nil && m.Role == cluster.RoleProcessor {
			slowest = max(slowest, m.Pace)
		}
	}
	if slowest == 0 {
		return nil
	}
	limits := make([]int, v.Workload.Map.Segments)
	for segment := range limits {
		pace := slowest
		if owner, ok := v.OwnerOf(uint32(segment)); ok && owner.Pace > 0 {
			pace = owner.Pace
		}
		limits[segment] = int(min(max(envelopeFor.Seconds()/pace, 1), math.MaxInt32))
	}
	return limits
}

// Limit is how many tasks a new envelope of a segment may hold by its handling time; 0: any number.
func (r *Router) Limit(segment uint32) int {
	if limits := r.limits.Load(); limits != nil && int(segment) < len(*limits) {
		return (*limits)[segment]
	}
	return 0
}
