package queues

import (
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// States says of each account what may be spent on it and whether it answers. An account without
// queues in the map and without rows need not: it is not asked any more, so its last answer would
// stay for ever. Without a map (nil) each is needed.
func (f *Set) States(now time.Time, m *shardmap.Map) []pump.AccountState {
	names, needed := f.Names(), map[string]bool{}
	if m != nil {
		needed = m.Accounts()
	}
	out := make([]pump.AccountState, len(names))
	for i, name := range names {
		a := f.Account(name)
		rate, target := a.Budget.At(now)
		out[i] = pump.AccountState{
			Name: name, BudgetRate: rate, BudgetTarget: target, Throttled: a.counts.throttled.Load(),
		}
		for _, q := range a.opened() {
			out[i].QueueUsed = max(out[i].QueueUsed, q.Budget.Used())
		}
		if m == nil || name == f.Cfg.Control || needed[name] {
			out[i].DownSeconds, out[i].Refused = a.counts.silence(now)
		}
	}
	return out
}

// Trouble is why an account does not do what it is asked: it does not answer, throttles, refuses or
// is disabled; nil if it does.
func (f *Set) Trouble(account string) error { return f.Account(account).counts.trouble() }
