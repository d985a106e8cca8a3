package engine

import (
	"time"

	"github.com/queuepump/queuepump/pump"
)

// states says of each account what may be spent on it and whether it answers.
func (f *fleet) states(now time.Time) []pump.AccountState {
	out := make([]pump.AccountState, len(f.names))
	for i, name := range f.names {
		a := f.accounts[name]
		rate, target := a.budget.At(now)
		out[i] = pump.AccountState{Name: name, BudgetRate: rate, BudgetTarget: target, Throttled: a.counts.throttled.Load()}
		out[i].DownSeconds, out[i].Refused = a.counts.silence(now)
	}
	return out
}
