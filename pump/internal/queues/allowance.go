package queues

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/internal/upkeep"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

const (
	// saved and owed bound what a process may have left of its share, and what it owes: the rest of
	// the day has more for what is not used, and less for what was overdrawn (see rest).
	saved = 10 * time.Second
	owed  = 5 * time.Minute
	// handful is what a process may always have saved: one get of the most messages.
	handful = 34
	// smooth is the time over which it averages what it spends.
	smooth = time.Minute
	// step is the factor by which pauses grow with a look at the cluster while the share is used up,
	// and ease the factor by which they shrink while it is not: a look comes every 5 s or more seldom.
	step, ease = 1.5, 1.25
	// slack is the part of its share below which a process eases.
	slack = 0.7
	// tellEvery is how often a process says that it holds back.
	tellEvery = 10 * time.Minute
)

// Allowance is what a process may spend, and what it has. Without a cap it holds nothing back;
// neither does a nil Allowance. It may be used from many goroutines.
type Allowance struct {
	log    *slog.Logger
	capped atomic.Bool // there is a cap

	mu      sync.Mutex // guards what follows
	cap     float64    // 0: none
	prices  pump.Prices
	at      time.Time    // of the balance
	balance float64      // below zero: it owes
	rate    float64      // its share, a second
	spends  float64      // a second, averaged
	slower  float64      // how many times as long the pauses of empty queues are
	dry     bool         // the bucket was empty since the last look
	holds   bool         // as of the last look: dry, and no pause can grow
	day     int64        // the day of the last known sum
	told    logs.Limited // that it holds back
}

// NewAllowance makes the allowance of a process.
func NewAllowance(cfg *pump.Config) *Allowance {
	a := &Allowance{log: cfg.Log, slower: 1, told: logs.Limited{Every: tellEvery}}
	a.Change(cfg.Budget.CostPerDay, cfg.Prices)
	return a
}

// Change sets the cap, 0 for none, and the prices, and reports whether they have changed.
func (a *Allowance) Change(limit float64, list pump.Prices) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if limit == a.cap && list == a.prices {
		return false
	}
	a.prices = list
	if limit != a.cap {
		a.day, a.rate = -1, limit/dayLength.Seconds() // until it knows more
	}
	if limit > 0 && a.cap == 0 { // from now on
		a.at, a.spends, a.slower, a.dry, a.holds = time.Now(), 0, 1, false, false
		a.told.Over()
		a.balance = a.most()
	}
	a.cap = limit
	a.capped.Store(limit > 0)
	return true
}

// Prices are what requests cost.
func (a *Allowance) Prices() pump.Prices {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.prices
}

// free reports whether nothing is held back. It is asked at each request, and without a lock.
func (a *Allowance) free() bool { return a == nil || !a.capped.Load() }

// most is how much may be saved.
func (a *Allowance) most() float64 {
	return max(a.rate*saved.Seconds(), handful*a.prices.Of("get"))
}

// advance adds what has been granted since. The lock is held.
func (a *Allowance) advance(now time.Time) {
	if past := now.Sub(a.at).Seconds(); past > 0 {
		a.balance = min(max(a.balance, -a.most()-a.rate*owed.Seconds())+a.rate*past, a.most())
		a.spends *= math.Exp(-past / smooth.Seconds())
		a.at = now
	}
}

// Spend counts a request of any kind.
func (a *Allowance) Spend(operation string) {
	if a.free() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(time.Now())
	price := a.prices.Of(operation)
	a.balance -= price
	a.spends += price / smooth.Seconds()
}

// Ready reports whether a get may be made now, and if not, how long to wait until one may.
func (a *Allowance) Ready(now time.Time) (ready bool, wait time.Duration) {
	if a.free() {
		return true, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	if a.balance > 0 {
		return true, 0
	}
	a.dry = true
	return false, time.Duration(min(-a.balance/max(a.rate, 1e-18), 60) * float64(time.Second))
}

// Slow is how long an empty queue is left alone that is otherwise left alone for that long.
func (a *Allowance) Slow(pause time.Duration) time.Duration {
	if a.free() {
		return pause
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return upkeep.SlowPause(pause, a.slower)
}

// Sample is how often the queues are sampled that otherwise are as often as that.
func (a *Allowance) Sample(every time.Duration) time.Duration {
	if a.free() {
		return every
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(every, min(time.Duration(a.slower*float64(every)), upkeep.SampleSlowest))
}

// Follow takes a look at the cluster, at a time of the server's clock, and sets the process's share
// and how slowly it polls.
func (a *Allowance) Follow(v *cluster.View, instance string, server time.Time) {
	if a.free() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(time.Now())
	if d := v.Day(dayOf(server), server); d != nil {
		a.day = dayOf(server)
		a.rate = Share(v, instance, rest(a.cap-d.Cost, server))
	} else if a.day != dayOf(server) { // else the share stays that was last known
		a.rate = Share(v, instance, a.cap/dayLength.Seconds())
	}
	switch {
	case a.dry:
		a.slower = min(a.slower*step, upkeep.MostSlower)
	case a.spends < slack*a.rate:
		a.slower = max(a.slower/ease, 1)
	}
	// The log tells of gets that wait only once slower polling is not enough, which takes half a
	// minute: a burst that waits for seconds is not logged.
	a.holds, a.dry = a.dry && a.slower == upkeep.MostSlower, false
	a.say()
}

// say logs when the process begins to hold back, now and then while it does, and when that is over.
// The lock is held.
func (a *Allowance) say() {
	switch {
	case a.slower > 1:
		what := "empty queues are polled more slowly to keep to budget.costPerDay"
		if a.holds {
			what = "gets are held back to keep to budget.costPerDay; tasks wait"
		}
		a.told.Say(a.log.Warn, what,
			"cap", a.cap, "currency", a.prices.Currency,
			"share_per_day", a.rate*dayLength.Seconds(), "times_slower", math.Round(10*a.slower)/10)
	case a.slower == 1:
		a.told.IsOver(a.log.Info,
			"queues are polled as before: the day's cost is within budget.costPerDay")
	}
}

// Report says in a beat what the process spends, and whether it would spend more.
func (a *Allowance) Report(to *cluster.Report) {
	if a.free() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(time.Now())
	to.Spends, to.Slower, to.HoldsBack = a.spends, a.slower, a.holds
}

// State is what the process may spend, for its observers.
func (a *Allowance) State(to *pump.CostOfDay) {
	if a.free() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	to.Currency, to.Cap, to.Share = a.prices.Currency, new(a.cap), a.rate*dayLength.Seconds()
	to.TimesSlower, to.HoldsBack = a.slower, a.holds
}
