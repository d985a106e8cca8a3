package message

import "time"

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
	if rate == 0 && !b.paced {
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
