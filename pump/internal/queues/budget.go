package queues

import (
	"slices"
)

// Retarget gives the budgets other shares of the limits. It is called by one
// goroutine at a time.
func (f *Set) Retarget(t *Targets) {
	f.Targets.Store(t) // first, so that a queue opened meanwhile has its share
	if tasks := f.Tasks.Load(); tasks != nil && t.Tasks > 0 {
		tasks.SetTarget(t.Tasks)
	}
	for _, name := range f.Names() {
		a := f.Account(name)
		if v, ok := t.Accounts[name]; ok {
			a.Budget.SetTarget(v)
		}
		for _, s := range a.opened() {
			s.Budget.SetTarget(t.Queue(s.String()))
		}
	}
}

// Demand is what this process would spend a second on each account if it might: what passes the
// account's budget or, if the queues' own budgets hold back more, what they would let through.
func (f *Set) Demand() map[string]float64 {
	out := make(map[string]float64, len(f.Names()))
	for _, name := range f.Names() {
		a := f.Account(name)
		queues := 0.
		for _, s := range a.opened() {
			queues += s.Budget.Demand()
		}
		out[name] = min(max(a.Budget.Demand(), queues), f.Limits().Account)
	}
	if tasks := f.Tasks.Load(); tasks != nil {
		out[TasksShare] = tasks.Demand()
	}
	return out
}

// Expect says that this process is about to work.
func (f *Set) Expect() {
	for _, name := range f.Names() {
		f.Account(name).Budget.Expect()
	}
	if tasks := f.Tasks.Load(); tasks != nil {
		tasks.Expect()
	}
}

// Guessed reports whether of some account the demand is not measured yet.
func (f *Set) Guessed() bool {
	return slices.ContainsFunc(f.Names(), func(name string) bool {
		return f.Account(name).Budget.Guessed()
	})
}

// Short reports whether an account's budget, or the sum of its queues' budgets, is less than a
// demand.
func (f *Set) Short(name string, demand float64, t *Targets) bool {
	queues := 0.
	for _, s := range f.Account(name).opened() {
		queues += t.Queue(s.String())
	}
	return min(t.Accounts[name], queues) < demand
}
