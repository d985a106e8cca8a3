package queues

import (
	"time"

	"github.com/queuepump/queuepump/pump"
)

// States says of each account what may be spent on it and whether it answers.
func (f *Set) States(now time.Time) []pump.AccountState {
	names := f.Names()
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
		out[i].DownSeconds, out[i].Refused = a.counts.silence(now)
	}
	return out
}

// Trouble is what became of the last request to an account that does not answer; nil if it does.
func (f *Set) Trouble(account string) error { return f.Account(account).counts.trouble() }
