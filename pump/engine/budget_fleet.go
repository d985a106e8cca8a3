package engine

import (
	"slices"

	"github.com/queuepump/queuepump/pump/internal/quota"
)

// retarget gives the budgets other shares of the limits. It is called by one
// goroutine at a time.
func (f *fleet) retarget(t *quota.Targets) {
	f.targets.Store(t) // first, so that a queue opened meanwhile has its share
	if f.tasks != nil {
		f.tasks.SetTarget(t.Tasks)
	}
	for _, name := range f.names {
		a := f.accounts[name]
		if v, ok := t.Accounts[name]; ok {
			a.budget.SetTarget(v)
		}
		for _, s := range a.opened() {
			s.budget.SetTarget(t.Queue(s.String()))
		}
	}
}

// demand is what this process would spend a second on each account if it might:
// what passes the account's budget or, where the queues' own budgets hold more back
// than that, what they would let through.
func (f *fleet) demand() map[string]float64 {
	out := make(map[string]float64, len(f.names))
	for _, name := range f.names {
		a := f.accounts[name]
		queues := 0.
		for _, s := range a.opened() {
			queues += s.budget.Demand()
		}
		out[name] = min(max(a.budget.Demand(), queues), a.budget.Limit)
	}
	if f.tasks != nil {
		out[quota.TasksShare] = f.tasks.Demand()
	}
	return out
}

// expect says that this process is about to work.
func (f *fleet) expect() {
	for _, name := range f.names {
		f.accounts[name].budget.Expect()
	}
	if f.tasks != nil {
		f.tasks.Expect()
	}
}

// guessed reports whether of some account the demand is not measured yet.
func (f *fleet) guessed() bool {
	return slices.ContainsFunc(f.names, func(name string) bool { return f.accounts[name].budget.Guessed() })
}

// short reports whether an account's budget, or those of its queues together, are
// less than a demand.
func (f *fleet) short(name string, demand float64, t *quota.Targets) bool {
	queues := 0.
	for _, s := range f.accounts[name].opened() {
		queues += t.Queue(s.String())
	}
	return min(t.Accounts[name], queues) < demand
}

// budgets shows all budgets: of each account, in the order of the configuration, and of
// its queues by name.
func (f *fleet) budgets() []quota.BudgetState {
	var out []quota.BudgetState
	for _, name := range f.names {
		a := f.accounts[name]
		out = append(out, a.budget.Show(name, ""))
		for _, s := range a.opened() {
			out = append(out, s.budget.Show(name, s.name))
		}
	}
	return out
}
