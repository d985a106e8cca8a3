package setup

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// A price that a list leaves out is published in one currency only.
func TestPricesAreOfOneCurrency(t *testing.T) {
	c := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development}}}
	for given, field := range map[pump.Prices]string{
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

const development = "UseDevelopmentStorage=true"

func TestForeignQueuesHaveTheNamesThatTheServiceAllows(t *testing.T) {
	for name, wrong := range map[string]bool{
		"orders": false, "a1b": false, "1-2-3": false, "work-foreign": false, "work-100": false,
		"ab": true, "Orders": true, "or--ders": true, "-orders": true, "orders-": true, "or_ders": true,
		"a23456789012345678901234567890123456789012345678901234567890123":  false,
		"a234567890123456789012345678901234567890123456789012345678901234": true,
		"work-00": true, "work-poison": true, "": true,
	} {
		c := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development, Foreign: []string{name}}}}
		done, err := Complete(c)
		proof.Same(t, (err != nil), wrong, name, err)
		if ce, ok := errors.AsType[*pump.ConfigError](err); err != nil && (!ok || ce.Field != "accounts[0].foreignQueues" || ce.Fix == "") {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil {
			continue
		}
		shards := Shards(done.Config)
		if last := shards[len(shards)-1]; len(shards) != pump.DefaultQueues+1 || last.Queue != name || last.State != shardmap.Foreign {
			t.Errorf("%q: %+v", name, shards)
		}
	}
	twice := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development, Foreign: []string{"orders", "orders"}}}}
	proof.Same(t, proof.ErrOf(Complete(twice)) == nil, false, "a queue was taken twice")
}

func TestTheEncodingOfForeignMessagesIsChecked(t *testing.T) {
	c := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development}}}
	if done, err := Complete(c); err != nil || done.ForeignEncoding != "auto" {
		t.Errorf("%q, %v", done.ForeignEncoding, err)
	}
	c.ForeignEncoding = "utf-8"
	ce, ok := errors.AsType[*pump.ConfigError](func() error { _, err := Complete(c); return err }())
	if !ok || ce.Field != "foreign.encoding" {
		t.Errorf("%v", ce)
	}
}

// A program that gives no log still hears of trouble, such as an account that Send waits for.
func TestWithoutALogTheDefaultOneIsUsed(t *testing.T) {
	c := pump.Config{Workload: "work", Accounts: []pump.Account{{ConnectionString: development}}}
	if done, err := Complete(c); err != nil || done.Log != slog.Default() {
		t.Errorf("%v: %v", err, done.Log)
	}
}
