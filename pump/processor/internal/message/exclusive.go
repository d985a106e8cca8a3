package message

import "time"

// holdMost is how long a process starts nothing while a message is to be split. That takes a few
// requests, but the message's account may be dark.
const holdMost = 5 * time.Second

// mayStart reports whether the first task that waits may be started now.
func (b *Backlog) mayStart() bool {
	if len(b.Runnable) == 0 && !b.isDue() || b.pacing {
		return false
	}
	if b.exclusive != nil {
		return b.trying && b.exclusive == b.Runnable[0]
	}
	return b.splitting == 0
}

// isDue reports whether a task that was held until its key's turn may be started.
func (b *Backlog) isDue() bool {
	return b.keys != nil && len(b.keys.due) > 0 && b.exclusive == nil
}

// SetSplitting says whether a message is to be split, until when no task is started. If the process
// ended in the midst of that, its tasks would be there twice, the guilty one included, and every
// further death would make more of them.
func (b *Backlog) SetSplitting(d *Delivery, holds bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if d.slot.splits == holds {
		return
	}
	d.slot.splits = holds
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

// Exclusive stops the starting of all tasks but d's and waits, for patience at most, until no
// handler is at work and no message is being split. It does not wait for handlers that were given
// up. It reports false if d will not be started either.
func (b *Backlog) Exclusive(d *Delivery, patience time.Duration) bool {
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
	for !b.closed && !d.slot.withdrawn && !over && (b.Busy > b.hung || b.splitting > 0) {
		b.calm.Wait()
	}
	b.trying = !b.closed && !d.slot.withdrawn
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

// AddHung notes that so many more handlers were given up.
func (b *Backlog) AddHung(more int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.hung += more
	b.calm.Broadcast()
}

// IsWithdrawn reports whether no task of d will be started here any more.
func (b *Backlog) IsWithdrawn(d *Delivery) bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return d.slot.withdrawn
}

// Pace is the time that an envelope takes for each of its tasks if it has the handlers to itself; 0
// if no task has ended. A batch is handled as one, by one handler.
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

// brakeAhead is how long the waiting tasks should last while a brake is on: longer than a get
// takes, and much shorter than a lease.
const brakeAhead = 5 * time.Second

// braked is how many tasks may wait: limit, or fewer if fewer start soon.
func (b *Backlog) braked(limit float64) float64 {
	if b.brake > 0 {
		return min(limit, 1+b.brake*brakeAhead.Seconds())
	}
	return limit
}

// StartNext lets the next be started: what was given last has had its turn.
func (b *Backlog) StartNext() {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.pacing = false
	b.startable.Broadcast()
}

// Brake limits starts to rate tasks a second, one after the other, and the waiting tasks to those
// that start soon; a rate of 0 limits nothing.
func (b *Backlog) Brake(rate float64) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.brake = rate
	if rate == 0 && !b.paced() {
		b.pacing = false
		b.startable.Broadcast()
	}
	b.wakePoller()
}

// Braked is the rate that starts are held to; 0: they are not.
func (b *Backlog) Braked() float64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.brake
}
