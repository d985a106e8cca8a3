package setup

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// Reload lets a process that runs take what is new in a configuration: accounts, the limits of
// budgets, the cap on what a day costs and prices. It reports whether anything is new. Upon an
// error, which is a [*pump.ConfigError], nothing has changed. A removed account stays in use, since
// messages of it may be in hand. Foreign queues are not compared: the workload's map says which are
// read.
func Reload(f *queues.Set, now *Config, given pump.Config) (changed bool, err error) {
	next, err := Complete(given)
	if err != nil {
		return false, err
	}
	fixed := func(field, was, is string) error {
		return pump.Invalid(field, fmt.Sprintf("it is %s now, and the running process has %s",
			logs.Quoted(is), logs.Quoted(was)), "put it back, or start the process again")
	}
	switch {
	case next.Workload != now.Workload:
		return false, fixed("workload", now.Workload, next.Workload)
	case next.Control != now.Control && next.ControlGiven:
		return false, fixed("control", now.Control, next.Control)
	case next.Segments != now.Segments:
		return false, fixed("segments", fmt.Sprint(now.Segments), fmt.Sprint(next.Segments))
	case next.Delivery != now.Delivery:
		return false, fixed("delivery", string(now.Delivery), string(next.Delivery))
	case next.ForeignKey != now.ForeignKey:
		return false, fixed("foreign.key", now.ForeignKey, next.ForeignKey)
	case next.ForeignSplit != now.ForeignSplit:
		return false, fixed("foreign.split", fmt.Sprint(now.ForeignSplit), fmt.Sprint(next.ForeignSplit))
	case next.ForeignEncoding != now.ForeignEncoding:
		return false, fixed("foreign.encoding", now.ForeignEncoding, next.ForeignEncoding)
	}
	judged := next
	if now.Sample > 0 { // it samples as it was started
		judged.Sample = now.Sample
	}
	if err := queues.Check(&judged.Config); err != nil {
		return false, err
	}
	dear, err := regive(f, &given)
	if err != nil {
		return false, err
	}
	there := map[string]bool{}
	var added, gone []string
	for _, a := range next.Accounts {
		there[a.Name] = true
		if f.Add(a) {
			added = append(added, a.Name)
		}
	}
	for _, name := range f.Names() {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	limits := queues.Limits{Account: next.Budget.Account, Queue: next.Budget.Queue}
	others := f.SetLimits(limits)
	tell(now.Log, added, gone, others, limits)
	if dear {
		tellMoney(now.Config, next.Config)
	}
	return others || dear || len(added) > 0, nil
}

// tellMoney says what is new of the cap and the prices.
func tellMoney(now, next pump.Config) {
	limit := any("none")
	if next.Budget.CostPerDay > 0 {
		limit = next.Budget.CostPerDay
	}
	p := next.Prices
	now.Log.Info("the cap on what a day costs, or the prices, have changed", "cap", limit,
		"currency", p.Currency, "queue", p.Queue, "table", p.Table)
	if next.Budget.CostPerDay > 0 && now.Sample <= 0 {
		now.Log.Warn("this process keeps to the cap, but samples the queues only after a restart; " +
			"until then the cost of the day is known only if another process samples")
	}
}

// tell says what a reload has changed, and what it has not.
func tell(log *slog.Logger, added, gone []string, others bool, l queues.Limits) {
	if len(added) > 0 {
		log.Info("this process can reach more accounts", "accounts", strings.Join(added, " "))
	}
	if others {
		log.Info("the limits of the budgets have changed", "account", l.Account, "queue", l.Queue)
	}
	if len(gone) > 0 {
		log.Warn("accounts are not in the configuration any more; this process uses them until it ends",
			"accounts", strings.Join(gone, " "))
	}
}
