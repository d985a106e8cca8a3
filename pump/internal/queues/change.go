package queues

import (
	"maps"
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Names are those of all accounts: in the order of the configuration, and then as they were added.
// The list is not to be changed.
func (f *Set) Names() []string { return f.directory.Load().names }

// Account gives an account by its name; nil: this process has no credentials for it.
func (f *Set) Account(name string) *Account { return f.directory.Load().accounts[name] }

// Add makes an account reachable for this process from now on, without a request. An existing
// account of that name stays. The account must have its defaults.
func (f *Set) Add(a pump.Account) (added bool) {
	f.change.Lock()
	defer f.change.Unlock()
	if f.Account(a.Name) != nil {
		return false
	}
	acct := &Account{
		Name: a.Name, Store: a.Storage, Budget: NewBudget(f.Limits().Account),
		shards: map[string]*Queue{},
	}
	acct.counts.allowance = f.Allowance
	if f.Cfg.Sample > 0 {
		acct.known = &known{later: map[int64]int{}}
	}
	acct.Poison = f.open(acct, workload.PoisonQueue(f.Cfg.Workload))
	next := directory{
		accounts: maps.Clone(f.directory.Load().accounts), names: append(slices.Clip(f.Names()), a.Name),
	}
	next.accounts[a.Name] = acct
	f.directory.Store(&next)
	return true
}

// Limits are those of an account and of a queue, of all processes together.
func (f *Set) Limits() Limits { return *f.limits.Load() }

// SetLimits sets the limits of all accounts and queues, and reports whether they have changed.
// Until the shares of this process follow (Retarget), it spends in proportion.
func (f *Set) SetLimits(l Limits) (changed bool) {
	f.change.Lock()
	defer f.change.Unlock()
	if f.Limits() == l {
		return false
	}
	f.limits.Store(&l) // first, so that a queue opened meanwhile has it
	for _, name := range f.Names() {
		a := f.Account(name)
		a.Budget.SetLimit(l.Account)
		for _, s := range a.opened() {
			s.Budget.SetLimit(l.Queue)
		}
	}
	return true
}
