// This file is how the loops of a process go round: how they wait between two rounds, and how
// often they have gone round. By that a supervisor tells a stuck loop from a loop whose attempts
// fail, and from a loop without work.

package waits

import (
	"context"
	"sync/atomic"
	"time"
)

// Rest is how long a loop rests at most while nothing is due: a loop that rested until it is woken
// could not be told from a stuck loop.
const Rest = 10 * time.Second

// Most is the longest time between two rounds of a loop that rests for Rest at most: the loop's own
// work takes microseconds, and the rest of the time is for a machine short of processors or memory.
const Most = Rest + 20*time.Second

// Counter counts the rounds of one loop, or of all of its kind that run at once. The zero value is
// ready; many goroutines may use it at once.
type Counter struct {
	rounds  atomic.Uint64
	running atomic.Int32
}

// Begin says that the loop runs; the returned function says that it has ended.
func (c *Counter) Begin() (end func()) {
	c.rounds.Add(1)
	c.running.Add(1)
	return func() { c.running.Add(-1) }
}

// Add counts a round: an attempt with any result.
func (c *Counter) Add() { c.rounds.Add(1) }

// Count is how many rounds there were.
func (c *Counter) Count() uint64 { return c.rounds.Load() }

// Running reports whether the loop runs.
func (c *Counter) Running() bool { return c.running.Load() > 0 }

// Sleep returns after d, or sooner: when there is a token in wake, when wake is closed, or when ctx
// ends. Over says that d has passed. A nil wake wakes never.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) (over bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	return wait(ctx, t, wake)
}

// Loop goes round until ctx ends. After each round it rests for as long as the round says, or until
// there is a token in wake.
func Loop(ctx context.Context, wake <-chan struct{}, round func() (rest time.Duration)) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for ctx.Err() == nil {
		t.Reset(round())
		wait(ctx, t, wake)
	}
}

// Every calls f each time that d has passed, with the time, until ctx ends.
func Every(ctx context.Context, d time.Duration, f func(now time.Time)) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f(now)
		}
	}
}

func wait(ctx context.Context, t *time.Timer, wake <-chan struct{}) (over bool) {
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
		return true
	}
	return false
}

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
