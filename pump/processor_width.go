package pump

import (
	"context"
	"time"
)

// How many handlers are at work at once, where the user does not say.
const (
	// firstWidth is where it begins; between leastWidth and mostWidth it is found. Each costs
	// a goroutine and whatever a handler holds, often a connection.
	firstWidth = 64
	leastWidth = 8
	mostWidth  = 1024
	// quickTask is what a handler takes whose width does not matter: 64 of them do 64,000
	// tasks a second.
	quickTask = time.Millisecond
	// widthEvery is how often it is looked at. A measure takes as long as every handler
	// needs for widthStarts tasks, and a second at least: the mean of 256 times of a handler
	// whose times are spread as widely as an exponential's is right to 6 percent.
	widthEvery  = time.Second
	widthStarts = 4
	// saturated is the part of the time that handlers are at work where there always is
	// something to do. Below it more of them do not help.
	saturated = 0.8
	// Half as many again do half as much again if nothing holds them back. If it is
	// less than wider times as much, something does, and the narrower one is better; if two thirds
	// do narrower times as much or more, the others only wait for each other.
	wider    = 1.2
	narrower = 0.97
	// After it was found it is looked for again: what handlers wait for changes. Each time that
	// it has not changed, after twice as long.
	firstWidthRest = 15 * time.Second
	mostWidthRest  = 5 * time.Minute
	// trialMost ends a trial whose handlers do not come to an end.
	trialMost = 5 * time.Minute
)

// work is what the handlers of a process have done since it began.
type work struct {
	starts   int64         // that have ended: of tasks, or of batches
	busy     time.Duration // in handlers, of all together
	finished int64         // tasks that succeeded
	failed   int64
}

func (w work) since(before work) work {
	return work{w.starts - before.starts, w.busy - before.busy, w.finished - before.finished, w.failed - before.failed}
}

// width finds how many handlers should be at work at once (origins W5). It tries wider and narrower
// ones for a while and stays with what does more, or as much with fewer. What a
// width does follows from how long its handlers take, by Little's law: width / took starts a second
// if there always is something to do. Counting what ends in a second says less: of handlers that begin
// together and take a second, all end in it or none does. Failures do not count as done, so
// a service that refuses what is too much for it is not called more often for it.
//
// It is its caller's alone.
type width struct {
	now   int // handlers
	best  int // the width to go back to
	rate  float64
	phase widthPhase
	up    bool // which way the trial under way goes
	vain  int  // trials since the last that was better; after both ways, a rest

	rest    time.Duration
	restEnd time.Time
	from    work // what was done when the phase began
	began   time.Time
}

// widthPhase is what is being waited for.
type widthPhase uint8

const (
	widthMeasures widthPhase = iota // at best, while it is saturated
	widthSettles                    // after a change, until what was begun before it has ended
	widthTries                      // at another
	widthRests
)

func newWidth(now time.Time) *width {
	return &width{now: firstWidth, best: firstWidth, up: true, rest: firstWidthRest, began: now}
}

// look is told what was done until now, and says how many handlers should be at work.
func (w *width) look(now time.Time, done work) int {
	since, passed := done.since(w.from), now.Sub(w.began)
	enough := since.starts >= int64(widthStarts*w.now) && passed >= widthEvery
	switch w.phase {
	case widthRests:
		if now.After(w.restEnd) {
			w.enter(widthMeasures, now, done)
		}
	case widthMeasures:
		switch {
		case !enough && passed < trialMost:
		case !enough || since.busy.Seconds() < saturated*passed.Seconds()*float64(w.now) || since.mean() < quickTask:
			w.enter(widthMeasures, now, done)
		default:
			w.rate = since.rate(w.now)
			w.try(now, done)
		}
	case widthSettles:
		if since.starts >= int64(max(w.now, w.best)) {
			w.enter(widthTries, now, done)
		} else if passed > trialMost {
			w.giveUp(now, done)
		}
	case widthTries:
		if enough {
			w.judge(since.rate(w.now), now, done)
		} else if passed > trialMost {
			w.giveUp(now, done)
		}
	}
	return w.now
}

func (w work) mean() time.Duration { return w.busy / time.Duration(max(w.starts, 1)) }

// rate is how many starts a second so many handlers do that always have something to do.
func (w work) rate(width int) float64 {
	good := float64(w.finished) / float64(max(w.finished+w.failed, 1))
	return good * float64(width) / max(w.mean().Seconds(), 1e-9)
}

func (w *width) enter(phase widthPhase, now time.Time, done work) {
	w.phase, w.began, w.from = phase, now, done
}

// try begins a trial of the next width, or of the one on the other side.
func (w *width) try(now time.Time, done work) {
	next := func() int {
		if w.up {
			return min(w.best*3/2, mostWidth)
		}
		return max(w.best*2/3, leastWidth)
	}
	if next() == w.best {
		w.up = !w.up
		w.vain++
	}
	w.now = next()
	w.enter(widthSettles, now, done)
}

// judge ends a trial that was measured.
func (w *width) judge(rate float64, now time.Time, done work) {
	// Near the ends the next width is less than half as many again.
	needed := 1 + (wider-1)*2*(float64(w.now)/float64(w.best)-1)
	if !w.up {
		needed = narrower
	}
	if rate < w.rate*needed {
		w.giveUp(now, done)
		return
	}
	w.best, w.rate, w.vain, w.rest = w.now, rate, 0, firstWidthRest
	w.try(now, done)
}

// giveUp goes back to what was better, and tries the other way or, after both, rests.
func (w *width) giveUp(now time.Time, done work) {
	w.now, w.up = w.best, !w.up
	if w.vain++; w.vain < 2 {
		w.enter(widthMeasures, now, done)
		return
	}
	w.vain = 0
	w.restEnd = now.Add(w.rest)
	w.rest = min(2*w.rest, mostWidthRest)
	w.enter(widthRests, now, done)
}

// adjust lets width decide until ctx ends.
func (r *processing) adjust(ctx context.Context) {
	w := newWidth(time.Now())
	ticker := time.NewTicker(widthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.cfg.seeding.turn.wait("width")
			done := r.backlog.work()
			done.finished, done.failed = r.counts.handled.Load(), r.counts.failed.Load()
			before := w.now
			if n := w.look(time.Now(), done); n != before {
				r.pool.widen(n)
				r.log.Debug("handlers at once", "from", before, "to", n)
			}
		}
	}
}
