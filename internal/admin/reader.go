package admin

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/status"
)

const (
	// maxWatchers bounds the streams. Each costs a goroutine and a connection.
	maxWatchers = 64
	// linger is how long reading goes on after the last viewer has gone: a page that is loaded again
	// finds everything there.
	linger = 10 * time.Second
	// showEvery is how often what is known is shown again and the rows of a small workload are read;
	// showMost is the same for the largest workload.
	showEvery = 2 * time.Second
	showMost  = 6 * time.Second
	// thingsASecond is how many rows and queues are read and shown a second: each takes some 30 µs,
	// and the page should use at most a CPU-second a minute.
	thingsASecond = 300
	// filling is how long a large workload is shown as often as a small one: its queues come one by
	// one.
	filling = 20 * time.Second
	// doctorEvery is how often the doctor looks: a look makes a queue and a row for a moment, and asks
	// each queue. In a workload of more than doctorMost queues it looks only if a viewer asks for it,
	// because that takes as many requests.
	doctorEvery = 15 * time.Minute
	doctorMost  = 100
	// doctorAfter is the doctor's first wait: what is shown first comes first.
	doctorAfter = 3 * time.Second
	// peekEvery is how often quarantine is looked into if a part of it changed or was not seen;
	// peekAnyway is how often if neither is known.
	peekEvery  = 10 * time.Second
	peekAnyway = time.Minute
)

// every is the time between two readings of so many rows and queues.
func every(things int64) time.Duration {
	return min(showEvery+time.Duration(things)*time.Second/thingsASecond, showMost)
}

// join has the reader read for one more viewer, until leave is called. It gives false if there is
// no room.
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
		p.reading.Lock() // the last one may be about to end
		defer p.reading.Unlock()
		p.read(ctx)
	})
}

// stopIdle ends reading if no viewer is left. A timer of an earlier leave may be early: the next
// viewer starts reading again.
func (p *Page) stopIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers == 0 && p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// read reads for all viewers until ctx ends.
func (p *Page) read(ctx context.Context) {
	w := p.watcher.Load()
	p.shown.Lock()
	p.owned = nil // moves of segments without a viewer were not seen
	p.shown.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { w.Look(ctx) })
	all.Go(func() { p.lookIntoQuarantine(ctx, w) })
	all.Go(func() { p.diagnose(ctx) })
	p.recall()
	for began := time.Now(); ctx.Err() == nil; {
		s, err := w.Rows(ctx)
		if ctx.Err() != nil {
			return
		}
		p.show(s, err)
		for next := time.Now().Add(every(w.Read() + queuesIn(s))); time.Now().Before(next); {
			if !wait(ctx, min(showEvery, time.Until(next))) {
				return
			}
			if time.Now().Before(next) && time.Since(began) < filling {
				p.show(w.Now(), err)
			}
		}
	}
}

// queuesIn is how many queues a workload has.
func queuesIn(s *status.Status) (n int64) {
	if s == nil {
		return 0
	}
	for i := range s.Accounts {
		if a := &s.Accounts[i]; a.State != accounts.Unused {
			n += int64(a.Queues + len(a.Foreign))
		}
	}
	return n
}

// recall takes what was seen before this process watched.
func (p *Page) recall() {
	p.all.Go(func() {
		points := p.hours.since(p.life, time.Now().Add(-pastFor))
		p.shown.Lock()
		defer p.shown.Unlock()
		p.seer.past.add(points)
		p.hub.otherPast()
	})
}

// show shows a status to all viewers.
func (p *Page) show(s *status.Status, err error) {
	p.shown.Lock()
	defer p.shown.Unlock()
	seen := p.seer.See(s, err)
	if s == nil {
		p.hub.put(partHead, head{Headline: seen.Headline, Problems: []string{}, Version: version()})
		return
	}
	failed := err != nil && !errors.Is(err, pump.ErrNoWorkload) // without a workload all is known
	p.hub.put(partHead, headOf(s, seen.Headline, failed))
	p.hub.put(partAccounts, accountsOf(s))
	p.hub.put(partQueues, queuesOf(s))
	p.hub.put(partProcesses, processesOf(s))
	p.hub.put(partRuns, seen.Runs)
	p.hub.put(partMoney, moneySeen{s.Money, Spending(&s.Money)})
	p.hub.put(partGates, s.Gates)
	p.hub.put(partKeys, s.Keys)
	names := ownerNames(s)
	p.moves = append(movesOf(p.owned, names, s.Time), p.moves...)
	p.moves = p.moves[:min(len(p.moves), movesKept)]
	p.owned = names
	p.hub.put(partOwners, ownersOf(names, p.moves))
	if seen.point != nil {
		p.hub.put(partPoint, chartOf([]Point{*seen.point}))
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

// pastFrame is what was seen in the last minutes, for a new viewer.
func (p *Page) pastFrame() []byte {
	p.shown.Lock()
	c := chartOf(p.seer.past.points)
	p.shown.Unlock()
	text, err := event(partPast, c)
	if err != nil {
		p.o.Log.Warn("the last minutes cannot be encoded for the page", "error", err)
	}
	return text
}

// diagnosis is the part of the doctor.
type diagnosis struct {
	At     time.Time      `json:"at"`
	Report *doctor.Report `json:"report"` // null: the doctor has not looked
	Asks   bool           `json:"asks"`   // the doctor looks only if a viewer asks for it
	Looks  bool           `json:"looks"`  // the doctor is at it
}

// diagnose has the doctor look, seldom.
func (p *Page) diagnose(ctx context.Context) {
	if !wait(ctx, doctorAfter) {
		return
	}
	for p.watcher.Load().Now() == nil { // otherwise the size of the workload is not known
		if !wait(ctx, time.Second) {
			return
		}
	}
	for {
		p.shown.Lock()
		p.doctor.Asks = queuesIn(p.watcher.Load().Now()) > doctorMost
		last := p.doctor
		p.shown.Unlock()
		p.hub.put(partDoctor, last)
		if last.Asks {
			select {
			case <-p.asked:
			case <-ctx.Done():
				return
			}
		}
		if rest := time.Until(last.At.Add(doctorEvery)); last.Report != nil && rest > 0 {
			if !last.Asks && !wait(ctx, rest) {
				return
			}
			continue
		}
		last.Looks = true
		p.hub.put(partDoctor, last)
		o := p.o.doctor
		o.Config, o.Locate = p.o.Path, p.o.Locate
		report := doctor.Check(ctx, *p.cfg.Load(), o)
		if ctx.Err() != nil {
			return
		}
		p.shown.Lock()
		p.doctor = diagnosis{At: time.Now().UTC(), Report: report}
		p.shown.Unlock()
	}
}

// lookIntoQuarantine shows what is in quarantine whenever a count of it changed, and from time to
// time: if one message comes as another goes the counts stay the same.
func (p *Page) lookIntoQuarantine(ctx context.Context, w *status.Watcher) {
	var last map[string]int64
	var at time.Time
	var found quarantined
	for {
		now := p.poison.Load()
		if now != nil && len(*now) > 0 &&
			(!maps.Equal(last, *now) || time.Since(at) >= found.lookAgain()) {
			found = peekQuarantine(ctx, *p.cfg.Load(), *now, w.Pay)
			if ctx.Err() != nil {
				return
			}
			p.hub.put(partQuarantine, found)
			last, at = *now, time.Now()
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
