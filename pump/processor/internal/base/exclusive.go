package base

import (
	"time"

	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// holdMost is for how long a process starts nothing because of a message to be split,
// which takes a few requests: its account may be dark.
const holdMost = 5 * time.Second

// mayStart reports whether the first task that waits may be started now.
func (b *Backlog) mayStart() bool {
	if len(b.Runnable) == 0 || b.pacing {
		return false
	}
	if b.exclusive != nil {
		return b.trying && b.exclusive == b.Runnable[0]
	}
	return b.splitting == 0
}

// SetSplitting says whether a message is to be split, until when no task is started. Were
// the process ended in the midst of that, its tasks would be there twice, the guilty one
// among them, and every further death would make more of them.
func (b *Backlog) SetSplitting(d *message.Delivery, holds bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if d.Splits == holds {
		return
	}
	d.Splits = holds
	if holds {
		b.splitting++
		time.AfterFunc(holdMost, func() { b.SetSplitting(d, false) })
		return
	}
	if b.splitting--; b.splitting == 0 {
		b.calm.Broadcast()
		b.startable.Broadcast()
	}
}

// Exclusive ends the starting of all tasks but those of d and waits until nothing is at work
// or being split, for no longer than patience; handlers that were given up are not waited
// for. It reports false if d will not be started either.
func (b *Backlog) Exclusive(d *message.Delivery, patience time.Duration) bool {
	over := false
	timer := time.AfterFunc(patience, func() {
		b.Mu.Lock()
		defer b.Mu.Unlock()
		over = true
		b.calm.Broadcast()
	})
	defer timer.Stop()
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.exclusive = d
	for !b.closed && !d.Withdrawn && !over && (b.Busy > b.hung || b.splitting > 0) {
		b.calm.Wait()
	}
	b.trying = !b.closed && !d.Withdrawn
	return b.trying
}

// Resume lets everything be opened and started again.
func (b *Backlog) Resume() {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.exclusive, b.trying = nil, false
	b.startable.Broadcast()
	b.openable.Broadcast()
	b.wakePoller()
}

// AddHung says that so many handlers more were given up.
func (b *Backlog) AddHung(more int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.hung += more
	b.calm.Broadcast()
}

// IsWithdrawn reports whether no task of d will be started here any more.
func (b *Backlog) IsWithdrawn(d *message.Delivery) bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return d.Withdrawn
}

// Pace is the time of one task of an envelope that has the handlers to itself; 0 if no envelope has
// ended. A batch is handled as one, by one handler.
func (b *Backlog) Pace() float64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.batch {
		return b.Took / max(b.perMessage, 1)
	}
	return b.Took / float64(b.width)
}

// Seconds is how long a handler is at work for one start, lately; 0 if none has ended.
func (b *Backlog) Seconds() float64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Took
}
