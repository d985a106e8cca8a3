package pump

import (
	"context"
	"time"
)

// signal wakes who waits on c, now or next. The channel has room for one: any
// number of signals before he looks are one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waitFor waits unless the context ends; it reports whether the time is over.
func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
