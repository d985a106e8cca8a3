package page

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/status"
)

const (
	// maxWatchers bounds the streams. Each costs a goroutine and a connection.
	maxWatchers = 64
	// linger is for how long reading goes on after the last one who watched has gone: a page that is
	// loaded again finds all there.
	linger = 10 * time.Second
	// showEvery is how often what is known is shown anew, and the rows of a small workload are read.
	showEvery = 2 * time.Second
	// rowsMost is how far apart two readings of rows are at most.
	rowsMost = 12 * time.Second
	// rowsASecond is how many rows are read a second: decoding one takes some 8 µs, and at most a
	// CPU-second a minute is to be spent.
	rowsASecond = 700
	// doctorEvery is how often the doctor looks: a look takes requests and makes a queue and a row
	// for a moment.
	doctorEvery = 15 * time.Minute
	// doctorAfter lets what is shown first come first.
	doctorAfter = 3 * time.Second
	// peekEvery is how often quarantine is looked into, if something of it changed.
	peekEvery = 10 * time.Second
)

// rowsEvery is how far apart two readings of so many rows are.
func rowsEvery(rows int64) time.Duration {
	return min(showEvery+time.Duration(rows)*time.Second/rowsASecond, rowsMost)
}

// join has the reader read for one more who watches, until leave is called. It gives false if there
// is no room.
func (p *Page) join() (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil || p.watchers >= maxWatchers {
		return nil, false
	}
	p.watchers++
	if p.stop == nil {
		p.start()
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watchers--; p.watchers == 0 {
			time.AfterFunc(linger, p.stopIdle)
		}
	}), true
}

// start starts the reader. The caller holds the lock.
func (p *Page) start() {
	p.hub.clear()
	ctx, cancel := context.WithCancel(p.life)
	p.stop = cancel
	p.all.Go(func() {
		p.reading.Lock() // the one before may be about to end
		defer p.reading.Unlock()
		p.read(ctx)
	})
}

// stopIdle ends reading if no one watches. A timer of an earlier leave may be early: who comes and
// goes has reading start again.
func (p *Page) stopIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers == 0 && p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// read reads for all who watch until ctx ends.
func (p *Page) read(ctx context.Context) {
	w := p.watcher.Load()
	p.shown.Lock()
	p.owned = nil // what moved while no one watched was not seen to move
	p.shown.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { w.Look(ctx) })
	all.Go(func() { p.lookIntoQuarantine(ctx, w) })
	all.Go(func() { p.diagnose(ctx) })
	p.recall(ctx)
	for ctx.Err() == nil {
		s, err := w.Rows(ctx)
		if ctx.Err() != nil {
			return
		}
		p.show(s, err)
		for next := time.Now().Add(rowsEvery(w.Read())); time.Now().Before(next); {
			if !wait(ctx, min(showEvery, time.Until(next))) {
				return
			}
			if time.Now().Before(next) {
				p.show(w.Now(), err)
			}
		}
	}
}

// recall takes what was seen before this process watched.
func (p *Page) recall(ctx context.Context) {
	if p.o.Past == nil {
		return
	}
	p.all.Go(func() {
		points, err := p.o.Past(ctx, time.Now().Add(-pastFor))
		if err != nil {
			p.o.Log.Debug("what was seen before cannot be read", "error", err)
			return
		}
		p.shown.Lock()
		defer p.shown.Unlock()
		p.past.add(points)
	})
}

// show makes a status what all see.
func (p *Page) show(s *status.Status, err error) {
	p.shown.Lock()
	defer p.shown.Unlock()
	if s == nil {
		p.hub.put(partHead, head{Headline: HeadlineOf(nil, Trend{}, err), Problems: []string{}})
		return
	}
	point, trend := (*Point)(nil), Trend{}
	if err == nil {
		point, trend = p.past.see(s)
	}
	p.hub.put(partHead, headOf(s, HeadlineOf(s, trend, err), err != nil))
	p.hub.put(partAccounts, accountsOf(s))
	p.hub.put(partQueues, queuesOf(s))
	p.hub.put(partProcesses, processesOf(s))
	p.hub.put(partRuns, runsOf(s, p.pace.see(s.Time, doneOf(s))))
	p.hub.put(partGates, s.Gates)
	p.hub.put(partKeys, s.Keys)
	names := ownerNames(s)
	p.moves = append(movesOf(p.owned, names, s.Time), p.moves...)
	p.moves = p.moves[:min(len(p.moves), movesKept)]
	p.owned = names
	p.hub.put(partOwners, ownersOf(names, p.moves))
	if point != nil {
		p.hub.put(partPoint, chartOf([]Point{*point}))
	}
	p.poison.Store(new(poisonOf(s)))
}

// poisonOf is how many messages are in quarantine in each account; -1: it does not answer.
func poisonOf(s *status.Status) map[string]int64 {
	of := map[string]int64{}
	for i := range s.Accounts {
		a := &s.Accounts[i]
		if a.Poison != nil {
			of[a.Name] = *a.Poison
		} else if a.Dark != "" {
			of[a.Name] = -1
		}
	}
	return of
}

// pastFrame is what was seen in the last minutes, for one who has just come.
func (p *Page) pastFrame() []byte {
	p.shown.Lock()
	c := chartOf(p.past.points)
	p.shown.Unlock()
	text, err := event(partPast, c)
	if err != nil {
		p.o.Log.Warn("the past cannot be written down", "error", err)
	}
	return text
}

// diagnosis is the part of the doctor.
type diagnosis struct {
	At     time.Time      `json:"at"`
	Report *doctor.Report `json:"report"`
}

// diagnose has the doctor look, seldom.
func (p *Page) diagnose(ctx context.Context) {
	if !wait(ctx, doctorAfter) {
		return
	}
	for {
		p.shown.Lock()
		last := p.doctor
		p.shown.Unlock()
		if rest := time.Until(last.At.Add(doctorEvery)); last.Report != nil && rest > 0 {
			p.hub.put(partDoctor, last)
			if !wait(ctx, rest) {
				return
			}
			continue
		}
		o := p.o.doctor
		o.Config, o.Locate = p.o.Path, p.o.Locate
		report := doctor.Check(ctx, *p.cfg.Load(), o)
		if ctx.Err() != nil {
			return
		}
		p.shown.Lock()
		p.doctor = diagnosis{time.Now().UTC(), report}
		p.shown.Unlock()
	}
}

// lookIntoQuarantine shows what is in quarantine, whenever something of it changed.
func (p *Page) lookIntoQuarantine(ctx context.Context, w *status.Watcher) {
	var last map[string]int64
	for {
		now := p.poison.Load()
		if now != nil && len(*now) > 0 && !maps.Equal(last, *now) {
			found := peekQuarantine(ctx, *p.cfg.Load(), *now, w.Pay)
			if ctx.Err() != nil {
				return
			}
			p.hub.put(partQuarantine, found)
			last = *now
			if found.Shown > 0 && !wait(ctx, peekEvery) {
				return
			}
		}
		if !wait(ctx, time.Second) {
			return
		}
	}
}

// wait waits; false: ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
