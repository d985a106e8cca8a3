package status

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/history"
	"github.com/queuepump/queuepump/pump/internal/money"
	"github.com/queuepump/queuepump/pump/prices"
)

// Money is what the requests of a workload cost, those of all its processes together. The process
// that samples the queues adds them up.
type Money struct {
	Prices prices.List `json:"prices"` // as this configuration has them
	Day    string      `json:"day"`    // UTC: 2026-11-25
	// DayCost is what the day has cost so far, and PerDay what a day costs at the rate of the last
	// minutes. Null if no process samples, or it does not know yet. If the process that samples has
	// prices in another currency, DayCost is that of the requests up to the last row of the history.
	DayCost *float64 `json:"dayCost"`
	PerDay  *float64 `json:"costPerDayNow"`
	// CapPerDay is budget.costPerDay of this configuration; null without. LeastPerDay is what a day of
	// the processes that live costs at the least. Slowed is how many processors poll empty queues more
	// slowly to keep to the cap, and HoldBack how many of them hold back gets as well.
	CapPerDay   *float64 `json:"capPerDay"`
	LeastPerDay float64  `json:"leastPerDay"`
	Slowed      int      `json:"slowed"`
	HoldBack    int      `json:"holdBack"`
	// Accounts are those of the day, by name, as of the last row of the history; empty without one.
	Accounts []MoneyAccount `json:"accounts"`
}

// MoneyAccount is what an account has cost on this day.
type MoneyAccount struct {
	Name     string   `json:"name"` // empty: many accounts together, as [HistoryAccount] has it
	Requests Requests `json:"requests"`
	Cost     float64  `json:"cost"`
}

// lastRows is how old a row of the history may be that tells of the accounts.
const lastRows = 10 * time.Minute

// readMoney reads the last rows of the history. Rows say minutes of the server's clock, from which
// this machine's clock may differ.
func (r *statusReader) readMoney(ctx context.Context) error {
	now := time.Now()
	if !r.view.Stamp().IsZero() {
		now = r.view.ServerTime(now)
	}
	points, err := history.Read(ctx, r.table, r.cfg.Workload, now.Add(-lastRows))
	if len(points) > 0 {
		r.last = &points[len(points)-1]
	}
	return err
}

// slowed counts who holds back.
func (r *statusReader) slowed(m *Money) {
	processors, distributors := 0, 0
	for i := range r.view.Members {
		of := &r.view.Members[i]
		switch {
		case r.silent[of.Instance]:
			continue
		case of.Role == cluster.RoleDistributor:
			distributors++
			continue
		}
		processors++
		if of.Slower > 1 {
			m.Slowed++
		}
		if of.HoldsBack {
			m.HoldBack++
		}
	}
	m.LeastPerDay = money.Least(r.cfg, processors, distributors)
}

// money fills in what the day has cost.
func (r *statusReader) money(s *Status) {
	m := &s.Money
	m.Prices, m.Day, m.Accounts = r.cfg.Prices, s.Time.Format(time.DateOnly), []MoneyAccount{}
	today := s.Time.Unix() / (24 * 60 * 60)
	if c := r.cfg.Budget.CostPerDay; c > 0 {
		m.CapPerDay = &c
	}
	if r.view != nil {
		r.slowed(m)
		if d := r.view.Day(today, r.seen()); d != nil && !r.otherCurrency() {
			m.DayCost = &d.Cost
			m.PerDay = d.PerDay()
		}
	}
	if r.last == nil || r.last.Time.Format(time.DateOnly) != m.Day {
		return
	}
	sum := 0.0
	for _, a := range r.last.Accounts {
		cost := m.Prices.Cost(float64(a.Day.Queue), float64(a.Day.Table))
		sum += cost
		m.Accounts = append(m.Accounts, MoneyAccount{Name: a.Name, Requests: a.Day, Cost: cost})
	}
	if m.DayCost == nil {
		m.DayCost = &sum
	}
}

// otherCurrency reports whether the process that samples the queues has prices in another currency,
// as its rows say: its beats do not.
func (r *statusReader) otherCurrency() bool {
	return r.last != nil && r.last.Currency != "" && r.last.Currency != r.cfg.Prices.Currency
}
