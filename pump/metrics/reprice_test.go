package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/queuepump/queuepump/pump"
)

// Requests are counted at the prices that hold when they are made: a counter never falls.
func TestRequestsAreCountedAtThePricesOfTheirTime(t *testing.T) {
	m := NewCounters(pump.Prices{Currency: "EUR", Queue: 0.1, Table: 0.1})
	get := func() { m.Hooks(pump.Hooks{}).Request("a", "work-00", "get", time.Millisecond, nil) }
	spent := func(currency string) float64 {
		return testutil.ToFloat64(m.spent.WithLabelValues("a", "get", currency))
	}
	get()
	m.Hooks(pump.Hooks{}).Priced(pump.Prices{Currency: "EUR", Queue: 0.3, Table: 0.1})
	get()
	if got, want := spent("EUR"), 0.4/1e4; got < 0.999*want || got > 1.001*want {
		t.Errorf("%v, want %v", got, want)
	}
	m.Reprice(pump.Prices{})
	get()
	if got, before := spent(pump.Prices{}.OrPublished().Currency), spent("EUR"); got <= 0 || before < 0.3/1e4 {
		t.Errorf("%v in the currency of the published prices, %v before", got, before)
	}
}
