package service

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/queuepump/queuepump/pump"
)

const (
	// lookEvery is how often the process is looked at: a second is how late "ready" may be, and one
	// in sixty of the watchdog's time.
	lookEvery = time.Second
	// statusEvery is how often the line for people changes at most: faster than it is read.
	statusEvery = 5 * time.Second
	// extendEvery is how often a start or a stop that goes on asks for more time, and extendBy for
	// how much: a request has a deadline of 10 s, and joining rests for 19 s between two at most.
	extendEvery = 10 * time.Second
	extendBy    = time.Minute
	// stopsLonger is what a stop takes beyond the grace at most: handlers are given up 5 s after it,
	// messages put back, results recorded and the cluster left.
	stopsLonger = 30 * time.Second
)

// Look is a process at one moment.
type Look struct {
	Started  bool   // the configuration is accepted, and the process has joined or waits for others
	Draining bool   // it stops
	Says     string // what it does, in a line for people
	Loops    []pump.LoopState
}

// Process is the process that the service manager is told of.
type Process struct {
	Look func() Look
	// Grace is how long tasks in work may go on when the process stops.
	Grace time.Duration
	// Requests counts the requests that were answered or given up: a start that makes some is not
	// stuck.
	Requests *atomic.Int64
}

// Watch tells the service manager of a process until the returned function is called with the
// process's error. The end of ctx means that the process was told to stop.
func (m *Manager) Watch(ctx context.Context, p Process) (end func(err error)) {
	if m == nil {
		return func(error) {}
	}
	w := &watch{Manager: m, p: p, loops: map[string]seen{}, began: time.Now()}
	over := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() { w.run(ctx, over) })
	return func(err error) {
		close(over)
		g.Wait()
		if err == nil && !w.ready {
			// The process did all its work before the first look; a service that ends without having been
			// ready has failed.
			m.say(daemon.SdNotifyReady)
		}
		if !w.stopping {
			m.say(daemon.SdNotifyStopping)
		}
	}
}

// watch is one call of Watch; its fields are its goroutine's.
type watch struct {
	*Manager
	p     Process
	began time.Time

	ready, stopping bool
	stopped         time.Time // when it began to stop
	said            string    // the last status
	saidAt          time.Time
	extended        time.Time
	requests        int64 // when the time was extended last
	loops           map[string]seen
	stuck           string
}

// seen is what is known of a loop of the process.
type seen struct {
	rounds uint64
	since  time.Time // when it was last seen to have gone round
}

func (w *watch) run(ctx context.Context, over <-chan struct{}) {
	tick := time.NewTicker(w.every())
	defer tick.Stop()
	told := ctx.Done()
	for {
		w.look(ctx.Err() != nil)
		select {
		case <-tick.C:
		case <-told:
			told = nil
		case <-over:
			return
		}
	}
}

// every is the time between two looks: the watchdog wants three in its time at least.
func (w *watch) every() time.Duration {
	if w.watchdog > 0 {
		return min(lookEvery, w.watchdog/4)
	}
	return lookEvery
}

// look looks at the process and tells the news.
func (w *watch) look(told bool) {
	l, now := w.p.Look(), time.Now()
	var things []string
	if l.Started && !w.ready && !l.Draining && !told {
		w.ready = true
		things = append(things, daemon.SdNotifyReady)
	}
	if (told || l.Draining) && !w.stopping {
		w.stopping, w.stopped, w.extended = true, now, time.Time{}
		things = append(things, daemon.SdNotifyStopping)
	}
	if w.goesOn(now) && now.Sub(w.extended) >= extendEvery {
		w.extended, w.requests = now, w.p.Requests.Load()
		things = append(things, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendBy.Microseconds()))
	}
	if l.Says != w.said && (len(things) > 0 || now.Sub(w.saidAt) >= statusEvery) {
		w.said, w.saidAt = l.Says, now
		things = append(things, status(l.Says))
	}
	if w.lives(l.Loops, now) && w.watchdog > 0 {
		things = append(things, daemon.SdNotifyWatchdog)
	}
	if len(things) > 0 {
		w.say(things...)
	}
}

// goesOn reports whether the process starts or stops and needs more time for it.
func (w *watch) goesOn(now time.Time) bool {
	if w.stopping {
		return now.Sub(w.stopped) < w.p.Grace+stopsLonger
	}
	return !w.ready && w.p.Requests.Load() != w.requests
}

// lives reports whether each loop has gone round within its time.
func (w *watch) lives(loops []pump.LoopState, now time.Time) bool {
	var stuck []string
	for _, l := range loops {
		last, known := w.loops[l.Name]
		if !known || l.Rounds != last.rounds || l.Most == 0 {
			last = seen{l.Rounds, now}
			w.loops[l.Name] = last
		}
		if now.Sub(last.since) > l.Most && l.Most > 0 {
			stuck = append(stuck, l.Name)
		}
	}
	if now := strings.Join(stuck, ", "); now != w.stuck {
		w.stuck = now
		if now != "" && w.watchdog > 0 {
			w.log.Error("a loop of this process is stuck; "+
				"the service manager is not told any more that it lives, and will end it", "loop", now)
		}
	}
	return len(stuck) == 0
}
