package status

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sampling"
)

// Money is what the requests of all processes of a workload cost together. The process that samples
// the queues adds them up.
type Money struct {
	Prices pump.Prices `json:"prices"` // as this configuration has them
	Day    string      `json:"day"`    // UTC: 2026-11-25
	// DayCost is what the day has cost so far, and PerDay what a day costs at the rate of the last
	// minutes. Null if no process samples, or it does not know yet. If the process that samples has
	// prices in another currency, DayCost is computed here, of the requests up to the last row of the
	// history.
	DayCost *float64 `json:"dayCost"`
	PerDay  *float64 `json:"costPerDayNow"`
	// CapPerDay is budget.costPerDay of this configuration; null without a cap. LeastPerDay is the
	// least that a day of the live processes costs. Slowed is how many processors poll empty queues
	// more slowly to keep to the cap, and HoldBack is how many of those hold back gets as well.
	CapPerDay   *float64 `json:"capPerDay"`
	LeastPerDay float64  `json:"leastPerDay"`
	Slowed      int      `json:"slowed"`
	HoldBack    int      `json:"holdBack"`
	// Operations are the day's requests by kind, by service and name; empty if that
	// is not known. They add up to DayCost if the process that samples has the same prices.
	Operations []MoneyOperation `json:"operations"`
	// Accounts are the day's costs by account, by name, as of the last row of the history; empty
	// without a row.
	Accounts []MoneyAccount `json:"accounts"`
}

// MoneyRequests are requests of one kind.
type MoneyRequests struct {
	// Operation is the kind, as metrics have it: "get"; empty: requests of processes that do not say
	// the kind.
	Operation string  `json:"operation"`
	Service   string  `json:"service"` // "blob", "queue", "table"
	Requests  uint64  `json:"requests"`
	Cost      float64 `json:"cost"`
}

// MoneyOperation is what requests of one kind have cost on this day, how many there were a minute
// in the last minutes, and what such a minute costs; null: not known.
type MoneyOperation struct {
	MoneyRequests
	PerMinute     *float64 `json:"perMinuteNow"`
	CostPerMinute *float64 `json:"costPerMinuteNow"`
}

// MoneyAccount is what an account has cost on this day.
type MoneyAccount struct {
	Name     string   `json:"name"` // empty: many accounts together, as [HistoryAccount] has it
	Requests Requests `json:"requests"`
	Cost     float64  `json:"cost"`
	// Operations are the same requests by kind, as in Money; empty if that is not known by account:
	// processes tell it for up to some 80 accounts.
	Operations []MoneyRequests `json:"operations"`
}

// lastRows is how old the row of the history may be from which the accounts are shown.
const lastRows = 10 * time.Minute

// readMoney reads the last rows of the history. Rows are for minutes of the server's clock, which
// may differ from this machine's.
func (r *statusReader) readMoney(ctx context.Context) error {
	now := time.Now()
	if !r.view.Stamp().IsZero() {
		now = r.view.ServerTime(now)
	}
	points, err := sampling.ReadHistoryKinds(ctx, r.table, r.cfg.Workload, now.Add(-lastRows))
	if len(points) > 0 {
		r.last = &points[len(points)-1]
	}
	return err
}

// slowed counts the processors that hold back.
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
	m.LeastPerDay = queues.Least(&r.cfg.Config, processors, distributors)
}

// money fills in what the day has cost.
func (r *statusReader) money(s *Status) {
	m := &s.Money
	m.Prices, m.Day = r.cfg.Prices, s.Time.Format(time.DateOnly)
	m.Accounts, m.Operations = []MoneyAccount{}, []MoneyOperation{}
	today := s.Time.Unix() / (24 * 60 * 60)
	if c := r.cfg.Budget.CostPerDay; c > 0 {
		m.CapPerDay = &c
	}
	if r.view != nil {
		r.slowed(m)
		if d := r.view.Day(today, r.seen()); d != nil && !r.otherCurrency() {
			m.DayCost = &d.Cost
			m.PerDay = d.PerDay()
			m.Operations = operationsOf(d.Kinds, m.Prices)
		}
	}
	if r.last == nil || r.last.Time.Format(time.DateOnly) != m.Day {
		return
	}
	sum, requests := 0.0, sampling.Requests{}
	for _, a := range r.last.Accounts {
		cost := m.Prices.Cost(float64(a.Day.Queue), float64(a.Day.Table)) +
			a.DayKinds.BlobsMore(m.Prices)
		sum, requests = sum+cost, requests.Add(a.Day)
		one := MoneyAccount{
			Name:       a.Name,
			Requests:   Requests(a.Day),
			Cost:       cost,
			Operations: []MoneyRequests{},
		}
		if a.DayKinds != (cluster.OpCounts{}) {
			one.Operations = requestsOf(a.DayKinds, a.Day, m.Prices)
		}
		m.Accounts = append(m.Accounts, one)
	}
	if len(m.Operations) == 0 && r.last.DayKinds != (cluster.OpCounts{}) {
		for _, n := range requestsOf(r.last.DayKinds, requests, m.Prices) {
			m.Operations = append(m.Operations, MoneyOperation{MoneyRequests: n})
		}
	}
	m.DayCost = cmp.Or(m.DayCost, &sum)
}

// operationsOf are what the process that samples says of the day.
func operationsOf(of map[cluster.DayKind]cluster.DayCount, list pump.Prices) []MoneyOperation {
	all := make([]MoneyOperation, 0, len(of))
	for k, n := range of {
		o := MoneyOperation{MoneyRequests: costing(k.Service, k.Operation, n.Requests, list)}
		if n.Rate != nil {
			o.PerMinute = new(60 * *n.Rate)
			o.CostPerMinute = new(costOf(k.Service, k.Operation, *o.PerMinute, list))
		}
		all = append(all, o)
	}
	slices.SortFunc(
		all,
		func(a, b MoneyOperation) int { return byKind(a.MoneyRequests, b.MoneyRequests) },
	)
	return all
}

// requestsOf gives the requests by kind, as a row of the history has them.
func requestsOf(kinds cluster.OpCounts, all sampling.Requests, list pump.Prices) []MoneyRequests {
	var of []MoneyRequests
	put := func(service, operation string, n uint64) {
		if n > 0 {
			of = append(of, costing(service, operation, n, list))
		}
	}
	for k, n := range kinds {
		kind := cluster.Op(k)
		put(kind.Service(), kind.String(), n)
	}
	rest := all.Unknown(kinds)
	put(cluster.QueueService, "", rest.Queue)
	put(cluster.TableService, "", rest.Table)
	slices.SortFunc(of, byKind)
	return of
}

func costing(service, operation string, n uint64, list pump.Prices) MoneyRequests {
	cost := costOf(service, operation, float64(n), list)
	if strings.HasSuffix(operation, "-blob") || operation == "list-blobs" {
		service = "blob"
	}
	return MoneyRequests{operation, service, n, cost}
}

func costOf(service, operation string, n float64, list pump.Prices) float64 {
	if service == cluster.TableService {
		return list.Cost(0, n)
	}
	return n * list.Of(operation)
}

// byKind puts requests of an unknown kind last in their service.
func byKind(a, b MoneyRequests) int {
	return cmp.Or(strings.Compare(a.Service, b.Service),
		strings.Compare(cmp.Or(a.Operation, "~"), cmp.Or(b.Operation, "~")))
}

// otherCurrency reports whether the process that samples the queues has prices in another currency.
// Its rows say so, its beats do not.
func (r *statusReader) otherCurrency() bool {
	return r.last != nil && r.last.Currency != "" && r.last.Currency != r.cfg.Prices.Currency
}
