package admin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump/status"
)

// Spending says what the day has cost, as far as that is known, and what its cap does. Names in it
// come from outside.
func Spending(m *status.Money) string {
	return strings.Join(append(spent(m), capped(m)...), " · ")
}

// SpendingFirst gives the same in parts, for a caller with little room: first what the day has
// cost, then its cap, and in rest what may be left out.
func SpendingFirst(m *status.Money) (first, rest []string) {
	all := spent(m)
	first = append(first, all[:min(len(all), 1)]...)
	rest = all[len(first):]
	return append(first, capped(m)...), rest
}

// ByCost are operations, the dearest first.
func ByCost(list []status.MoneyOperation) []status.MoneyOperation {
	list = slices.Clone(list)
	slices.SortStableFunc(
		list,
		func(a, b status.MoneyOperation) int { return cmp.Compare(b.Cost, a.Cost) },
	)
	return list
}

// Kind is a kind of requests in the words of tables, without the currency; empty: not known.
type Kind struct{ Operation, To, PerMinute, CostPerMinute, Cost string }

// KindOf says what is known of an operation. Its name comes from outside.
func KindOf(o *status.MoneyOperation) Kind {
	k := Kind{Operation: cmp.Or(o.Operation, "not known"), To: o.Service + "s", Cost: Price(o.Cost)}
	if o.PerMinute != nil {
		k.PerMinute, k.CostPerMinute = rateText(*o.PerMinute), Price(*o.CostPerMinute)
	}
	return k
}

// Price is an amount with two digits that matter: a request costs less than a thousandth of a cent.
func Price(x float64) string {
	digits := 2
	if x > 0 && x < 0.995 {
		digits = min(1-int(math.Floor(math.Log10(x))), 8)
	}
	return humanize.FormatFloat("#,###."+strings.Repeat("#", digits), x)
}

// spent is what the day has cost; empty if that is not known.
func spent(m *status.Money) []string {
	if m.DayCost == nil {
		return nil
	}
	parts := []string{"today " + Amount(*m.DayCost, m.Prices.Currency)}
	var queues, tables uint64
	most, name := 0.0, ""
	for _, a := range m.Accounts {
		queues, tables = queues+a.Requests.Queue, tables+a.Requests.Table
		if a.Cost > most {
			most, name = a.Cost, a.Name
		}
	}
	if queues+tables > 0 {
		parts = append(parts, fmt.Sprintf("%s requests to queues, %s to tables",
			humanize.Comma(int64(queues)), humanize.Comma(int64(tables))))
	}
	if len(m.Accounts) > 1 && name != "" {
		parts = append(parts, fmt.Sprintf("most of account %s, %s", name, Amount(most, "")))
	}
	if m.PerDay != nil && *m.PerDay > 0 {
		parts = append(parts, Amount(*m.PerDay, m.Prices.Currency)+" a day at this rate")
	}
	return parts
}

// capped is what may be spent and what is held back for that. The configuration of the viewer may
// have no cap.
func capped(m *status.Money) []string {
	what := ""
	switch {
	case m.HoldBack > 0:
		what = "gets are held back by " + plural(int64(m.HoldBack), "processor", "processors")
	case m.Slowed > 0:
		what = "empty queues are polled more slowly by " +
			plural(int64(m.Slowed), "processor", "processors")
	}
	if m.CapPerDay != nil {
		most := "at most " + Amount(*m.CapPerDay, m.Prices.Currency) + " a day"
		if what != "" {
			most += ", so " + what
		}
		if m.LeastPerDay > *m.CapPerDay {
			most += "; the processes that live cost at least " + Amount(m.LeastPerDay, "")
		}
		return []string{most}
	}
	if what != "" {
		return []string{what + " to keep to a cap that is not in this configuration"}
	}
	return nil
}
