package pump

import "time"

// states says of each account what may be spent on it and whether it answers.
func (f *fleet) states(now time.Time) []AccountState {
	out := make([]AccountState, len(f.names))
	for i, name := range f.names {
		a := f.accounts[name]
		rate, target := a.budget.At(now)
		out[i] = AccountState{Name: name, BudgetRate: rate, BudgetTarget: target, Throttled: a.counts.throttled.Load()}
		out[i].DownSeconds, out[i].Refused = a.counts.silence(now)
	}
	return out
}
