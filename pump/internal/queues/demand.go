package queues

import (
	"math"
	"time"
)

// use is how one budget was used since the last look. It tells what this process would spend if it
// might (P8.1). The budget's mutex guards it.
type use struct {
	since     time.Time     // of the last look
	spent     float64       // since then
	waited    time.Duration // since then, the time in which a request waited
	waitsFrom time.Time     // since when a request waits; zero: none does
	measured  float64       // the demand as of the last look
	guess     float64       // its value until enough was measured

	// shortFrom to shortTo is the last period with hardly a moment without a waiting request; shortTo
	// is set at the end of each wait.
	shortFrom, shortTo time.Time
}

// beginWait notes that a request waits for the budget.
func (u *use) beginWait(now time.Time) {
	if !u.waitsFrom.IsZero() {
		return
	}
	u.waitsFrom = now
	if now.Sub(u.shortTo) > demandBreak {
		u.shortFrom = now
	}
}

func (u *use) endWait(now time.Time) {
	if u.waitsFrom.IsZero() {
		return
	}
	u.waited += u.currentWait(now)
	u.waitsFrom, u.shortTo = time.Time{}, now
}

// short reports whether the process is held back by its budget now, and has been for a while.
func (u *use) short(now time.Time) bool {
	waits := !u.waitsFrom.IsZero() || now.Sub(u.shortTo) <= demandBreak
	return waits && now.Sub(u.shortFrom) >= demandShort
}

// currentWait is how long requests have been waiting without a break since the last look.
func (u *use) currentWait(now time.Time) time.Duration {
	switch {
	case u.waitsFrom.IsZero():
		return 0
	case u.waitsFrom.Before(u.since):
		return now.Sub(u.since)
	}
	return now.Sub(u.waitsFrom)
}

// The demand: looks nearer together than demandEvery do not count. A past demand is halved in each
// second, so a pause between two bursts costs little of a share, and after a beat of 5 s hardly
// anything is left. A process with requests waiting for demandShort, with breaks only to send what
// was paid for, is short of budget now, regardless of before.
const (
	demandEvery = 500 * time.Millisecond
	demandKept  = 0.5
	demandShort = 250 * time.Millisecond
	demandBreak = 50 * time.Millisecond
)

// measure takes the demand: what was spent a second, divided by the part of the
// time in which no request had to wait. A process that is held back all the time may want
// anything up to the limit.
func (u *use) measure(now time.Time, limit float64) {
	passed := now.Sub(u.since)
	if passed < demandEvery {
		return
	}
	waited := u.waited + u.currentWait(now)
	free := 1 - min(waited.Seconds()/passed.Seconds(), 1)
	want := limit
	if rate := u.spent / passed.Seconds(); rate < limit*free && !u.short(now) {
		want = rate / free
	}
	kept := math.Pow(demandKept, passed.Seconds())
	u.measured, u.guess = max(want, u.measured*kept), u.guess*kept
	u.since, u.spent, u.waited = now, 0, 0
}

func (u *use) demand() float64 { return max(u.measured, u.guess) }

// Demand is what this process would spend a second if it might, at most the limit. It is measured
// when asked for, over the time since the last call.
func (b *Budget) Demand() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use.measure(time.Now(), b.Limit)
	return b.use.demand()
}

// Guessed reports whether the demand was not measured. A guess below a hundredth of the limit,
// after 7 s, does not count: it has no effect.
func (b *Budget) Guessed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.use.guess > max(b.use.measured, b.Limit/100)
}

// Expect sets the demand of a new process, whose needs are not known yet: it counts as able to use
// its whole share until its demand is measured.
func (b *Budget) Expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use.since, b.use.spent, b.use.waited, b.use.measured, b.use.guess = time.Now(), 0, 0, 0, b.Limit
}

// Used is the part of the limit that this process would spend as of its last beat, at most 1.
func (b *Budget) Used() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.use.demand() / b.Limit
}
