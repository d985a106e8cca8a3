package settings

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/prices"
)

// A price that a list leaves out is published in one currency only.
func TestPricesAreOfOneCurrency(t *testing.T) {
	c := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development}}}
	for given, field := range map[prices.List]string{
		{}: "", {Currency: "EUR"}: "prices.currency", {Currency: "EUR", Queue: 0.0037}: "prices.currency",
		{Currency: "EUR", Queue: 0.0037, Table: 0.0003}: "", {Queue: -1}: "prices.queue",
	} {
		c.Prices = given
		done, err := Complete(c)
		ce, _ := errors.AsType[*pump.ConfigError](err)
		if (ce != nil) != (field != "") || ce != nil && ce.Field != field {
			t.Errorf("%+v: %v", given, err)
		}
		if err == nil && (done.Prices.Queue == 0 || done.Prices.Table == 0) {
			t.Errorf("%+v became %+v", given, done.Prices)
		}
	}
}

// A program that gives no log hears of trouble all the same, such as an account that Send waits for.
func TestWithoutALogTheDefaultOneIsUsed(t *testing.T) {
	c := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development}}}
	if done, err := Complete(c); err != nil || done.Log != slog.Default() {
		t.Errorf("%v: %v", err, done.Log)
	}
}
