package waits

import (
	"context"
	"time"
)

// Signal wakes the goroutine that waits on c, now or next. The channel has room for one: any number
// of signals before the goroutine looks count as one.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Wait waits unless the context ends; it reports whether the time is over.
func Wait(ctx context.Context, d time.Duration) bool { return Sleep(ctx, d, nil) }

// Within gives one request [RequestTimeout].
func Within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return f(ctx)
}

// Get is [Within] for a request that has a result.
func Get[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return f(ctx)
}

// RequestTimeout bounds one storage request from the moment it may be sent. A
// request takes 5 to 50 ms; the service itself gives up after 30 s. Ten seconds
// hold an account's hiccup and stay well under the margin of a lease.
const RequestTimeout = 10 * time.Second
