package admin

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/status"
)

func TestOneTextSaysWhatTheDayCosts(t *testing.T) {
	known := status.Money{
		Prices: pump.Prices{}.OrPublished(), DayCost: new(1234.5), PerDay: new(0.0213),
		Accounts: []status.MoneyAccount{
			{Name: "alpha", Requests: status.Requests{Queue: 1000, Table: 20}, Cost: 0.5},
			{Name: "beta", Requests: status.Requests{Queue: 500}, Cost: 0.25},
		},
	}
	capped := known
	capped.Accounts = nil
	capped.CapPerDay, capped.Slowed, capped.HoldBack = new(1300.), 3, 1
	slowed := capped
	slowed.HoldBack = 0
	for _, c := range []struct {
		money status.Money
		want  string
	}{
		{status.Money{}, ""},
		{known, "today 1,234.50 USD · 1,500 requests to queues, 20 to tables · most of account alpha, 0.5000 · 0.0213 USD a day at this rate"},
		{capped, "today 1,234.50 USD · 0.0213 USD a day at this rate · at most 1,300.00 USD a day, so gets are held back by 1 processor"},
		{slowed, "today 1,234.50 USD · 0.0213 USD a day at this rate · at most 1,300.00 USD a day, so empty queues are polled more slowly by 3 processors"},
		{
			status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(0.0213), HoldBack: 2},
			"at most 0.0213 USD a day, so gets are held back by 2 processors",
		},
		{
			status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(0.0213), LeastPerDay: 0.5},
			"at most 0.0213 USD a day; the processes that live cost at least 0.5000",
		},
		{
			status.Money{Slowed: 1},
			"empty queues are polled more slowly by 1 processor to keep to a cap that is not in this configuration",
		},
	} {
		first, rest := SpendingFirst(&c.money)
		parts, all := append(first, rest...), strings.Split(c.want, " · ")
		slices.Sort(parts)
		slices.Sort(all)
		if c.want != "" && !slices.Equal(parts, all) {
			t.Errorf("in another order it says %q, want %q", parts, all)
		}
		proof.Same(t, Spending(&c.money), c.want)
	}
}

func TestTheDaysCostAndItsCapComeFirst(t *testing.T) {
	m := status.Money{
		Prices: pump.Prices{}.OrPublished(), DayCost: new(1.), PerDay: new(2.), CapPerDay: new(3.), HoldBack: 1,
		Accounts: []status.MoneyAccount{{Name: "alpha", Requests: status.Requests{Queue: 1}, Cost: 1}},
	}
	first, rest := SpendingFirst(&m)
	want := []string{"today 1.00 USD", "at most 3.00 USD a day, so gets are held back by 1 processor"}
	if !slices.Equal(first, want) || len(rest) != 2 {
		t.Errorf("%q and %q", first, rest)
	}
	m.DayCost = nil
	if first, rest = SpendingFirst(&m); !slices.Equal(first, want[1:]) || len(rest) > 0 {
		t.Errorf("where the day's cost is not known: %q and %q", first, rest)
	}
}

func TestAPriceHasTwoDigitsThatMatter(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.00", 1234.5: "1,234.50", 0.999: "1.00", 0.5: "0.50", 0.0123: "0.012", 0.00000816: "0.0000082", 3.6e-8: "0.00000004",
	} {
		proof.Same(t, Price(x), want, x)
	}
}

// The page has the figures of the status as they are.
func TestThePageHasTheMoneyOfTheStatus(t *testing.T) {
	m := status.Money{
		Prices: pump.Prices{}.OrPublished(), Day: "2030-01-02", DayCost: new(0.1), Accounts: []status.MoneyAccount{},
		Operations: []status.MoneyOperation{
			{MoneyRequests: status.MoneyRequests{Operation: "put", Service: "queue", Requests: 1, Cost: 0.1}, PerMinute: new(2.5)},
			{MoneyRequests: status.MoneyRequests{Operation: "get", Service: "queue", Requests: 9, Cost: 0.9}},
		},
	}
	tree := func(v any) (tree map[string]any) {
		text, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(text, &tree)
		}
		must(t, err)
		return tree
	}
	shown := tree(moneySeen{m, "a text"})
	if delete(shown, "spending"); !reflect.DeepEqual(shown, tree(m)) {
		t.Errorf("%v, want %v", shown, tree(m))
	}
	want := Kind{"put", "queues", "2.5", "0.0000010", "0.10"}
	o := m.Operations[0]
	o.CostPerMinute = new(0.000001)
	proof.Same(t, KindOf(&o), want)
	rest := status.MoneyOperation{MoneyRequests: status.MoneyRequests{Service: "table"}}
	proof.Same(t, KindOf(&rest), Kind{"not known", "tables", "", "", "0.00"})
	if list := ByCost(m.Operations); list[0].Operation != "get" || m.Operations[0].Operation != "put" {
		t.Errorf("%+v", list)
	}
}
