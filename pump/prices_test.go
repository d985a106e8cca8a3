package pump

import (
	"math"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestWhatIsNotGivenIsAsPublished(t *testing.T) {
	for _, c := range []struct{ given, want Prices }{
		{Prices{}, published},
		{Prices{Currency: "USD", Table: 1}, Prices{"USD", published.Queue, 1, "as configured", ""}},
		{Prices{Currency: "EUR"}, Prices{Currency: "EUR"}},
		{Prices{Currency: "EUR", Queue: 1}, Prices{Currency: "EUR", Queue: 1}},
		{Prices{Queue: 1}, Prices{"USD", 1, published.Table, "as configured", ""}},
		{Prices{"EUR", 1, 2, "ours", "2026-10"}, Prices{"EUR", 1, 2, "ours", "2026-10"}},
	} {
		proof.Same(t, c.given.OrPublished(), c.want, c.given)
	}
}

// A price in dollars is none in euros.
func TestPublishedPricesAreNotOfAnotherCurrency(t *testing.T) {
	for given, mixed := range map[Prices]bool{
		{}: false, {Queue: 1}: false, {Currency: "USD"}: false, {Currency: "USD", Table: 1}: false,
		{Currency: "EUR"}: true, {Currency: "EUR", Queue: 1}: true, {Currency: "EUR", Table: 1}: true,
		{Currency: "EUR", Queue: 1, Table: 1}: false,
	} {
		_, _, is := given.Mixed()
		proof.Same(t, is, mixed, given, "is mixed")
	}
}

// The engine counts by operation, and beats by service: both must come to the same.
func TestARequestCostsWhatItsServiceDoes(t *testing.T) {
	l := Prices{Queue: 10_000, Table: 20_000}
	sum := 0.
	for _, operation := range []string{"put", "get", "renew", "replace", "delete", "create", "count", "peek", "read", "write", "query"} {
		sum += l.Of(operation)
	}
	if want := l.Cost(8, 3); math.Abs(sum-want) > 1e-9 || want != 14 {
		t.Errorf("%v by operation, %v by service", sum, want)
	}
}
