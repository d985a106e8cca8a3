package page

import (
	"testing"

	"github.com/queuepump/queuepump/pump/prices"
	"github.com/queuepump/queuepump/pump/status"
)

func TestOneTextSaysWhatTheDayCosts(t *testing.T) {
	known := status.Money{
		Prices: prices.Published, DayCost: new(1234.5), PerDay: new(0.0213),
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
			status.Money{Prices: prices.Published, CapPerDay: new(0.0213), HoldBack: 2},
			"at most 0.0213 USD a day, so gets are held back by 2 processors",
		},
		{
			status.Money{Prices: prices.Published, CapPerDay: new(0.0213), LeastPerDay: 0.5},
			"at most 0.0213 USD a day; the processes that live cost at least 0.5000",
		},
		{
			status.Money{Slowed: 1},
			"empty queues are polled more slowly by 1 processor to keep to a cap that this configuration does not have",
		},
	} {
		if got := Spending(&c.money); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
